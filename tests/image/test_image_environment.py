"""Points 7 and 8: what a program finds around it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from shlex import split

import pytest

from entrypoint.base.kept import MARK, VERDICT
from tests.containers import engine, logs
from tests.image.boxes import Pair, python, said, sh

OURS = ("bcrypt", "paramiko", "cryptography", "entrypoint")
# One rank after the other: mpirun passes on 2 KiB at a time, of whichever rank has any. Started by
# its launcher, the toolkit's own Python has lD_PRELOAD for LD_PRELOAD, and so on.
LOOK = (
    "import json, os, time; time.sleep(0.5 * int(os.environ.get('OMPI_COMM_WORLD_RANK', 0)));"
    " print(json.dumps({name.replace('lD_', 'LD_', 1): value for name, value in"
    " os.environ.items()}))"
)
GIVEN = {
    "A": "1", "ODD": "it's \"two  words\" $HOME {{ x }}", "LINES": "a\nb", "EMPTY": "", "PYTHONPATH": "/mine",
    "LD_LIBRARY_PATH": "/my/lib", "TZ": "Asia/Shanghai",
}  # fmt: skip
# What mpirun adds to the environment of every rank.
_MPIRUN = re.compile(
    r"(OMPI|PMIX|ORTE|PRTE|PMI|OPAL|HWLOC|IPATH|PSM2?)_|(HFI_NO_BACKTRACE|DYLD_LIBRARY_PATH)$"
)


def given(variables: dict[str, str]) -> list[str]:
    return [word for name, value in variables.items() for word in ("-e", f"{name}={value}")]


def from_docker(image: str) -> dict[str, str]:
    """What docker alone gives a program of this image."""
    entries = engine().images.get(image).attrs["Config"]["Env"]
    return dict(entry.split("=", 1) for entry in entries) | {
        "HOME": "/home/ma-user",
        "HOSTNAME": "here",
    }


def environments(image: str, *options: str) -> list[dict[str, str]]:
    """The environment of each rank."""
    shown = said(image, *python(image), "-c", LOOK, options=("--hostname", "here", *options))
    return [json.loads(line) for line in shown.splitlines()]


def test_our_packages_are_invisible(image: str) -> None:
    """7.1 the job's Python neither finds nor lists our packages, under any PYTHONPATH of its own"""
    look = "import importlib.util as u, sys; print([n for n in sys.argv[1:] if u.find_spec(n)])"
    options = ("-e", "PYTHONPATH=/tmp")
    listed = (
        "from importlib.metadata import distributions; print(*[d.metadata['Name'] for d in"
        " distributions()])"
    )
    if python(image) == ("python",):
        assert said(image, "python", "-c", look, *OURS, options=options) == "[]\n"
        assert not set(said(image, "python", "-c", listed).lower().split()) & set(OURS)
    else:  # ours does not become the job's
        assert sh(image, "command -v python3 || command -v python || true") == ""
    # The control: the toolkit's own Python has them.
    assert sh(image, f"/opt/entrypoint/bin/python -I -c '{look}' {' '.join(OURS)}") == str(
        list(OURS)
    )


def test_a_programs_environment_is_dockers(image: str) -> None:
    """7.2 a program alone has the environment that docker gives it, byte for byte"""
    assert environments(image, *given(GIVEN)) == [from_docker(image) | GIVEN]
    assert environments(image) == [from_docker(image)]  # the control: unset stays unset


@pytest.mark.parametrize("slots", [1, 2])
def test_a_jobs_environment_is_what_plan_lists(image: str, slots: int) -> None:
    """7.3 a job has what was given and what `plan` lists, and no more"""
    job = {**GIVEN, "ENTRYPOINT_NAME": "job", "ENTRYPOINT_SLOTS": str(slots)}
    options = ("--hostname", "here", *given(job))
    plan = json.loads(
        said(image, "entrypoint", "plan", "--json", "--", *python(image), options=options)
    )
    listed = {variable["name"] for variable in _variables(plan)}
    wanted = from_docker(image) | job
    for found in environments(image, *given(job)):
        assert {name: found.get(name) for name in wanted} == wanted
        added = {
            name for name in found.keys() - wanted.keys() if not (slots > 1 and _MPIRUN.match(name))
        }
        kept = {MARK, VERDICT} if slots > 1 else set()  # which a keeper gives its programs
        assert added <= listed | _xs(found, slots) | kept, added


def test_ranks_of_another_node_have_no_more(image: str) -> None:
    """7.6 nor have ranks of another node: nothing of the ssh login that started them"""
    with Pair(image, given(GIVEN), slots=1) as pair:
        plan = json.loads(
            said(
                image,
                *split("entrypoint plan --json --"),
                *python(image),
                options=pair.options_of(0),
            )
        )
        pair.start_both(*python(image), "-c", LOOK)
        assert pair.ends() == [0, 0], pair.logs()
        ranks = [
            json.loads(line)
            for line in logs(pair.boxes[0], stderr=False).splitlines()
            if line.startswith("{")
        ]
    assert sorted(rank["HOSTNAME"] for rank in ranks) == ["worker-0", "worker-1"]
    listed = {variable["name"] for variable in _variables(plan)}
    wanted = (
        from_docker(image)
        | GIVEN
        | {"ENTRYPOINT_HOSTS": "worker-0,worker-1", "ENTRYPOINT_SLOTS": "1"}
    )
    for found in ranks:
        assert {name: found.get(name) for name in wanted} == wanted | {
            "HOSTNAME": found["HOSTNAME"]
        }
        added = {name for name in found.keys() - wanted.keys() if not _MPIRUN.match(name)}
        # the roll call's network, which `plan` does not know before it
        late = {"ENTRYPOINT_TIMEOUTS_PEERS", "GLOO_SOCKET_IFNAME", MARK, VERDICT}
        assert added <= listed | _xs(found, 2) | late, added


def test_programs_that_pip_brings_are_on_path(image: str, folder: Path) -> None:
    """7.7 programs in ~/.local/bin are found: alone, on another node, in a login; they hide none of
    the image"""
    bin_ = folder / "bin"
    bin_.mkdir()
    for name in ("brought", "entrypoint", "ssh"):
        (bin_ / name).write_text("#!/bin/sh\necho $0 on $HOSTNAME\n")
        (bin_ / name).chmod(0o755)
    mounted = ("-v", f"{bin_}:/home/ma-user/.local/bin:ro")
    place = "/home/ma-user/.local/bin/brought on here\n"
    here = ("--hostname", "here", *mounted)
    assert said(image, "brought", options=here) == place
    assert said(
        image, "sh", "-c", "command -v entrypoint; command -v ssh", options=here
    ).split() == ["/usr/local/bin/entrypoint", "/usr/bin/ssh"]
    # The user's own ~/.profile, where there is one, may do it too.
    assert said(image, "bash", "-lc", "brought", options=here) == place
    assert said(image, "sh", "-c", "rm -f ~/.profile; exec sh -lc brought", options=here) == place
    with Pair(image, mounted, slots=1) as pair:
        pair.start_both("brought")
        assert pair.ends() == [0, 0], pair.logs()
        ranks = [
            line
            for line in logs(pair.boxes[0], stderr=False).splitlines()
            if line.startswith("/home/")
        ]
    assert sorted(ranks) == [
        f"/home/ma-user/.local/bin/brought on worker-{node}" for node in range(2)
    ]


def test_pip_keeps_the_images_torch() -> None:
    """7 a version that no index is asked for: the constraint is met before any file is needed."""
    image = "entrypoint-gpu:dev"
    kept = sh(image, "cat /etc/pip-constraints.txt")
    version = sh(image, "python -c 'import torch; print(torch.__version__)'")
    assert f"torch=={version}" in kept.split()
    ask = "pip install --no-index --dry-run torch==0.1 2>&1 || true"
    assert f"The user requested (constraint) torch=={version}" in sh(image, ask)
    assert "(constraint)" not in sh(image, f"export PIP_CONSTRAINT=; {ask}"), "a control"


def _variables(plan: object) -> list[dict[str, str]]:
    """Every variable that the plan names, wherever it is."""
    if isinstance(plan, dict):
        here = [plan] if "name" in plan and "value" in plan else []
        return here + [found for value in plan.values() for found in _variables(value)]
    return (
        [found for value in plan for found in _variables(value)] if isinstance(plan, list) else []
    )


def _xs(found: dict[str, str], slots: int) -> set[str]:
    """Names of Horovod's and NCCL's, which the script's default -x options set."""
    return {name for name in found if slots > 1 and re.match(r"NCCL_|HOROVOD_", name)}


@pytest.mark.parametrize(
    ("name", "default", "mine"),
    [
        ("NCCL_DEBUG", "", "WARN"),
        ("NCCL_SOCKET_FAMILY", "AF_INET", "AF_INET6"),
        ("HCCL_CONNECT_TIMEOUT", "1800", "77"),
        ("OMPI_MCA_btl_vader_single_copy_mechanism", "none", "emulated"),
        ("OMPI_MCA_odls_base_num_threads", "0", "2"),
    ],
)
def test_what_a_user_sets_wins(image: str, name: str, default: str, mine: str) -> None:
    """7.4 NCCL_*, HCCL_* and OMPI_* of the user win over our defaults"""
    job = (
        *split(
            "-e ENTRYPOINT_SLOTS=2 -e ENTRYPOINT_SIMULATE_ASCEND=2 -e ENTRYPOINT_LAUNCHER=mpirun"
        ),
    )
    look = ("sh", "-c", f"echo ${name}")
    assert said(image, *look, options=job) == f"{default}\n" * 2
    assert said(image, *look, options=(*job, "-e", f"{name}={mine}")) == f"{mine}\n" * 2


@pytest.mark.parametrize("job", [(), ("-e", "ENTRYPOINT_SLOTS=2")], ids=["program", "ranks"])
def test_time_locale_and_folder(image: str, job: tuple[str, ...]) -> None:
    """8.1 TZ, a UTF-8 locale, PYTHONUNBUFFERED and WORKDIR are there, for programs and for ranks"""
    script = "date -d @0 +%H; locale charmap; echo $PYTHONUNBUFFERED; pwd"
    ranks = 2 if job else 1
    assert sorted(said(image, "sh", "-c", script, options=job).split()) == sorted(
        ["00", "UTF-8", "1", "/home/ma-user"] * ranks
    )
    options = (*job, "-e", "TZ=Asia/Shanghai", "-e", "LANG=C", "-w", "/tmp")
    shown = said(image, "sh", "-c", script, options=options).split()
    assert sorted(shown) == sorted(["08", "ANSI_X3.4-1968", "1", "/tmp"] * ranks)
