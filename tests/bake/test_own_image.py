"""docs/tutorial/own-image.md, word for word: each block of shell by one bash, one after the other.

Only the image, and the names of what the engine keeps, are others.
"""

from __future__ import annotations

import re
import uuid
from pathlib import Path

import pytest

from tests import TREE
from tests.bake.test_mounted import TOOLKIT
from tests.command import captured
from tests.containers import docker, skip_without

PAGE = TREE / "docs/tutorial/own-image.md"
IMAGE = "entrypoint-bake-base:bookworm"
IN_PDB = "p [samples]\nq\nq\n"


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.promise(
    "the tutorial with an image of one's own is true, word for word",
    control="the corrected program's end with 0, in the same test",
)
def test_it_says_what_happens(tmp_path: Path) -> None:
    skip_without(IMAGE)
    skip_without(TOOLKIT)
    own = f"own-{uuid.uuid4().hex[:6]}"
    text = PAGE.read_text(encoding="utf-8")
    script = "\n".join(re.findall(r"(?ms)^```sh\n(.*?)^```$", text))
    for written, typed in {
        "scripts/build-image toolkit": "true",
        "IMAGE=pytorch/pytorch": f"IMAGE={IMAGE}",
        "-v toolkit:": f"-v {own}:",
        "worker-": f"{own}-",
        "network create train": f"network create {own}",
        "--network train": f"--network {own}",
        "network rm train": f"network rm {own}",
        "job-again": f"{own}-again",
        "run -it": "run -i",
    }.items():
        assert written in script
        script = script.replace(written, typed)
    try:
        done = captured(["bash", "-c", script], cwd=tmp_path, input=IN_PDB, timeout=500)
        made = docker("ps", "-aq", "--filter", f"name={own}") + docker("images", "-q", f"{own}*")
        assert made == ""
    finally:
        docker("rm", "--force", f"{own}-0", f"{own}-1", check=False)
        docker("rmi", f"{own}-again", check=False)
        docker("network", "rm", own, check=False)
        docker("volume", "rm", own, check=False)
    log = (done.stdout + done.stderr).replace(f"({own}-1)", "").replace("  ", " ")
    assert re.search(r"worker-1 ?is lost: its session ended.*; starting again", log)
    assert len(re.findall(r"rank 0 goes on from step [1-9]", log)) >= 2  # and once more at the end
    # The page's own lines, but for what differs from run to run.
    for line in re.findall(r"(?m)^(?:\[entrypoint.*(?:cause|EP600|done): .*|-> loss.*)$", text):
        assert line in log
    assert "(Pdb) [0]" in log
    # README shows lines of this page.
    readme = (
        (TREE / "README.md").read_text(encoding="utf-8").partition("tutorial/own-image.md)):")[2]
    )
    assert set(readme.split("```")[1].splitlines()[1:]) <= set(text.splitlines())
    statuses = [line for line in done.stdout.splitlines() if line in {"0", "1"}]
    assert statuses == ["1", "1", "0", "0"]
