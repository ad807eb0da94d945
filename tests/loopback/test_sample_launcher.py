"""CONTRIBUTING.md's "Add a launcher", done as described: the tests take it, and two nodes run under
it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.cluster import BEGIN, Make
from tests.contributing import Copy, steps


@pytest.mark.promise("a new launcher is one file, one template and one folder of cases")
def test_a_launcher_is_one_file_one_template_and_one_case_folder(
    tmp_path: Path, cluster: Make
) -> None:
    copy, files = Copy(tmp_path, "launchers"), steps("Add a launcher")
    names = ["beacon.py", "beacon.sh.j2", "facts.yaml", "job.yaml", "expect.yaml"]
    assert [path.rpartition("/")[2] for path in files] == names
    copy.write(files)
    copy.lint()
    copy.golden("tests.golden")
    whole = (copy.tree / "tests/rendered/beacon/beacon.sh").read_text()
    assert "export BEACON_AT=node-0 BEACON_NODE=0 BEACON_NODES=2\n" in whole
    case = (copy.tree / "tests/launchers/beacon/two/expect.yaml").read_text()
    assert "run     bash /tmp/entrypoint-1000-36666/beacon.sh python train.py\n" in case
    assert "+export BEACON_AT=node-0 BEACON_NODE=1 BEACON_NODES=2\n" in case
    copy.test("test_golden.test_golden", "launchers", "beacon/two")

    job = cluster(2)
    fails = "{ until [ -s out-0 ]; do sleep 0.05; done; exit 7; }"
    program = (
        f'echo "$BEACON_AT $BEACON_NODE $BEACON_NODES"; [ $BEACON_NODE = 0 ] || {fails}; exec'
        " sleep 600"
    )
    begin = f"import sys; sys.path.insert(0, {str(copy.tree)!r}); {BEGIN}"
    argv = (sys.executable, "-c", begin, "run", "--launcher", "beacon", "--", "sh", "-c", program)
    for rank in range(2):
        job.start(rank, argv=argv)
    assert job.ends() == {0: 7, 1: 7}, job.both()
    assert [job.out(rank) for rank in range(2)] == ["node-0 0 2\n", "node-0 1 2\n"]
