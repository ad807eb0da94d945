"""The command deploy as a whole: what it writes, and what it says when it refuses."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from entrypoint import cli, registry
from entrypoint import spec as specs
from tests.cluster import clean_environment

# A flag -> a value that it takes. A new flag of the spec has to be added here, or this fails.
FLAGS = {
    "--name": "other", "--launcher": "torchrun", "--workdir": "/data", "--platform": "local", "--device": "cpu",
    "--hosts": "x,y", "--node-rank": "1", "--slots": "3", "--secret-file": "key/secret", "--restarts": "2",
    "--run-dir": "/run/job", "--log-dir": "/logs", "--ssh-port": "2222", "--timeout": "77", "--env": "A=b $c",
    "--network-interface": "ib",
}  # fmt: skip


def variables(part: Any) -> Iterator[dict[str, str]]:
    """Of every container in a rendered file's values, as the system that reads the file hands them over."""
    if not isinstance(part, (dict, list)):
        return
    for key, value in part.items() if isinstance(part, dict) else enumerate(part):
        if key in ("env", "environment"):
            env = value if isinstance(value, dict) else {each["name"]: each.get("value", "") for each in value}
            yield {name: text.replace("$$", "$") for name, text in env.items()}
        else:
            yield from variables(value)


@pytest.mark.parametrize("target", registry.names("deploy"))
@pytest.mark.parametrize("flag", ["--env", *(field.flags[-1] for field in specs.fields() if field.flags)])
def test_every_flag_reaches_the_containers_or_is_refused_by_name(
    flag: str, target: str, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in set(os.environ) - set(clean_environment()):
        monkeypatch.delenv(name)
    spec = tmp_path / "job.yaml"
    spec.write_text("hosts: [a, b]\ncommand: [prog]\n")
    words = ["deploy", target, "--spec", str(spec), "--image", "image", flag, FLAGS[flag]]
    status, said = cli.main(words), capfd.readouterr()
    if flag == "--node-rank" or (flag, target) == ("--secret-file", "kubernetes"):
        assert (status, said.out) == (64, "")
        assert flag in said.err
        return
    assert status == 0, said.err
    if (flag, target) == ("--secret-file", "compose"):
        assert yaml.safe_load(said.out)["secrets"]["entrypoint"]["file"] == "${ENTRYPOINT_SECRET_FILE:-./key/secret}"
        return
    (field,) = (each for each in specs.fields() if flag in each.flags or (flag, each.path) == ("--env", "env"))
    expected = {"--env": '{"A": "b $c"}'}.get(flag, FLAGS[flag])
    if (flag, target) == ("--hosts", "kubernetes"):
        expected = "job-0.job,job-1.job"  # Pods have names of their own: the flag says how many there are
    containers = list(variables(list(yaml.safe_load_all(said.out))))
    assert containers
    for env in containers:
        given = env[field.env]
        if field.kind == "list" and given.startswith("["):
            given = ",".join(json.loads(given))  # the other way to write a list
        assert (float(given) == float(expected)) if field.kind in ("number", "integer") else (given == expected)


@pytest.mark.parametrize(
    ("nodes", "message"),
    [("2", ""), ("3", "3, 2 hosts in the spec"), ("many", "many, 2 hosts"), ("0", "0, 2 hosts")],
)
def test_the_number_of_nodes(
    nodes: str, message: str, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in set(os.environ) - set(clean_environment()):
        monkeypatch.delenv(name)
    spec = tmp_path / "job.yaml"
    spec.write_text("hosts: [a, b]\ncommand: [prog]\n")
    status = cli.main(["deploy", "kubernetes", "--spec", str(spec), "--image", "image", "--nodes", nodes])
    said = capfd.readouterr()
    assert status == (64 if message else 0)
    assert message in said.err
    assert ("completions: 2" in said.out) == (not message)
