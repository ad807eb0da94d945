"""A rank starts again after its container has stopped, with the page's own lines."""

from __future__ import annotations

import subprocess
import uuid

import pytest

from tests import TREE
from tests.containers import IMAGE, docker

PAGE = TREE / "docs/how-to/rerun.md"


@pytest.mark.promise(
    "a rank starts again in a copy of the container that has stopped with its job",
    control="in the container itself nothing can be started",
)
def test_a_rank_starts_again_in_a_copy() -> None:
    """it has its command, its number, its secrets and its status; and the control: in the container
    itself nothing can be started"""
    name = f"rerun-{uuid.uuid4().hex[:8]}"
    program = 'echo "rank $OMPI_COMM_WORLD_RANK has $MY_TOKEN"; exit 7'
    job = ["-e", "ENTRYPOINT_SLOTS=2", "-e", "MY_TOKEN=abc", IMAGE, "sh", "-c", program]
    lines = PAGE.read_text().partition("```sh\ndocker commit")[2].splitlines()[:3]
    script = "\n".join(("shopt -s expand_aliases", f"docker commit{lines[0]}", *lines[1:]))
    script = script.replace("CONTAINER", name).replace("run -it", "run").replace("job-again", name)
    try:
        assert subprocess.run(["docker", "run", "--name", name, *job], check=False).returncode == 7
        words = ["docker", "exec", name, "entrypoint", "rerun", "--rank", "1"]
        refused = subprocess.run(words, capture_output=True, text=True, check=False)
        assert "is not running" in refused.stderr
        script = script.replace("--rank 3", "--rank 1")
        done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False)
        assert done.returncode == 7, done
        assert done.stdout.splitlines()[-1] == "rank 1 has abc"
    finally:
        docker("rm", "--force", name)
        docker("rmi", "--force", name)
