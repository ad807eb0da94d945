"""`entrypoint rerun` in real containers: a rank fails, and starts again alone as it was, next to the job
that has ended, and in a new container with the same volume."""

from __future__ import annotations

import json
import re
import secrets
from pathlib import Path
from typing import Any

import pytest

from entrypoint.base.kept import MARK, VERDICT
from tests.containers import IMAGE, JAX, MPI4, docker, skip_without
from tests.image.boxes import Pair, run
from tests.waits import until

LAUNCHERS = {"mpirun": MPI4, "torchrun": IMAGE, "jax": JAX}
# Writes what it is into a file of its rank; rank 3 fails, and torchrun restarts the others once.
TRAIN = """
import glob, json, os, sys, time
rank = os.environ.get("RANK") or os.environ["JAX_PROCESS_ID"]
what = {"argv": sys.argv, "cwd": os.getcwd(), "env": dict(os.environ)}
with open(f"/state/rank-{rank}.new", "w") as file:
    json.dump(what, file)
os.rename(f"/state/rank-{rank}.new", f"/state/rank-{rank}")
print("rank", rank, "is here", flush=True)
time.sleep(600 if rank != "3" and os.environ.get("TORCHELASTIC_RESTART_COUNT") == "0" else 0.5)
sys.exit(7 * (rank == "3"))
"""


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_the_rank_that_failed_starts_again(launcher: str, folder: Path) -> None:
    image = LAUNCHERS[launcher]
    skip_without(image)
    state, key = folder / "state", secrets.token_hex(16)
    state.mkdir()
    state.chmod(0o777)  # the containers' user is another one
    (folder / "train.py").write_text(TRAIN)
    job = f"entrypoint run --launcher {launcher} -- python3 /train.py --name 'a b' -- '$X'"
    options = (
        *("--volume", f"{folder}/train.py:/train.py:ro", "--workdir", "/home"),
        *("--env", "ENTRYPOINT_RUN_DIR=/state/run", "--env", f"WANDB_API_KEY={key}"),
        *("--env", "SHOWN=for everybody", "--env", "ENTRYPOINT_TORCH_MAX_RESTARTS=1"),
    )

    def seen() -> dict[str, Any]:
        """Return what rank 3 has written, which is removed."""
        what: dict[str, Any] = json.loads((state / "rank-3").read_text())
        (state / "rank-3").unlink()
        for name in (MARK, VERDICT):  # of the keeper, which a rank that is started again has not
            what["env"].pop(name, None)
        return what

    with Pair(image, options) as pair:
        for rank, mount in (
            (1, ("--volume", f"{state}:/state")),
            (0, ("--tmpfs", "/state:mode=1777")),
        ):
            script = f"{job}; echo it ended with $?; sleep 600"
            pair.start(rank, "-c", script, options=("--entrypoint", "sh", *mount))
        until(lambda: pair.logs().count("it ended with 7") == 2, "the end of the job")
        first = seen()
        assert first["argv"] == ["/train.py", "--name", "a b", "--", "$X"]
        assert first["env"]["WANDB_API_KEY"] == key
        if launcher == "torchrun":
            assert first["env"]["TORCHELASTIC_RESTART_COUNT"] == "1", "the last start counts"

        other = docker("exec", pair.boxes[0], "sh", "-c", "entrypoint rerun --rank 3 2>&1; echo $?")
        assert "rank 3 cannot be started again | ranks that ran here: 0-1" in other, other
        again = docker("exec", pair.boxes[1], "sh", "-c", "entrypoint rerun --rank 3 2>&1; echo $?")
        assert again.endswith("rank 3 is here\n7\n"), again
        python = "python3 -u" if launcher == "torchrun" else "python3"
        assert f"rank 3 of job job, attempt 1, again: {python} /train.py " in again, again
        assert " | the job ended: EP600 rank 3 on worker-1 exited with 7" in again, again
        assert seen() == first

        for file in state.glob("rank-*"):
            file.unlink()
        places = "/state /tmp /home /var /run /etc"
        find = f"grep -rlF {{}} {places} 2>/dev/null"
        found = docker("exec", pair.boxes[1], "sh", "-c", find.format("'a b'"), check=False)
        assert "/state/run-ranks/3\n" in found, "the control"
        assert docker("exec", pair.boxes[1], "sh", "-c", find.format(key), check=False) == ""

    bare = ("--volume", f"{state}:/state", *options[:2], "--env", "SHOWN=for everybody")
    words = ("entrypoint", "rerun", "--run-dir", "/state/run", "--rank", "3")
    done = run(image, *words, options=bare)
    assert done.status == 7, done
    missing = re.findall("so not stored, and not set here: (.*)", done.err)[0].split(", ")
    assert "WANDB_API_KEY" in missing, done.err
    now = seen()
    for name in ("HOSTNAME", *missing):  # the container's own
        first["env"].pop(name, None)
        now["env"].pop(name, None)
    assert now == first
    done = run(image, *words, "--", "sh", "-c", "echo $SHOWN; pwd; exit 4", options=bare)
    assert (done.status, done.out) == (4, "for everybody\n/home\n"), done
