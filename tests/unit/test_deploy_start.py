"""Every file that `entrypoint deploy` renders starts the toolkit by name: an image's own ENTRYPOINT
and CMD never run in its place, and an image without the toolkit cannot end with 0."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from entrypoint.base import registry
from entrypoint.spec import Override, load
from entrypoint.tools.deploy._kinds import KINDS
from tests.manifests import templates

SPEC = "name: demo\nslots: 2\ncommand: [python, train.py]\n"
JOB = "{{kind: Job, spec: {{template: {{spec: {{containers: [{{{}}}]}}}}}}}}"


def of_compose(text: str) -> Iterator[list[str]]:
    for name, service in yaml.safe_load(text)["services"].items():
        if name == "entrypoint-toolkit":  # fills the volume with itself
            continue
        yield [*service["entrypoint"], *service.get("command", [])]


def of_kubernetes(text: str) -> Iterator[list[str]]:
    """A container's `command` replaces the image's ENTRYPOINT; its `args` alone do not."""
    *_, job = yaml.safe_load_all(text)
    trainer = job["spec"].get("trainer")
    pods = templates(job)
    for each in [trainer] if trainer else [pod["spec"]["containers"][0] for pod in pods]:
        yield [*each["command"], *each.get("args", [])]


def of_slurm(text: str) -> Iterator[list[str]]:
    """pyxis runs an image's ENTRYPOINT where the site says so; `apptainer exec` never does."""
    line = text[text.index("setsid srun ") : text.index('\n  echo "$?"')]
    words = shlex.split(line.replace("\\\n", ""))
    if any(word.startswith("--container-image") for word in words):
        assert "--no-container-entrypoint" in words
    yield words[words.index("run") - 1 :]


def of_modelarts(text: str) -> Iterator[list[str]]:
    words = shlex.split(json.loads(text)["algorithm"]["command"])
    yield words if len(words) == 2 else words[2].rpartition(" exec ")[2].split()


STARTS = {
    "compose": of_compose,
    "kubernetes": of_kubernetes,
    "modelarts": of_modelarts,
    "slurm": of_slurm,
}


FORMS: dict[str, list[dict[str, Any]]] = {
    "compose": [{}],
    "kubernetes": [{"kind": kind} for kind in KINDS],
    "slurm": [{"runtime": "pyxis"}, {"runtime": "apptainer"}, {"image": ""}],
    "modelarts": [{"flavor": "one"}],
}
CODE = {"code": "obs://b/code/", "inject": "obs://b/code/toolkit.tar"}
# target -> options that inject the toolkit, and where the program then is
INJECTED: list[tuple[str, dict[str, Any], str]] = [
    ("compose", {"inject": "toolkit:1"}, "/opt/entrypoint"),
    ("kubernetes", {"inject": "toolkit:1"}, "/opt/entrypoint"),
    ("kubernetes", {"inject": "toolkit:1", "inject_as": "image"}, "/opt/entrypoint/opt/entrypoint"),
    ("slurm", {"inject": "/lustre/toolkit"}, "/opt/entrypoint"),
    ("modelarts", CODE, "/tmp/entrypoint-toolkit"),
]


def requests() -> Iterator[tuple[str, dict[str, Any]]]:
    """Every target with options that it needs, and every form that it has."""
    for target in registry.names("deploy"):
        for form in FORMS.get(target, [{}]):
            yield target, form


def rendered(
    target: str, form: dict[str, Any], command: list[str] | None = None, nodes: int = 2
) -> str:
    """Return the file of a target with these options."""
    module = registry.load("deploy", target)
    flags = {"command": Override(command, "--")} if command else {}
    options = {"image": "image", "folder": "/job", "spec_text": SPEC, "nodes": nodes, **form}
    return str(module.render(load(SPEC, "job.yaml", {}, flags), module.Options(**options)))


@pytest.mark.promise("an injected toolkit is what starts, and the image's own start what it runs")
@pytest.mark.parametrize("start", ["", '["/run.sh", "-q"]'])
@pytest.mark.parametrize(
    ("target", "form", "folder"),
    [(target, {**form, **how}, at) for target, how, at in INJECTED for form in FORMS[target]],
    ids=str,
)
def test_an_injected_toolkit_is_started_from_its_folder(
    target: str, form: dict[str, Any], folder: str, start: str
) -> None:
    text = rendered(target, {**form, "start": start})
    starts = list(STARTS[target](text))
    folder = form["inject"] if form.get("image") == "" else folder
    assert [words[:2] for words in starts] == [[f"{folder}/bin/entrypoint", "run"]] * len(starts)
    assert starts
    assert ("ENTRYPOINT_IMAGE_START" in text) == (start != "")
    assert "[entrypoint, health]" not in text
    assert text.count(f"[{folder}/bin/entrypoint, health]") == text.count("Probe:")


@pytest.mark.promise("a rendered file starts the toolkit, whatever the image starts by itself")
@pytest.mark.parametrize("nodes", [1, 3])
@pytest.mark.parametrize("command", [None, ["sh", "-c", "echo $HOME"]])
@pytest.mark.parametrize(("target", "form"), [*requests()], ids=str)
def test_each_target_starts_the_toolkit_by_name(
    target: str, form: dict[str, Any], command: list[str] | None, nodes: int
) -> None:
    starts = list(STARTS[target](rendered(target, form, command, nodes)))
    assert starts
    for words in starts:
        assert words[:2] == ["entrypoint", "run"]
        assert words[2:3] in ([], ["--"])


@pytest.mark.control("a rendered file starts the toolkit, whatever the image starts by itself")
def test_arguments_alone_leave_the_start_to_the_image() -> None:
    (words,) = of_kubernetes(JOB.format("command: [entrypoint], args: [run]"))
    assert words == ["entrypoint", "run"]
    with pytest.raises(KeyError):
        [*of_kubernetes(JOB.format("args: [entrypoint, run]"))]
