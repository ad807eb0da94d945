"""The tutorial, word for word: each block of shell of docs/tutorial/first-job.md by one bash, one
after the other."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from shlex import quote

import pytest

from tests import TREE
from tests.cluster import free_port
from tests.command import captured
from tests.process.bench import executable

PAGE = TREE / "docs/tutorial/first-job.md"
INSTALLS = "PATH=$(scripts/dev/venv demo)/bin:$PATH"  # makes an environment: here it is there


@pytest.mark.promise(
    "the tutorial is true, word for word", control="node-1's absence, in the same test"
)
@pytest.mark.see("words", "the tutorial is true, line for line")
def test_it_says_what_happens(tmp_path: Path) -> None:
    command = f'PYTHONPATH={quote(str(TREE))} exec {sys.executable} -m entrypoint "$@"'
    executable(tmp_path / "bin/entrypoint", command)
    blocks = re.findall(r"(?ms)^```sh\n(.*?)^```$", PAGE.read_text(encoding="utf-8"))
    script = "\n".join(blocks)
    assert script.count(INSTALLS) == 1
    script = script.replace(INSTALLS, f"PATH={tmp_path}/bin:$PATH")
    env = {
        "PATH": "/usr/bin:/bin:/usr/sbin",
        "HOME": str(tmp_path),
        "ENTRYPOINT_RUN_DIR": f"{tmp_path}/run",
        "ENTRYPOINT_SSH_PORT": str(free_port()),  # other tests may have the usual one
    }
    done = captured(["bash", "-c", script], cwd=tmp_path, env=env)
    lines = done.stdout.splitlines()
    # Those that fail. The others may be stopped before they print.
    assert {"rank 1 of 2", "node 1 of 2"} <= set(lines)
    # What the page says: a rank's own status, 69 without the other node, and 7 on both.
    assert [line for line in lines if line.isdigit()] == ["7", "69", "7", "7"]
    for said in (
        "EP600 rank 1 on ",
        "EP500 1 of 1 peers did not answer within 5s | worker-1 (node-1, nothing listens there yet)",
        "EP600 sh on worker-1 (node-1) exited with 7; exit 7",
    ):
        assert said in done.stderr
