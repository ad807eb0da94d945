"""The one place where the mpirun line is built: every word of it, for the defaults and for each
documented setting."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
from pathlib import Path
from shlex import split

import pytest

from tests import table
from tests.process.bench import Bench
from tests.waits import until

SECRET = secrets.token_hex(32)
LAST = [
    *split("-x ENTRYPOINT_KEEP sh -c"),
    '. "$ENTRYPOINT_RUN_DIR/rank.sh"',
    "rank",
    "prog",
    "an arg",
]
ROOT = ["--allow-run-as-root"] if os.geteuid() == 0 else []
# The documented default is used where one of its interfaces exists.
THERE = [name for name in ("ib0", "bond0", "eth0") if Path("/sys/class/net", name).exists()]
INTERFACE = "-x NCCL_SOCKET_IFNAME=ib0,bond0,eth0" if THERE else ""  # on ModelArts
X = "-x HOROVOD_MPI_THREADS_DISABLE=1 -x NCCL_SOCKET_FAMILY=AF_INET -x NCCL_IB_DISABLE=0"
MCA = "-mca pml ob1 -mca btl ^openib,ofi -mca plm_rsh_no_tree_spawn true"


def line(
    run_dir: Path,
    np: str = "2",
    hostfile: str = "",
    network: str = "",
    tune: str = "",
    bind: str = "--bind-to none --map-by slot",
    x: str = X,
    mca: str = MCA,
    extra: str = "",
) -> list[str]:
    """mpirun's words on one node with Open MPI 4, in their order."""
    return [
        *("--tag-output", "-np", np, "-hostfile", hostfile or f"{run_dir}/hostfile"),
        *("-mca", "orte_keep_fqdn_hostnames", "1"),
        *(*split(network), *split(tune), *ROOT, *split(bind)),
        *(*split(x.format(INTERFACE=INTERFACE)), *split(mca), *split(extra), *LAST),
    ]


SETTINGS: list[tuple[dict[str, str], dict[str, str]]] = table("tests/tables/mpirun_line.yaml")


def test_every_documented_setting(bench: Bench) -> None:
    benches = bench.others(len(SETTINGS))
    started = [
        one.start("prog", "an arg", slots=0 if "MY_MPI_SLOTS" in env else 2, FAKE_EXIT="3", **env)
        for one, (env, _) in zip(benches, SETTINGS, strict=True)
    ]
    for one, process, (env, parts) in zip(benches, started, SETTINGS, strict=True):
        assert process.wait() == 3, (env, one.err)
        assert one.record()["argv"] == line(one.run_dir, **parts), env


def test_what_x_sets_is_kept_from_the_node_s_own(bench: Bench) -> None:
    """The rank's wrapper loads this node's variables, but for those that the line gives a value."""
    env = {
        "OPENMPI_X_ARGS": "-x A=1 -x B",
        "OPENMPI_EXTRA_ARGS": "-x C=a=b",
        "A": "own",
        "C": "own",
    }
    assert bench.run("sh", "-c", 'echo "$A $C" >>"$NOTES"', slots=1, **env) == 0, bench.err
    assert bench.record()["env"]["ENTRYPOINT_KEEP"].split() == ["A", "C"]
    assert bench.notes == ["1 a=b"]


def test_the_line_is_in_the_run_directory_without_secrets_and_the_log_names_it(
    bench: Bench,
) -> None:
    env = {"OPENMPI_X_ARGS": "-x A=1 -x API_TOKEN=planted-planted"}
    # a line of ours is one, whatever is in it
    program = "until [ -e go ]; do sleep 0.02; done; exit 3\n# 'said'\t\\ \u2028"
    process = bench.start("sh", "-c", program, "a b", slots=2, **env)
    file = bench.run_dir / "started.txt"
    said = until(lambda: file.exists() and file.read_text(), bench.err)
    mode = file.stat().st_mode & 0o777
    (bench.folder / "cwd/go").touch()
    assert (process.wait(), mode, file.exists()) == (3, 0o600, False), bench.err
    (text,) = [text for text in bench.err.splitlines() if "] started: " in text]
    where = f"whole line: {file}, or `entrypoint plan`"
    assert text == f"[entrypoint] started: mpirun with 2 ranks | {where}"
    assert said.startswith("mpirun --tag-output -np 2 -hostfile ")
    assert said.endswith(r"exit 3\n# \'said\'\t\\ \U00002028' 'a b'" + "\n")
    words = subprocess.run(["bash", "-c", f"printf '%s\\0' {said}"], capture_output=True)
    assert words.stdout.decode().split("\0")[-3:] == [program, "a b", ""]
    assert "-x A=1 -x 'API_TOKEN=(not shown)'" in said
    assert "planted" not in bench.err


@pytest.mark.parametrize("flags", [("--quiet",), ()], ids=["quiet", ""])
def test_quiet_leaves_errors_alone(flags: tuple[str, ...], bench: Bench) -> None:
    assert bench.run("sh", "-c", "echo ran; exit 3", flags=flags) == 3
    assert ("] started: " in bench.err) == (not flags)
    assert bench.err.splitlines()[-1].startswith("[entrypoint] EP600 rank ")
    assert "ran\n" in bench.out


def test_mpirun_is_given_no_secret_and_nothing_of_the_boot(bench: Bench) -> None:
    assert bench.run("prog", FAKE_EXIT="3", ENTRYPOINT_SECRET=SECRET) == 3
    called = bench.record()
    assert SECRET not in json.dumps(called)
    assert {"ENTRYPOINT_SECRET", "ENTRYPOINT_STAGE"} & called["env"].keys() == set()
    assert called["env"]["OPENMPI_NP"] == "2"


def rendered(bench: Bench) -> str:
    """run_mpi.sh as `entrypoint render` writes it, by the name people start it by."""
    out = bench.folder / "scripts"
    subprocess.run(
        [sys.executable, "-m", "entrypoint", "render", "--out", str(out)], env=bench.env, check=True
    )
    return str(out / "run_mpi.sh")


def test_my_home(bench: Bench) -> None:
    """The folder that held the old script's files holds ours, in a private folder of its own."""
    script = rendered(bench)
    del bench.env["ENTRYPOINT_RUN_DIR"]
    home = bench.folder / "my-home"
    process = bench.popen(["bash", script, "prog"], {"MY_HOME": str(home), "FAKE_EXIT": "3"})
    assert process.wait() == 3, bench.err
    assert bench.record()["argv"][:4] == ["-np", "1", "-hostfile", f"{home}/.entrypoint/hostfile"]
    left = sorted(path.name for path in home.iterdir())
    assert left == [".entrypoint-state.json"], "only how the job ended is left"


@pytest.mark.promise("`torchrun.sh` and `run_mpi.sh` work without the toolkit")
def test_started_by_hand_without_the_toolkit(bench: Bench) -> None:
    script = rendered(bench)
    (bench.folder / "bin" / "entrypoint").unlink()
    process = bench.popen(["bash", script, "prog"])
    assert process.wait() == 127
    assert (
        bench.err
        == "run_mpi.sh: EP650 the job cannot boot | no entrypoint on PATH | use an image that has"
        " the toolkit\n"
    )
