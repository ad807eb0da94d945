"""The tutorial with an image of one's own, word for word: each block of shell by one bash, one after
the other. Only the image, and the names of what the engine keeps, are others."""

from __future__ import annotations

import re
import uuid
from pathlib import Path

import pytest

from tests import TREE
from tests.command import captured
from tests.containers import docker, skip_without

PAGE = Path(f"{TREE}/docs/tutorial/own-image.md").read_text(encoding="utf-8")
IMAGE, TOOLKIT = "entrypoint-bake-base:bookworm", "entrypoint-toolkit:dev"


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
    script = "\n".join(re.findall(r"(?ms)^```sh\n(.*?)^```$", PAGE))
    for written, typed in {
        r"(?m)^.*/build-image toolkit.*$": "",
        r"pytorch/pytorch": IMAGE,
        r"-v toolkit:": f"-v {own}:",
        r"worker-": f"{own}-",
        r"(network (create |rm )?)train": rf"\1{own}",
        r"job-again": f"{own}-again",
        r"run -it": "run -i",
    }.items():
        script, count = re.subn(written, typed, script)
        assert count, written
    try:
        typed = "p [samples]\nq\nq\n"
        done = captured(["bash", "-c", script], cwd=tmp_path, input=typed, timeout=500)
    finally:
        left = docker("ps", "-aq", "--filter", f"name={own}") + docker("images", "-q", f"{own}*")
        docker("rm", "--force", f"{own}-0", f"{own}-1", check=False)
        docker("rmi", f"{own}-again", check=False)
        docker("network", "rm", own, check=False)
        docker("volume", "rm", own, check=False)
    assert left == ""
    log = f"{done.stdout}{done.stderr}".replace(f" ({own}-1)", "")
    assert re.search(r"worker-1 is lost: its session ended.*; starting again", log)
    assert len(re.findall(r"rank 0 goes on from step [1-9]", log)) >= 2  # and once more at the end
    # The page's own lines, but for those with times and steps.
    shown = re.findall(r"(?m)^(?:\[entrypoint.*(?:cause|EP600|done): .*|-> loss.*)$", PAGE)
    assert len(shown) > 2
    assert [line for line in (*shown, "(Pdb) [0]") if line not in log] == []
    statuses = [line for line in done.stdout.splitlines() if line in {"0", "1"}]
    assert statuses == ["1", "1", "0", "0"]
    # README shows lines of this page.
    readme = Path(f"{TREE}/README.md").read_text(encoding="utf-8")
    readme = readme.partition("tutorial/own-image.md)):")[2].split("```")[1]
    assert {*readme.splitlines()[1:]} <= {*PAGE.splitlines()}
