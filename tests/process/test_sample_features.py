"""CONTRIBUTING.md's check finding and command, added as described: the command shows them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.contributing import Copy, blocks, section, steps
from tests.security.test_redaction import FLAG, SPEC, environment, leaks

ENTRYPOINT = ("-m", "entrypoint")
CASE = """
from tests.unit import test_check as tests
tests.test_one_node("no overcommit")
"""


def findings(copy: Copy) -> list[dict[str, Any]]:
    """Return what `check` finds about overcommit."""
    done = copy.python(*ENTRYPOINT, "check", "--json", "--", "true")
    return [each for each in json.loads(done.stdout)["findings"] if each["id"] == "overcommit"]


@pytest.mark.promise(
    "a new check finding is a probe, a field and a judgement",
    control="the command before, in the same test",
)
def test_a_finding_is_a_probe_a_field_and_a_judgement(tmp_path: Path) -> None:
    copy = Copy(tmp_path)
    assert findings(copy) == []
    probe, field, row, judgement, case = blocks("Add a check finding")
    package = "entrypoint/check"
    copy.insert(f"{package}/kernel.py", f"{probe}\n\n", before="def memory(")
    copy.insert(f"{package}/observation.py", field, before="    memory_limit: ")
    copy.insert(f"{package}/probe.py", row, before='        "image": ')
    copy.insert(f"{package}/node.py", f"{judgement}\n\n", before="def _disks(")
    copy.insert(f"{package}/node.py", "        _overcommit,\n", before="        _disks,\n")
    copy.insert("tests/unit/test_check.py", case, before='    "all is well": ')
    copy.lint()
    done = copy.python("-c", CASE)
    assert done.returncode == 0, done.stderr
    (finding,) = findings(copy)
    mode = Path("/proc/sys/vm/overcommit_memory").read_text().strip()
    assert (finding["seen"], finding["needed"]) == (f"mode {mode}", "0 or 1")


@pytest.mark.promise(
    "a new command is one module and its name", control="the command before, in the same test"
)
def test_a_command_is_one_module_and_its_name(tmp_path: Path) -> None:
    copy, heading = Copy(tmp_path), "Add a command"
    files, words = steps(heading), ("hosts", "--hosts", "a,b", "--node-rank", "0")
    assert list(files) == ["entrypoint/cli/hosts.py"]
    copy.write(files)
    before = copy.python(*ENTRYPOINT, *words)
    assert (before.returncode, before.stdout) == (64, "")
    copy.insert("entrypoint/cli/__init__.py", '    "hosts",\n', before='    "check",\n')
    copy.lint()
    assert re.search(
        r"^    hosts +print the job's hosts", copy.python(*ENTRYPOINT, "--help").stdout, re.M
    )
    *_, shown = blocks(heading)
    exec(shown, {"entrypoint": lambda cwd, *argv: copy.python(*ENTRYPOINT, *argv), "cwd": tmp_path})

    (row,) = re.findall(r'`("hosts": \(.*\))`', section(heading))
    status, argv = eval(f"{{{row}}}", {"FLAG": FLAG})["hosts"]
    (copy.tree / "job.yaml").write_text(SPEC)
    done = copy.python(*ENTRYPOINT, *argv, **environment())
    assert (done.returncode, done.stdout) == (status, "node-0\nnode-1\n"), done.stderr
    assert leaks(done.stdout, done.stderr) == []
