"""What a contributor finds at the usual places does what our own scripts do."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml

from tests.contributing import steps

pytestmark = pytest.mark.textual

TREE = Path(__file__).parents[2]
MAKEFILE = (TREE / "Makefile").read_text()


def test_a_commit_is_held_to_what_make_lint_runs() -> None:
    config = yaml.safe_load((TREE / ".pre-commit-config.yaml").read_text())
    hooks = [hook for repo in config["repos"] for hook in repo["hooks"]]
    ((command,),) = [re.findall(r"(?m)^lint:.*\n\t@(.*)$", MAKEFILE)]
    assert [hook["entry"] for hook in hooks] == [command]
    # on every commit, of the whole tree, as the target
    assert hooks[0]["always_run"] is True
    assert hooks[0]["pass_filenames"] is False


def test_the_development_container_makes_our_environment() -> None:
    config = json.loads((TREE / ".devcontainer/devcontainer.json").read_text())
    assert config["postCreateCommand"].split()[0] == "scripts/dev/venv"
    assert config["postCreateCommand"] in MAKEFILE, "with what `make lint` and the tests use"
    for source in config["mounts"]:
        assert "type=volume" in source


@pytest.mark.parametrize("name", ["bug", "feature"])
def test_an_issue_template_has_a_name_and_says_what_it_is_for(name: str) -> None:
    text = (TREE / f".github/ISSUE_TEMPLATE/{name}.md").read_text()
    head = yaml.safe_load(text.split("---")[1])
    assert {*head} == {"name", "about"}


def test_the_pull_request_template_names_targets_and_files_that_are_there() -> None:
    text = (TREE / ".github/PULL_REQUEST_TEMPLATE.md").read_text()
    for target in re.findall(r"`make ([\w-]+)`", text):
        assert re.search(rf"(?m)^{target}:", MAKEFILE), target
    for path in re.findall(r"\b[\w/]+\.(?:py|md)\b", text):
        assert (TREE / path).exists(), path


def missing(text: str) -> list[str]:
    """Return the files that a page for contributors names by their path and that are not there,
    nor written by one of its steps."""
    written = {path for heading in re.findall(r"(?m)^## (.+)$", text) for path in steps(heading)}
    named = {
        *re.findall(r"`((?:entrypoint|scripts|tests|docs|templates)/[\w./-]+\.\w+)`", text),
        *re.findall(r"\]\((?!http)([\w./-]+)", text),
    }
    return sorted(path for path in named - written if not (TREE / path).exists())


def test_contributing_names_no_file_that_is_gone() -> None:
    text = (TREE / "CONTRIBUTING.md").read_text()
    assert missing(text) == []
    assert missing(f"{text}\nSee `entrypoint/gone.py`.") == ["entrypoint/gone.py"], "the control"
