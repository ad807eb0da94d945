"""CONTRIBUTING.md's platform, added as described: tests and command take it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.contributing import Copy, steps

ENTRYPOINT = ("-m", "entrypoint")
# The command in a container that was given cards, which a test cannot make: /dev is not its own.


def add(copy: Copy, kind: str, heading: str, names: list[str], test: str) -> None:
    """Do what the section says: its adapter keeps the rules, and its case is collected and
    holds."""
    files = steps(heading)
    assert [path.rpartition("/")[2] for path in files] == names
    _, *cases = files
    (folder,) = {path.rpartition("/")[0] for path in cases}
    copy.write(files)
    copy.lint()
    copy.test(test, kind, folder.removeprefix(f"tests/{kind}/"))


@pytest.mark.promise(
    "a new platform is one file and one folder of cases",
    control="the command before, in the same test",
)
def test_a_platform_is_one_file_and_one_folder_of_cases(tmp_path: Path) -> None:
    copy = Copy(tmp_path, "platforms")
    words = (*ENTRYPOINT, "plan", "--launcher", "plain")
    before = copy.python(*words, "--platform", "acme", "--", "true")
    assert (before.returncode, before.stdout) == (65, "")
    assert 'EP100 there is no such platform | "acme" | use one of ' in before.stderr
    names = ["acme.py", "facts.yaml", "expect.yaml"]
    add(copy, "platforms", "Add a platform", names, "test_platforms.test_case")
    assert '"acme"' in copy.python(*ENTRYPOINT, "schema").stdout
    assert ": acme, " in copy.python(*words, "--help", COLUMNS="500").stdout
    done = copy.python(
        *words, "--", "true", ACME_TASK="1", ACME_NODES="red blue", ENTRYPOINT_ROLL_CALL="none"
    )
    assert done.returncode == 0, done.stderr
    assert "job job: 2 nodes, 2 ranks, launcher plain, platform acme," in done.stdout
    assert "this node: worker-1 (blue)" in done.stdout
    assert "  hosts: red blue  # platform ACME_NODES\n" in done.stdout
