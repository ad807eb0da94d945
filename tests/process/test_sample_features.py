"""CONTRIBUTING.md's command, added as described: the program has it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.contributing import Copy, blocks, section, steps
from tests.security.test_redaction import FLAG, SPEC, environment, leaks

ENTRYPOINT = ("-m", "entrypoint")


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
