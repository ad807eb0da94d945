"""The command deploy as a whole: what it writes, what it says when it refuses, and what must be in
no file."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path
from shlex import split
from typing import Any

import pytest
import yaml

from entrypoint import cli
from entrypoint import spec as specs
from entrypoint.base import registry
from entrypoint.cli.deploy import OPTIONS
from entrypoint.tools.deploy._kinds import KINDS
from tests import slurm, table
from tests.cluster import clean_environment

# A flag -> a value that it takes. A new flag of the spec has to be added here, or this fails.
FLAGS = {
    "--name": "other", "--launcher": "torchrun", "--workdir": "/data", "--platform": "local", "--device": "cpu",
    "--hosts": "x,y", "--node-rank": "1", "--slots": "3", "--secret-file": "key/secret", "--restarts": "2",
    "--run-dir": "/run/job", "--log-dir": "/logs", "--ssh-port": "2222", "--timeout": "77", "--env": "A=b $c",
    "--network-interface": "ib", "--log-format": "json", "--log-prefix": "[{node} {rank}] ", "--log-timestamps": "utc", "--log-level": "warning",
    "--log-files": "ranks", "--log-show": "0,8-15", "--log-collapse": "yes", "--log-max-size": "99999", "--log-max-files": "3",
    "--spares": "1",
}  # fmt: skip
TARGETS = registry.names("deploy")
# What a target needs beside a spec and an image, and which flags it refuses by name.
NEEDS = {"slurm": ["--runtime", "apptainer"], "modelarts": ["--flavor", "large"]}
REFUSED = {("--secret-file", "kubernetes"), ("--hosts", "slurm"), ("--hosts", "modelarts")}
TWO = "hosts: [a, b]\ncommand: [prog]\n"

Deploy = Callable[..., tuple[int, str, str]]


@pytest.fixture
def deploy(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Deploy:
    """Run the command in a folder of its own, without what a platform or a developer has set:
    status, stdout, stderr."""
    for name in set(os.environ) - set(clean_environment()):
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    for secret in map(Path, ("secret", "key/secret")):
        secret.parent.mkdir(exist_ok=True)
        secret.write_text("0" * 64)

    def run(target: str, *words: str, spec: str = TWO) -> tuple[int, str, str]:
        Path("job.yaml").write_text(spec)
        needs = ["--image", "i", *NEEDS.get(target, [])]
        status = cli.main(["deploy", target, "--spec", "job.yaml", *needs, *words])
        return status, *capfd.readouterr()

    return run


def variables(part: Any) -> Iterator[dict[str, str]]:
    """Of every container in a rendered file's values, as the system that reads the file hands them
    over."""
    if not isinstance(part, (dict, list)):
        return
    for key, value in part.items() if isinstance(part, dict) else enumerate(part):
        if key in ("env", "environment", "environments"):
            env = (
                value
                if isinstance(value, dict)
                else {each["name"]: each.get("value", "") for each in value}
            )
            yield {name: text.replace("$$", "$") for name, text in env.items()}
        else:
            yield from variables(value)


def containers(text: str, target: str) -> list[dict[str, str]]:
    """Variables of every container that a deployed file makes, as its reader hands them over."""
    if target != "slurm":
        return list(variables(list(yaml.safe_load_all(text))))
    return [slurm.told(text)[1]]


@pytest.mark.promise("what a deploy target cannot express is refused by name")
@pytest.mark.deployed(
    "{target}", "every flag of the job", "what containers get, or an error (64) that names it"
)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    "flag", ["--env", *(field.flags[-1] for field in specs.fields() if field.flags)]
)
def test_every_flag_reaches_the_containers_or_is_refused_by_name(
    flag: str, target: str, deploy: Deploy
) -> None:
    assert flag in FLAGS, f"give {flag} a value in FLAGS of this file"
    status, out, err = deploy(target, flag, FLAGS[flag])
    if flag == "--node-rank" or (flag, target) in REFUSED:
        assert (status, out) == (64, "")
        assert flag in err
        return
    assert status == 0, err
    secret = f"{Path.cwd()}/key/secret"
    if (flag, target) == ("--secret-file", "compose"):
        file = yaml.safe_load(out)["secrets"]["entrypoint"]["file"]
        assert file == f"${{ENTRYPOINT_SECRET_FILE:-{secret}}}"
        return
    (field,) = (
        each
        for each in specs.fields()
        if flag in each.flags or (flag, each.path) == ("--env", "env")
    )
    expected = {
        # Pods have names of their own: the flag says how many there are
        ("--hosts", "kubernetes"): "job-0.job,job-1.job",
        ("--secret-file", "slurm"): secret,
        ("--env", target): '{"A": "b $c"}',
    }.get((flag, target), FLAGS[flag])
    found = containers(out, target)
    assert found
    for env in found:
        given = env[field.env]
        if field.kind == "list" and given.startswith("["):
            given = ",".join(json.loads(given))  # the other way to write a list
        assert (
            (float(given) == float(expected))
            if field.kind in ("number", "integer")
            else (given == expected)
        )


@pytest.mark.deployed("kubernetes", "--kind {kind}: every flag of the job", "what the Pods get")
@pytest.mark.parametrize("kind", KINDS)
def test_every_flag_reaches_the_pods_of_every_kind(kind: str, deploy: Deploy) -> None:
    """Together; the test above has each by itself."""
    refused = ("--hosts", "--node-rank", "--secret-file")
    given = {flag: value for flag, value in FLAGS.items() if flag not in refused}
    words = [word for flag, value in given.items() for word in (flag, value)]
    _, out, _ = deploy("kubernetes", "--kind", kind, *words)
    pods = [env for env in containers(out, "kubernetes") if "ENTRYPOINT_SPEC" in env]
    assert len(pods) == (2 if kind == "mpijob" else 1)
    names = {"--env": "ENTRYPOINT_ENV"}
    names |= {field.flags[-1]: field.env for field in specs.fields() if field.flags}
    for env in pods:
        for flag, value in given.items():
            expected = '{"A": "b $c"}' if flag == "--env" else value
            assert env[names[flag]].removesuffix(".0") == expected, flag


# A flag of deploy's own -> a value, and the targets that can express it. A new one has to be added
# here.
OWN = {
    "image": ("i", {*TARGETS}),
    "nodes": ("2", {*TARGETS}),
    "resource": ("nvidia.com/gpu=1", {"compose", "kubernetes", "slurm"}),
    "runtime": ("pyxis", {"slurm"}),
    "time": ("60", {"slurm"}),
    "flavor": ("large", {"modelarts"}),
    "pool": ("pool-1", {"modelarts"}),
    "code": ("obs://bucket/code", {"modelarts"}),
    "logs": ("obs://bucket/logs", {"modelarts"}),
    "kind": ("jobset", {"kubernetes"}),
    "mount": ("{mount}:/out", {*TARGETS}),
    "inject": ("{toolkit}", {*TARGETS}),
    "inject-as": ("image --inject=toolkit:1", {"kubernetes"}),
    "start": ('["/run.sh"]', {*TARGETS}),
}
# What a target mounts.
MOUNTS = {
    "compose": "./out",
    "kubernetes": "out",
    "modelarts": "obs://bucket/out",
    "slurm": "./out",
}
TOOLKITS = {
    "compose": "registry.example:5000/tools/toolkit:1.0",
    "kubernetes": f"toolkit:1@sha256:{'0' * 64}",
    "modelarts": "obs://bucket/code/toolkit.tar --code=obs://bucket/code",
    "slurm": "./toolkit",
}


@pytest.mark.promise(
    "what a deploy target cannot express is refused by name",
    control="the targets that take it, in the same tests",
)
@pytest.mark.deployed(
    "{target}", "every flag of deploy", "taken, or an error (64) that names it and the target"
)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", OPTIONS)
def test_what_a_target_cannot_express_is_refused_by_name(
    name: str, target: str, deploy: Deploy
) -> None:
    value, takes = OWN[name]
    value = value.format(mount=MOUNTS[target], toolkit=TOOLKITS[target])
    status, out, err = deploy(target, f"--{name}", *value.split())
    if target in takes:
        assert status == 0, err
        return
    assert (status, out) == (64, "")
    said = f"EP803 the target {target} does not support this | --{name} | leave it out; {target} takes --image"
    assert said in err


# target, spec, words -> exit status, and what the error must name: who lacks something, and the
# flag or the field. tests/unit/test_deploy.py has what else the targets other than compose refuse.
@pytest.mark.promise("what a deploy target cannot express is refused by name")
@pytest.mark.deployed(
    "{target}", "a resource or field that it lacks", "an error that names it, and who lacks it"
)
@pytest.mark.parametrize(
    ("target", "spec", "words", "status", "named"), table("tests/tables/deploy_lacks.yaml")["lacks"]
)
def test_what_a_target_lacks_is_named(
    target: str, spec: str, words: str, status: int, named: list[str], deploy: Deploy
) -> None:
    ended, out, err = deploy(target, *split(words), spec=spec)
    assert (ended, out) == (status, "")
    assert [word for word in named if word not in err] == [], err


@pytest.mark.parametrize(
    ("target", "hosts", "nodes", "shown"),
    [
        ("kubernetes", "[a, b]", "2", "completions: 2"),
        ("kubernetes", "[a, b]", "4", "completions: 4"),
        ("kubernetes", "['a:2', 'b:2']", "3", "job-2.job:2"),
        ("slurm", "[a, b]", "4", "#SBATCH --nodes=4"),
        ("modelarts", "[a, b]", "4", '"node_count": 4'),
    ],
    ids=["the same", "kubernetes", "with the slots of the hosts", "slurm", "modelarts"],
)
def test_the_number_of_nodes_wins(
    target: str, hosts: str, nodes: str, shown: str, deploy: Deploy
) -> None:
    status, out, err = deploy(target, "--nodes", nodes, spec=f"hosts: {hosts}\ncommand: [prog]\n")
    assert (status, shown in out) == (0, True), err


@pytest.mark.parametrize("target", ["compose", "kubernetes", "modelarts"])
def test_who_needs_an_image_says_so(target: str, deploy: Deploy) -> None:
    status, _, err = deploy(target, "--image", "")
    assert (status, f"EP805 the target {target} needs an image | no --image" in err) == (64, True)


def test_modelarts_names_boot_command_and_missing_secret_beside_the_body(deploy: Deploy) -> None:
    status, out, err = deploy("modelarts")
    assert (status, json.loads(out)["algorithm"]["command"]) == (0, "entrypoint run")
    assert "boot command | entrypoint run | " in err
    said = "EP128 the body has no secret | several nodes | add the variable ENTRYPOINT_SECRET to the job"
    assert said in err


def test_a_mounted_folder_is_that_of_the_current_folder(deploy: Deploy) -> None:
    for target in ("compose", "slurm"):
        _, out, _ = deploy(target, "--mount", "./out:/out/:ro", "--mount", "/a/../data:/data")
        assert f"{Path.cwd()}/out:/out:ro" in out
        assert "/data:/data" in out
        assert "/a/" not in out


# Every target, and every kind of the one that has several.
FORMS = [
    *(pytest.param(target, (), id=target) for target in TARGETS),
    *(pytest.param("kubernetes", ("--kind", kind), id=kind) for kind in KINDS),
]


@pytest.mark.promise(
    "no deployed file has a secret of the job or of the program",
    control="what is no secret, in the same test",
)
@pytest.mark.deployed("{target}", "no secret in any file", "planted ones are left out, and named")
@pytest.mark.parametrize(("target", "form"), FORMS)
def test_no_file_has_a_secret(
    target: str, form: tuple[str, ...], deploy: Deploy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A secret of the job or of the program is left out, and named; what is no secret is there."""
    planted = [secrets.token_hex(32) for _ in range(4)]
    monkeypatch.setenv("ENTRYPOINT_SECRET", planted[0])
    monkeypatch.setenv("ENTRYPOINT_ENV", json.dumps({"OTHER_TOKEN": planted[1]}))
    Path("secret").write_text(planted[2])
    words = ("--env", f"S3_SECRET_KEY={planted[3]}", "--env", "VISIBLE=yes")
    status, out, err = deploy(target, *form, *words, spec=f"slots: 2\n{TWO}" if form else TWO)
    assert status == 0, err
    assert [secret for secret in planted if secret in out + err] == []
    assert "VISIBLE" in out
    assert "S3_SECRET_KEY" in err


@pytest.mark.promise(
    "no rendered file has a secret in it that the spec has", control="a path, in the same test"
)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("value", "is_refused"), [("4f3a9c0177e2" * 5, True), ("keys/job", False)])
def test_a_secret_in_place_of_its_file_is_not_rendered(
    target: str, value: str, is_refused: bool, deploy: Deploy
) -> None:
    status, out, err = deploy(target, spec=f"{TWO}secret_file: {value}\n")
    said = "EP802 secret_file holds a secret" in err
    assert (status, said) == ((78, True) if is_refused else (0, False)), err
    assert not is_refused or value not in out + err
