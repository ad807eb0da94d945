"""The command deploy as a whole: what it writes, and what it says when it refuses."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from shlex import split
from typing import Any

import pytest
import yaml

from entrypoint import cli, registry
from entrypoint import spec as specs
from entrypoint.cli.deploy import OPTIONS
from tests import slurm
from tests.cluster import clean_environment

# A flag -> a value that it takes. A new flag of the spec has to be added here, or this fails.
FLAGS = {
    "--name": "other", "--launcher": "torchrun", "--workdir": "/data", "--platform": "local", "--device": "cpu",
    "--hosts": "x,y", "--node-rank": "1", "--slots": "3", "--secret-file": "key/secret", "--restarts": "2",
    "--run-dir": "/run/job", "--log-dir": "/logs", "--ssh-port": "2222", "--timeout": "77", "--env": "A=b $c",
    "--network-interface": "ib", "--log-format": "json", "--log-prefix": "[{node} {rank}] ", "--log-timestamps": "utc", "--log-level": "warning",
    "--log-files": "ranks", "--log-max-size": "99999", "--log-max-files": "3",
    "--spares": "1",
}  # fmt: skip


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


# What a target needs beside an image, and which flags it refuses by name.
NEEDS = {"slurm": ["--runtime", "apptainer"], "modelarts": ["--flavor", "large"]}
REFUSED = {("--secret-file", "kubernetes"), ("--hosts", "slurm"), ("--hosts", "modelarts")}


def containers(text: str, target: str) -> list[dict[str, str]]:
    """Variables of every container that a deployed file makes, as its reader hands them over."""
    if target != "slurm":
        return list(variables(list(yaml.safe_load_all(text))))
    return [slurm.told(text)[1]]


@pytest.mark.promise("what a deploy target cannot express is refused by name")
@pytest.mark.deployed(
    "{target}", "every flag of the job", "what containers get, or an error (64) that names it"
)
@pytest.mark.parametrize("target", registry.names("deploy"))
@pytest.mark.parametrize(
    "flag", ["--env", *(field.flags[-1] for field in specs.fields() if field.flags)]
)
def test_every_flag_reaches_the_containers_or_is_refused_by_name(
    flag: str,
    target: str,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in set(os.environ) - set(clean_environment()):
        monkeypatch.delenv(name)
    spec = tmp_path / "job.yaml"
    spec.write_text("hosts: [a, b]\ncommand: [prog]\n")
    for secret in ("secret", "key/secret"):
        (tmp_path / secret).parent.mkdir(exist_ok=True)
        (tmp_path / secret).touch()
    words = [
        "deploy",
        target,
        "--spec",
        str(spec),
        "--image",
        "image",
        *NEEDS.get(target, []),
        flag,
        FLAGS[flag],
    ]
    monkeypatch.chdir(tmp_path)
    status, said = cli.main(words), capfd.readouterr()
    if flag == "--node-rank" or (flag, target) in REFUSED:
        assert (status, said.out) == (64, "")
        assert flag in said.err
        return
    assert status == 0, said.err
    if (flag, target) == ("--secret-file", "compose"):
        assert (
            yaml.safe_load(said.out)["secrets"]["entrypoint"]["file"]
            == f"${{ENTRYPOINT_SECRET_FILE:-{Path.cwd()}/key/secret}}"
        )
        return
    (field,) = (
        each
        for each in specs.fields()
        if flag in each.flags or (flag, each.path) == ("--env", "env")
    )
    expected = {"--env": '{"A": "b $c"}'}.get(flag, FLAGS[flag])
    if (flag, target) == ("--hosts", "kubernetes"):
        expected = (  # Pods have names of their own: the flag says how many there are
            "job-0.job,job-1.job"
        )
    if (flag, target) == ("--secret-file", "slurm"):
        expected = f"{Path.cwd()}/key/secret"
    found = containers(said.out, target)
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


# A flag of deploy's own -> a value, and the targets that can express it. A new one has to be added
# here.
OWN = {
    "image": ("i", {"compose", "kubernetes", "modelarts", "slurm"}),
    "nodes": ("2", {"compose", "kubernetes", "modelarts", "slurm"}),
    "resource": ("nvidia.com/gpu=1", {"compose", "kubernetes", "slurm"}),
    "runtime": ("pyxis", {"slurm"}),
    "time": ("60", {"slurm"}),
    "flavor": ("large", {"modelarts"}),
    "pool": ("pool-1", {"modelarts"}),
    "code": ("obs://bucket/code", {"modelarts"}),
    "logs": ("obs://bucket/logs", {"modelarts"}),
    "kind": ("jobset", {"kubernetes"}),
    "mount": ("./out:/out", {"compose"}),
}


@pytest.mark.promise(
    "what a deploy target cannot express is refused by name",
    control="the targets that take it, in the same tests",
)
@pytest.mark.deployed(
    "{target}", "every flag of deploy", "taken, or an error (64) that names it and the target"
)
@pytest.mark.parametrize("target", ["compose", "kubernetes", "modelarts", "slurm"])
@pytest.mark.parametrize("name", OPTIONS)
def test_what_a_target_cannot_express_is_refused_by_name(
    name: str,
    target: str,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for variable in set(os.environ) - set(clean_environment()):
        monkeypatch.delenv(variable)
    spec = tmp_path / "job.yaml"
    spec.write_text("hosts: [a, b]\ncommand: [prog]\n")
    value, takes = OWN[name]
    words = [
        "deploy",
        target,
        "--spec",
        str(spec),
        "--image",
        "i",
        *NEEDS.get(target, []),
        f"--{name}",
        value,
    ]
    status, said = cli.main(words), capfd.readouterr()
    if target in takes:
        assert status == 0, said.err
        return
    assert (status, said.out) == (64, "")
    assert (
        f"EP803 the target {target} cannot express this | --{name} | leave it out; {target} takes"
        " --image" in said.err
    )


@pytest.fixture
def spec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The path of a spec, without a platform around it."""
    for variable in set(os.environ) - set(clean_environment()):
        monkeypatch.delenv(variable)
    path = tmp_path / "job.yaml"
    path.write_text("hosts: [a, b]\nslots: 2\ncommand: [prog]\n")
    return str(path)


@pytest.mark.promise(
    "what a kind cannot express is said", control="the kinds that express all, in the same test"
)
@pytest.mark.deployed("kubernetes", "--kind {kind}: what it lacks", "is said on stderr")
@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("job", []),
        ("jobset", []),
        (
            "mpijob",
            [
                "EP808 an MPIJob looks at no exit status | after 69, 71, 75 and 143",
                "EP808 an MPIJob gets no probes | ",
            ],
        ),
        (
            "trainjob",
            [
                "EP808 a TrainJob looks at no exit status | ",
                "left out: restartPolicy, terminationGracePeriodSeconds, ",
            ],
        ),
        (
            "volcano",
            [
                "EP808 Volcano starts the job again when any Pod ends with 69, 71, 75 or 143, or is"
                " evicted | "
            ],
        ),
    ],
)
def test_what_a_kind_cannot_express_is_on_stderr(
    kind: str, words: list[str], spec: str, capfd: pytest.CaptureFixture[str]
) -> None:
    status = cli.main(["deploy", "kubernetes", "--spec", spec, "--image", "i", "--kind", kind])
    said = capfd.readouterr()
    assert status == 0
    assert len(said.err.splitlines()) == len(words)
    assert all(each in said.err for each in words)
    assert said.out.startswith("# Rendered by entrypoint ")


@pytest.mark.parametrize("target", ["compose", "kubernetes", "modelarts"])
def test_who_needs_an_image_says_so(
    target: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "job.yaml").write_text("hosts: [a, b]\n")
    status = cli.main(["deploy", target, "--spec", str(tmp_path / "job.yaml")])
    assert (
        status,
        f"EP805 the target {target} needs an image | no --image" in capfd.readouterr().err,
    ) == (64, True)


def test_modelarts_names_boot_command_and_missing_secret_beside_the_body(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in set(os.environ) - set(clean_environment()):
        monkeypatch.delenv(variable)
    (tmp_path / "job.yaml").write_text("hosts: [a, b]\ncommand: [prog]\n")
    words = [
        "deploy",
        "modelarts",
        "--spec",
        str(tmp_path / "job.yaml"),
        *split("--image i --flavor large"),
    ]
    assert cli.main(words) == 0
    said = capfd.readouterr()
    assert json.loads(said.out)["algorithm"]["command"] == "entrypoint run"
    assert "boot command | entrypoint run | " in said.err
    assert (
        "EP128 the body has no secret | several nodes | add the variable ENTRYPOINT_SECRET to"
        " the job" in said.err
    )


NUMBERS = {
    # target, hosts, other words, what is rendered or the message
    "a flag that says the same": ("kubernetes", "[a, b]", "--nodes=2", "completions: 2"),
    "the flag wins on Kubernetes": ("kubernetes", "[a, b]", "--nodes=4", "completions: 4"),
    "with the slots of the hosts": ("kubernetes", "['a:2', 'b:2']", "--nodes=3", "job-2.job:2"),
    "the flag wins on Slurm": ("slurm", "[a, b]", "--nodes=4", "#SBATCH --nodes=4"),
    "the flag wins on ModelArts": (
        "modelarts",
        "[a, b]",
        "--nodes=4 --flavor f --code obs://b/c/",
        '"node_count": 4',
    ),
    "compose needs names": (
        "compose",
        "[a, b]",
        "--nodes=4",
        "EP800 --nodes 4 contradicts 2 hosts | job.yaml:1:8; the target compose needs a name for each"
        " node | leave --nodes out, or change hosts to 4 names",
    ),
    "hosts that differ": (
        "kubernetes",
        "['a:2', 'b:3']",
        "--nodes=4",
        "EP800 --nodes 4 contradicts 2 hosts | job.yaml:1:8; they have different slots | ",
    ),
    "two flags": (
        "kubernetes",
        "[]",
        "--nodes=4 --hosts=a,b",
        "EP800 --nodes 4 contradicts 2 hosts | --hosts | ",
    ),
    "no number": ("kubernetes", "[a, b]", "--nodes=many", "EP800 --nodes is not a number of nodes | many | write"),
    "no node": ("kubernetes", "[a, b]", "--nodes=0", "EP800 --nodes is not a number of nodes | 0 | write"),
}  # fmt: skip


@pytest.mark.parametrize("case", NUMBERS)
def test_the_number_of_nodes(
    case: str, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in set(os.environ) - set(clean_environment()):
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    target, hosts, words, expected = NUMBERS[case]
    Path("job.yaml").write_text(f"hosts: {hosts}\nslots: 2\ncommand: [prog]\nsecret_file: secret\n")
    status = cli.main(["deploy", target, "--spec", "job.yaml", "--image", "image", *words.split()])
    said = capfd.readouterr()
    assert status == (64 if expected.startswith("EP") else 0), said.err
    assert expected in (said.err if status else said.out)
