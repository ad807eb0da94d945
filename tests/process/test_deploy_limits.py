"""What no target can express, and what must be in no file: the command `deploy` as a whole, by
table."""

from __future__ import annotations

import json
import os
import secrets
from pathlib import Path

import pytest
import yaml

from entrypoint import cli, registry
from entrypoint import spec as specs
from entrypoint.deploy._kinds import KINDS
from tests.cluster import clean_environment
from tests.process.test_deploy import FLAGS, variables

# What a target needs beside an image.
NEEDS = {"modelarts": ["--flavor", "large"]}
TWO = "hosts: [a, b]\ncommand: [prog]\n"
UNEQUAL = "hosts: [a:1, b:2]\ncommand: [prog]\n"


@pytest.fixture(autouse=True)
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No variable that a platform or a developer has set, and a folder of its own."""
    for name in set(os.environ) - set(clean_environment()):
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    Path("secret").write_text("0" * 64)


def deploy(target: str, spec: str, *words: str) -> int:
    """The exit status of the command."""
    Path("job.yaml").write_text(spec)
    image = [] if target == "slurm" and "--runtime" not in words else ["--image", "i"]
    return cli.main(
        ["deploy", target, "--spec", "job.yaml", *image, *NEEDS.get(target, []), *words]
    )


# target, spec, words -> exit status, and what the error must name: who lacks something, and the
# flag or the field.
@pytest.mark.promise("what a deploy target cannot express is refused by name")
@pytest.mark.deployed(
    "{target}", "a resource or field that it lacks", "an error that names it, and who lacks it"
)
@pytest.mark.parametrize(
    ("target", "spec", "words", "status", "named"),
    [
        ("compose", TWO, ["--resource", "cpu=4"], 64, ["compose", "cpu"]),
        (
            "compose",
            TWO,
            ["--resource", "nvidia.com/gpu=1.5"],
            64,
            ["1.5", "--resource nvidia.com/gpu="],
        ),
        ("compose", TWO, ["--node-rank", "1"], 64, ["every container", "--node-rank 1"]),
        ("compose", f"device: ascend\n{TWO}", [], 78, ["number of cards", "device: ascend"]),
        ("kubernetes", f"device: nvidia\n{UNEQUAL}", [], 78, ["all Pods", "slots 1, 2"]),
        (
            "kubernetes",
            f"env: {{S3_SECRET_KEY: planted}}\n{TWO}",
            [],
            78,
            ["ConfigMap", "S3_SECRET_KEY"],
        ),
        ("kubernetes", f"name: 1st\n{TWO}", [], 78, ["Service", "name: 1st"]),
        ("kubernetes", TWO, ["--resource", "cpu"], 64, ["NAME=QUANTITY", "cpu"]),
        ("kubernetes", TWO, ["--secret-file", "secret"], 64, ["Pods", "--secret-file"]),
        ("kubernetes", TWO, ["--kind", "deployment"], 64, ["--kind deployment", "jobset"]),
        ("kubernetes", TWO, ["--kind", "mpijob"], 78, ["--kind mpijob", "slots"]),
        ("modelarts", UNEQUAL, [], 78, ["training job", "slots 1, 2"]),
        ("modelarts", TWO, ["--resource", "cpu=4"], 64, ["modelarts", "--resource"]),
        ("modelarts", TWO, ["--hosts", "x,y"], 64, ["ModelArts", "--hosts x,y"]),
        (
            "modelarts",
            f"env: {{S3_SECRET_KEY: planted}}\n{TWO}",
            [],
            78,
            ["training job", "S3_SECRET_KEY"],
        ),
        ("slurm", UNEQUAL, [], 78, ["Slurm", "slots 1, 2"]),
        ("slurm", f"device: ascend\nslots: 8\n{TWO}", [], 78, ["cluster", "device: ascend"]),
        ("slurm", f"timeouts: {{grace: 70000}}\n{TWO}", [], 78, ["Slurm", "timeouts.grace"]),
        (
            "slurm",
            TWO,
            ["--resource", "huawei.com/Ascend910=8"],
            64,
            ["Slurm", "huawei.com/Ascend910"],
        ),
        ("slurm", TWO, ["--resource", "cpu=500m"], 64, ["Slurm", "cpu", "500m"]),
        ("slurm", TWO, ["--hosts", "x,y"], 64, ["Slurm", "--hosts x,y"]),
        ("slurm", TWO, ["--time", "soon"], 64, ["Slurm", "--time soon"]),
    ],
)
def test_what_a_target_lacks_is_named(
    target: str,
    spec: str,
    words: list[str],
    status: int,
    named: list[str],
    capfd: pytest.CaptureFixture[str],
) -> None:
    assert deploy(target, spec, *words) == status
    said = capfd.readouterr()
    assert said.out == ""
    assert [word for word in named if word not in said.err] == [], said.err


@pytest.mark.deployed("kubernetes", "--kind {kind}: every flag of the job", "what the Pods get")
@pytest.mark.parametrize("kind", KINDS)
def test_every_flag_reaches_the_pods_of_every_kind(kind: str) -> None:
    """Together; test_deploy.py has each by itself."""
    given = {
        flag: value
        for flag, value in FLAGS.items()
        if flag not in ("--hosts", "--node-rank", "--secret-file")
    }
    words = [word for flag, value in given.items() for word in (flag, value)]
    assert deploy("kubernetes", TWO, "--kind", kind, "--out", "made.yaml", *words) == 0
    pods = [
        env
        for env in variables(list(yaml.safe_load_all(Path("made.yaml").read_text())))
        if "ENTRYPOINT_SPEC" in env
    ]
    assert len(pods) == (2 if kind == "mpijob" else 1)
    fields = {
        "--env": "env",
        **{each.flags[-1]: each.path for each in specs.fields() if each.flags},
    }
    names = {each.path: each.env for each in specs.fields()}
    for env in pods:
        for flag, value in given.items():
            assert env[names[fields[flag]]].removesuffix(".0") == (
                '{"A": "b $c"}' if flag == "--env" else value
            ), flag


# Every target, and every kind of the one that has several.
FORMS = [
    *(pytest.param(target, (), id=target) for target in registry.names("deploy")),
    *(pytest.param("kubernetes", ("--kind", kind), id=kind) for kind in KINDS),
]


@pytest.mark.promise(
    "no deployed file has a secret of the job or of the program",
    control="what is no secret, in the same test",
)
@pytest.mark.deployed("{target}", "no secret in any file", "planted ones are left out, and named")
@pytest.mark.parametrize(("target", "form"), FORMS)
def test_no_file_has_a_secret(
    target: str,
    form: tuple[str, ...],
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A secret of the job or of the program is left out, and named; what is no secret is there."""
    planted = [secrets.token_hex(32) for _ in range(4)]
    monkeypatch.setenv("ENTRYPOINT_SECRET", planted[0])
    monkeypatch.setenv("ENTRYPOINT_ENV", json.dumps({"OTHER_TOKEN": planted[1]}))
    Path("secret").write_text(planted[2])
    spec = f"slots: 2\n{TWO}" if form else TWO
    assert (
        deploy(target, spec, *form, "--env", f"S3_SECRET_KEY={planted[3]}", "--env", "VISIBLE=yes")
        == 0
    )
    said = capfd.readouterr()
    assert [secret for secret in planted if secret in said.out + said.err] == []
    assert "VISIBLE" in said.out
    assert "S3_SECRET_KEY" in said.err
