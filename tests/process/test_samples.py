"""The sample platform and command of docs/extending/, added as described: tests and command take
them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.extending import Copy, blocks, recipe, steps
from tests.security.planted import FLAG, SPEC, environment, leaks

ENTRYPOINT = ("-m", "entrypoint")


@pytest.mark.promise(
    "a new platform is one file and one folder of cases",
    control="the command before, in the same test",
)
def test_a_platform_is_one_file_and_one_folder_of_cases(tmp_path: Path) -> None:
    copy, files = Copy(tmp_path, "platforms"), steps("platform")
    words = (*ENTRYPOINT, "plan", "--launcher", "plain")
    before = copy.python(*words, "--platform", "acme", "--", "true")
    assert (before.returncode, before.stdout) == (65, "")
    assert 'EP100 there is no such platform | "acme" | use one of ' in before.stderr
    _, *cases = files
    assert [Path(path).name for path in files] == ["acme.py", "facts.yaml", "expect.yaml"]
    (folder,) = {Path(path).parent.as_posix() for path in cases}
    copy.write(files)
    copy.lint()
    copy.test("test_platforms.test_case", "platforms", folder.removeprefix("tests/platforms/"))
    assert '"acme"' in copy.python(*ENTRYPOINT, "schema").stdout
    told = {"ACME_TASK": "1", "ACME_NODES": "red blue", "ENTRYPOINT_ROLL_CALL": "none"}
    done = copy.python(*words, "--", "true", **told)
    assert done.returncode == 0, done.stderr
    assert "job job: 2 nodes, 2 ranks, launcher plain, platform acme," in done.stdout
    assert "this node: worker-1 (blue)" in done.stdout
    assert "  hosts: red blue  # platform ACME_NODES\n" in done.stdout


@pytest.mark.promise(
    "a new command is one module and its name", control="the command before, in the same test"
)
def test_a_command_is_one_module_and_its_name(tmp_path: Path) -> None:
    copy = Copy(tmp_path)
    files, words = steps("command"), ("hosts", "--hosts", "a,b", "--node-rank", "0")
    assert list(files) == ["entrypoint/cli/hosts.py"]
    copy.write(files)
    before = copy.python(*ENTRYPOINT, *words)
    assert (before.returncode, before.stdout) == (64, "")
    names = copy.tree / "entrypoint/cli/parser.py"
    copy.write({"entrypoint/cli/parser.py": names.read_text().replace(" check ", " hosts check ")})
    copy.lint()
    shown = copy.python(*ENTRYPOINT, "--help").stdout
    assert re.search(r"^    hosts +print the job's hosts", shown, re.M)
    *_, shown = blocks("command")
    exec(shown, {"entrypoint": lambda cwd, *argv: copy.python(*ENTRYPOINT, *argv), "cwd": tmp_path})

    (row,) = re.findall(r'`("hosts": \(.*\))`', recipe("command"))
    status, argv = eval(f"{{{row}}}", {"FLAG": FLAG})["hosts"]
    (copy.tree / "job.yaml").write_text(SPEC)
    done = copy.python(*ENTRYPOINT, *argv, **environment())
    assert (done.returncode, done.stdout) == (status, "node-0\nnode-1\n"), done.stderr
    assert leaks(done.stdout, done.stderr) == []
