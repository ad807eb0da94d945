"""The placeholder that a plan renders, in the shells that images have as sh."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from shlex import split

import pytest

from entrypoint.base.kept import OutputForm
from entrypoint.base.values import replace
from entrypoint.plan import env_of_ranks
from entrypoint.ranks import orders
from tests.process.keeps import PLAIN, Keeper
from tests.unit.plans import SECRET, build, facts

WORD = "a  'b' $HOME *"  # an argument of the program
PATH = {"PATH": "/usr/bin:/bin"}
SHELLS = {"dash": "exec dash", "bash": "exec bash", "bash as sh": "exec -a sh bash"}


def rank_env(
    shell: str, tmp_path: Path, own: Mapping[str, str], text: str = ""
) -> dict[bytes, bytes]:
    """What a rank's program gets, as bytes, where a launcher of this environment starts it."""
    if shutil.which(shell.partition(" ")[0]) is None:
        pytest.skip(f"no {shell} here")
    given = facts(own, cwd=str(tmp_path))
    made = build(f"run_dir: {tmp_path}\nlauncher: mpirun\n{text}", given)
    ranks = made.launch.ranks.form
    assert ranks is not None
    form = replace(ranks.form, output=OutputForm())
    ranks = replace(ranks, form=form, env=tuple(env_of_ranks(given, made)))
    with (tmp_path / "out").open("wb") as out:
        kept = Keeper(tmp_path, ranks, stdout=out)
    launcher = f'({SHELLS[shell]} -c \'. "$ENTRYPOINT_RUN_DIR/rank.sh"\' rank "$@"); exit $?'
    kept.start(
        *("bash", "-c", launcher, "launcher", "env", "-0", f"GIVEN={WORD}"),
        form=replace(PLAIN, is_launcher=True),
        env={**PATH, "ENTRYPOINT_RUN_DIR": str(tmp_path), "OMPI_COMM_WORLD_RANK": "0"},
    )
    assert "end 0" in kept.ended(orders.RANK)
    kept.close()
    output = (tmp_path / "out").read_bytes()
    return dict(entry.split(b"=", 1) for entry in output.split(b"\0") if entry)


BYTES = {
    **PATH,
    "QUOTES": 'it\'s "so" `id` $(id) ${HOME} $HOME',
    "SEMICOLON": "a;b & c | d > e",
    "LINES": "one\ntwo\n",
    "BACKSLASH": "\\ \\n \\\\",
    "EQUALS": "c2VjcmV0==",
    "EMPTY": "",
    "BLANK": "  two  spaces\t",
    "JSON": '[{"name": "data url", "value": "s3://b/x y"}]',
    "UMLAUT": "äöü €",
    "LATIN": b"\xe4\xff".decode("utf-8", "surrogateescape"),
    "LARGE": "x" * 100_000,
    "DASH": "-n",
}
# Names that no shell exports, and those that are a shell's own.
ODD = ("a.b", "a-b", "1x", "BASH_FUNC_f%%", "with space", "ä", "-n", "a\nb")
OWNED = (
    *split("UID EUID PPID SHELLOPTS BASHOPTS BASH_VERSINFO IFS OPTIND PS4 ENV RANDOM"),
    *split("GROUPS DIRSTACK LINENO FUNCNAME PIPESTATUS SECONDS EPOCHSECONDS HISTCMD BASHPID"),
)


@pytest.mark.parametrize("shell", SHELLS)
def test_every_byte_of_every_value_below_what_the_spec_says(shell: str, tmp_path: Path) -> None:
    own = {**BYTES, **dict.fromkeys((*ODD, *OWNED), "7")}
    given = {**own, "X": "container", "ENTRYPOINT_SECRET": SECRET}
    got = rank_env(shell, tmp_path, given, "env: {X: spec}")
    expected = {name: value.encode("utf-8", "surrogateescape") for name, value in own.items()}
    assert {name: got.get(name.encode()) for name in own} == expected
    assert (got[b"X"], got[b"GIVEN"].decode()) == (b"spec", WORD)
    assert {b"ENTRYPOINT_SECRET", b"ENTRYPOINT_KEEP"} & got.keys() == set()


def test_what_plan_says_of_each_rank_is_what_it_gets(tmp_path: Path) -> None:
    made = build("launcher: mpirun")
    assert made.launch.ranks.form is not None
    assert [(name, f"${theirs}") for name, theirs in made.launch.ranks.form.each] == [
        (var.name, var.value) for var in made.launch.ranks.env_of_each
    ]
    got = rank_env("dash", tmp_path, PATH)
    # as mpirun, which is not there, has told it
    assert (got[b"RANK"], b"WORLD_SIZE" in got) == (b"0", False)
