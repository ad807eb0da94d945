"""What `entrypoint deploy` renders, as tests/deploy has it, by the schemas of the systems that read
it."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterator, Mapping
from importlib.metadata import version as installed
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests import apis
from tests.golden_deploy import cases, made

KUBERNETES = f"Kubernetes {apis.VERSIONS[0]} to {apis.VERSIONS[-1]}"
NEWEST = apis.VERSIONS[-1]
OLDEST = (  # that docs/how-to/kubernetes.md names: the first where a Job's failure policy is stable
    "1.31"
)
MODELARTS = f"huaweicloudsdkmodelarts {installed('huaweicloudsdkmodelarts')}"

# Mappings whose names are the user's, not the API's.
FREE = {
    "annotations", "data", "environments", "labels", "limits", "matchLabels", "nodeSelector", "plugins", "requests",
    "selector",
}  # fmt: skip
# Fields that take a few words.
CHOICES = {
    "action", "cleanPodPolicy", "completionMode", "event", "events", "launcherCreationPolicy", "mpiImplementation",
    "operator", "policyTypes", "protocol", "restartPolicy", "restartStrategy", "terminationMessagePolicy",
}  # fmt: skip


def of(target: str) -> list[Path]:
    """The cases of a target."""
    return [case for case in cases() if case.parent.name == target]


def objects(case: Path) -> list[dict[str, Any]]:
    """The manifests of a case."""
    return list(yaml.safe_load_all(made(case)))


def kind(manifest: Mapping[str, Any]) -> str:
    """An object's kind; Volcano's has the same name as Kubernetes' own."""
    return (
        f"Volcano's {manifest['kind']}"
        if "volcano" in manifest["apiVersion"]
        else str(manifest["kind"])
    )


def schemas(*manifests: Mapping[str, Any], first: str = KUBERNETES) -> str:
    """What these objects are checked against."""
    return ", ".join(
        [first, *sorted({found for each in manifests if (found := apis.source(each))})]
    )


def by_case() -> Iterator[Any]:
    """Each case of Kubernetes', with its line of the table."""
    for case in of("kubernetes"):
        made = objects(case)
        line = pytest.mark.deployed(
            "kubernetes", f"{case.name}: {', '.join(kind(each) for each in made)}", schemas(*made)
        )
        yield pytest.param(case, id=case.name, marks=line)


def by_kind() -> Iterator[Any]:
    """The largest object of each kind, with its line of the table."""
    largest: dict[str, dict[str, Any]] = {}
    for case in of("kubernetes"):
        for each in objects(case):
            largest[kind(each)] = max(
                each, largest.get(kind(each), each), key=lambda one: len(json.dumps(one))
            )
    for name, each in sorted(largest.items()):
        by = schemas(each, first=f"refused by Kubernetes {NEWEST}")
        line = pytest.mark.deployed("kubernetes", f"{name} with a mistake anywhere", by)
        yield pytest.param(each, id=name, marks=line)


def places(
    value: Any, path: tuple[str | int, ...] = ()
) -> Iterator[tuple[tuple[str | int, ...], Any]]:
    """Every value in this one, with where it is."""
    yield path, value
    for key, each in (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    ):
        yield from places(each, (*path, key))


def spoilt(manifest: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The same with one mistake each, and what it is: unknown fields, wrong types, words that there
    are not."""
    for path, value in places(manifest):
        changes: list[Any] = []
        if isinstance(value, dict):
            changes += [] if path and path[-1] in FREE else [{**value, "unknwon": "field"}]
        elif path not in (("apiVersion",), ("kind",)):  # they choose the schema
            changes.append("a text" if isinstance(value, list) else ["a list"])
        if isinstance(value, str) and CHOICES & {*path[-2:]}:
            changes.append("Nonsense")
        for change in changes:
            yield f"{'.'.join(map(str, path))}: {change}", changed(manifest, path, change)


def changed(manifest: dict[str, Any], path: tuple[str | int, ...], value: Any) -> dict[str, Any]:
    """A copy with another value there."""
    if not path:
        return dict(value)
    made: Any = copy.deepcopy(manifest)
    part = made
    for key in path[:-1]:
        part = part[key]
    part[path[-1]] = value
    return dict(made)


@pytest.mark.promise("a deployed file is valid by its reader's own schema")
@pytest.mark.parametrize("version", apis.VERSIONS)
@pytest.mark.parametrize("case", [*by_case()])
def test_the_api_server_takes_it(case: Path, version: str) -> None:
    for each in objects(case):
        assert apis.mistakes(each, version) == [], kind(each)


@pytest.mark.deployed("kubernetes", "every object that is Kubernetes' own", f"Kubernetes {OLDEST}")
def test_the_oldest_server_that_we_name_takes_what_is_its_own() -> None:
    own = [each for case in of("kubernetes") for each in objects(case) if not apis.source(each)]
    assert {"ConfigMap", "Job", "Service"} <= {each["kind"] for each in own}
    assert [wrong for each in own for wrong in apis.mistakes(each, OLDEST)] == []


@pytest.mark.control("a deployed file is valid by its reader's own schema")
@pytest.mark.parametrize("manifest", [*by_kind()])
def test_a_mistake_in_an_object_is_refused(manifest: dict[str, Any]) -> None:
    """The control: an object that is taken is refused with any mistake in it."""
    assert apis.mistakes(manifest, NEWEST) == []
    assert [what for what, wrong in spoilt(manifest) if not apis.mistakes(wrong, NEWEST)] == []


@pytest.mark.promise("a deployed file is valid by its reader's own schema")
@pytest.mark.deployed("modelarts", "{case.name}", f"{MODELARTS}: CreateTrainingJob")
@pytest.mark.parametrize("case", of("modelarts"), ids=lambda case: case.name)
def test_the_api_takes_the_training_job(case: Path) -> None:
    assert apis.mistakes_of_training_job(json.loads(made(case))) == []


@pytest.mark.control("a deployed file is valid by its reader's own schema")
@pytest.mark.deployed("modelarts", "a body with a mistake anywhere", f"refused by {MODELARTS}")
def test_a_mistake_in_a_training_job_is_refused() -> None:
    """The control."""
    for case in of("modelarts"):
        body = json.loads(made(case))
        assert [
            what for what, wrong in spoilt(body) if not apis.mistakes_of_training_job(wrong)
        ] == []
    for left in ("kind", "metadata"):
        assert apis.mistakes_of_training_job(
            {name: value for name, value in body.items() if name != left}
        )
    assert apis.mistakes_of_training_job({**body, "metadata": {"name": "a name"}})


# sbatch's options -> what may follow: slurm.schedmd.com, "sbatch".
_COUNT = r"[1-9]\d*"
SBATCH = {
    "job-name": r"[\w.-]+", "nodes": _COUNT, "ntasks-per-node": "1", "cpus-per-task": _COUNT, "exclusive": "",
    "mem": rf"0|{_COUNT}[KMGT]?", "gres": rf"[a-z][\w.-]*(:[\w.-]+)?:{_COUNT}(,[a-z][\w.-]*(:[\w.-]+)?:{_COUNT})*",
    "time": r"\d+(:\d\d){0,2}|\d+-\d+(:\d\d){0,2}", "signal": r"(B:)?[A-Z]+[0-9]?@\d{1,5}", "requeue": "",
    "no-kill": "", "open-mode": "append|truncate",
}  # fmt: skip


def odd_directives(script: str) -> list[str]:
    """Directives that sbatch would refuse, or not see."""
    head, _, rest = script.partition("\nset -u\n")
    lines = [line for line in head.splitlines() if "SBATCH" in line]
    odd = [line for line in lines if not re.fullmatch(r"#SBATCH --[a-z-]+(=\S+)?", line)]
    for line in set(lines) - set(odd):
        name, equals, value = line.removeprefix("#SBATCH --").partition("=")
        if (
            name not in SBATCH
            or not re.fullmatch(SBATCH[name], value)
            or bool(equals) == (SBATCH[name] == "")
        ):
            odd.append(line)
    names = [line.partition("=")[0] for line in lines]
    return sorted(
        [*odd, *{name for name in names if names.count(name) > 1}, *re.findall("#SBATCH.*", rest)]
    )


@pytest.mark.promise("a deployed file is valid by its reader's own schema")
@pytest.mark.deployed("slurm", "{case.name}", "directives as sbatch's manual has them")
@pytest.mark.parametrize("case", of("slurm"), ids=lambda case: case.name)
def test_sbatch_takes_the_directives(case: Path) -> None:
    script = made(case)
    assert script.startswith("#!/bin/bash\n")
    assert "\n#SBATCH --nodes=" in script
    assert odd_directives(script) == []


@pytest.mark.control("a deployed file is valid by its reader's own schema")
@pytest.mark.parametrize(
    "line",
    ["#SBATCH --node=2", "#SBATCH --nodes=two", "#SBATCH --nodes", "#SBATCH --nodes = 2", "#SBATCH --exclusive=",
     "#SBATCH --time=soon", "#SBATCH --signal=TERM", "# SBATCH --nodes=2", "#SBATCH nodes=2", "#SBATCH --gres=gpu"],
)  # fmt: skip
def test_an_odd_directive_is_named(line: str) -> None:
    """The control."""
    assert odd_directives(f"#!/bin/bash\n{line}\nset -u\nsrun true\n") == [line]


def test_a_directive_after_the_first_command_is_named() -> None:
    """The control: sbatch would not see it."""
    assert odd_directives("#!/bin/bash\nset -u\n#SBATCH --nodes=2\n") == ["#SBATCH --nodes=2"]
    assert odd_directives("#SBATCH --nodes=2\n#SBATCH --nodes=3\nset -u\n") == ["#SBATCH --nodes"]
