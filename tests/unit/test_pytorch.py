"""The launcher `pytorch`: which arguments it adds, where they stand, and which of the user's it
refuses."""

from __future__ import annotations

import shlex

import pytest

from entrypoint.base.errors import SpecError
from tests.unit.cases import planned

INIT = "--init_method tcp://127.0.0.1:6060"
NODES = "--init_method tcp://a:6060 --rank 1 --world_size 2"
TWO = "hosts: [a, b]\nnode_rank: 1\n"


def line(text: str, command: str, env: dict[str, str] | None = None) -> str:
    """The command line that this node starts, as a shell would write it."""
    made = planned(f"launcher: pytorch\n{text}\ncommand: {shlex.split(command)}", env)
    return shlex.join(made.launch.programs[0].argv)


@pytest.mark.parametrize(
    ("text", "added"),
    [
        ("", ""),
        ("slots: 8", INIT),
        ("torch: {rank_args: always, port: 7}", "--init_method tcp://127.0.0.1:7 --rank 0 --world_size 1"),
        ("hosts: [a]\nslots: 8", "--init_method tcp://a:6060"),
        (TWO + "slots: 8", NODES),
        ("hosts: [a=10.0.0.1, b]\nnode_rank: 0", "--init_method tcp://10.0.0.1:6060 --rank 0 --world_size 2"),
        ('hosts: ["a=fd00::1", b]\nnode_rank: 0', "--init_method 'tcp://[fd00::1]:6060' --rank 0 --world_size 2"),
    ],
)  # fmt: skip
def test_what_is_added(text: str, added: str) -> None:
    assert line(text, "python train.py --epochs 5") == " ".join(
        f"python train.py {added} --epochs 5".split()
    )


def test_the_port_of_torch_s_own_variable() -> None:
    made = line("slots: 2", "python a.py", {"MASTER_PORT": "7070"})
    assert made == "python a.py --init_method tcp://127.0.0.1:7070"


@pytest.mark.parametrize(
    "command",
    [
        "python train.py | --epochs 5", "/opt/venv/bin/python3.11 -u -B train.py | -m",
        "python -X faulthandler -Wignore -W error train.py | a b", "python -Xutf8 train.py |",
        "python --check-hash-based-pycs never train.py |", "python -m package.train | --epochs 5",
        "python -um package.train | --epochs 5", "python -mpackage.train | --epochs 5",
        "python -c 'import train' | x", "python -- -odd.py | x", "python - | x",
        "bash -o pipefail train.sh | x", "sh -eu train.sh | x", "./train | --epochs 5",
        "package-train | train.py",
    ],
)  # fmt: skip
def test_where_it_stands(command: str) -> None:
    before, after = command.split("|")
    words = shlex.join([*shlex.split(before), *shlex.split(NODES), *shlex.split(after)])
    assert line(TWO, shlex.join(shlex.split(before) + shlex.split(after))) == words


def test_a_script_alone_gets_the_image_s_python() -> None:
    assert line("", "train.py --epochs 5") == "python train.py --epochs 5"
    assert line(TWO, "train.py --epochs 5") == f"python train.py {NODES} --epochs 5"


@pytest.mark.parametrize(
    "word", ["--init_method", "--init-method=tcp://x:1", "--rank", "--rank=0", "--world-size"]
)
def test_what_is_added_may_not_be_given_too(word: str) -> None:
    with pytest.raises(SpecError) as caught:
        line(TWO, f"python train.py --epochs 5 {word}")
    assert caught.value.status == 65
    assert f"is added by the launcher | `{word}` | remove it; its value comes from " in str(
        caught.value
    )


def test_only_what_is_added_is_refused() -> None:
    own = "python train.py --world_size 1 --rank 0"
    assert line("slots: 8", own) == f"python train.py {INIT} --world_size 1 --rank 0"
    assert line("", f"{own} --init_method x") == f"{own} --init_method x"
    assert line(TWO, "python train.py --ranker rank").endswith("--ranker rank")
