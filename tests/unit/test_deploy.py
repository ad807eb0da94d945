"""What `entrypoint deploy` renders: as written down, and whole in itself."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from entrypoint import spec as specs
from entrypoint.base import errors, registry
from entrypoint.base.errors import EntrypointError
from entrypoint.tools.deploy import kubernetes, modelarts
from entrypoint.tools.deploy._options import Options, mounts
from tests import table
from tests.golden_deploy import CASES, cases, golden, made


def name(case: Path) -> str:
    return str(case.relative_to(CASES))


@pytest.mark.parametrize("case", cases(), ids=name)
def test_golden(case: Path) -> None:
    path, text = golden(case)
    assert [path] == [*case.glob("rendered.*")], f"{name(case)}: run `make golden`"
    assert text == path.read_text(), f"{name(case)}: run `make golden` and read the difference"


# What each target needs besides the image.
NEEDS: dict[str, dict[str, Any]] = {
    "compose": {"folder": "/job"}, "kubernetes": {}, "modelarts": {"flavor": "large"},
    "slurm": {"folder": "/job", "image": ""},
}  # fmt: skip


def rendered(target: str, text: str, **options: Any) -> str:
    """What a target renders for two nodes, or as many as the options say."""
    module = registry.load("deploy", target)
    given = {"image": "i", "nodes": 2, "spec_text": text, **NEEDS[target], **options}
    return str(module.render(specs.load(text, "job.yaml", {}, {}), Options(**given)))


def manifests(case: str) -> dict[str, dict[str, Any]]:
    """Kind -> manifest."""
    return {each["kind"]: each for each in yaml.safe_load_all(made(CASES / "kubernetes" / case))}


def expanded(text: str, env: dict[str, str]) -> str:
    """As Kubernetes does it (k8s.io/kubernetes/third_party/forked/golang/expansion)."""
    return re.sub(
        r"\$(\$|\(([^)]*)\))", lambda m: "$" if m[1] == "$" else env.get(m[2], m[0]), text
    )


def test_no_dollar_is_lost() -> None:
    job = manifests("odd")["Job"]
    container = job["spec"]["template"]["spec"]["containers"][0]
    assert [expanded(word, {"id": "no", "HOME": "no"}) for word in container["command"]] == [
        "entrypoint", "run", "--", "sh", "-c", "echo $HOME $(id) $$ 'it''s'", "", "ä\n",
    ]  # fmt: skip
    env = {each["name"]: each["value"] for each in container["env"] if "value" in each}
    assert (
        expanded(env["ENTRYPOINT_ENV"], {"HOME": "no"})
        == '{"PRICE": "5$ $(HOME) $$", "COST": "$(HOME) $$"}'
    )


def test_compose_gives_each_node_cards_of_its_own() -> None:
    """Those of a spec, and their device files, are in tests/deploy/compose."""

    def services(text: str, *resources: str) -> list[dict[str, Any]]:
        made = rendered("compose", text, resource=resources, mount=mounts(["/data/$x:/out:ro"]))
        return list(yaml.safe_load(made)["services"].values())

    def gpus(text: str, *resources: str) -> list[Any]:
        found = [
            service["deploy"]["resources"]["reservations"]["devices"]
            for service in services(text, *resources)
        ]
        return [each.get("device_ids") or each["count"] for (each,) in found]

    assert gpus("device: nvidia") == ["all", "all"]
    assert gpus("", "nvidia.com/gpu=1") == [["0"], ["1"]]
    assert gpus("hosts: [a:1, b]\nslots: 2\ndevice: nvidia") == [["0"], ["1", "2"]]
    plain = services("slots: 2")
    assert all("deploy" not in service and "devices" not in service for service in plain)
    assert {(*service["volumes"],) for service in plain} == {("/job:/job:ro", "/data/$$x:/out:ro")}
    npus = services("", "huawei.com/Ascend910=1")
    assert [each["devices"][0] for each in npus] == ["/dev/davinci0", "/dev/davinci1"]


@pytest.mark.parametrize(
    "text",
    ["\n  name: demo\n", "\n\n  slots: 2\n  name: x\n", "a: 1", "a: 1\n\n", "\n", " a: 1\n", "a: b \n", "\ta: 1\n",
     "a: |\n  x\n\n  y\n",
     "# ä 😀 \x85 \u2028\na: 1\n", "---\na: 1\n", "a: 1\r\n", "\ufeffa: 1\n", "- %x\n", "? a\n", "#\n a: 1\n"],
)  # fmt: skip
def test_the_spec_travels_byte_for_byte(text: str) -> None:
    options = Options(image="image", spec_text=text, nodes=2)
    made = kubernetes.render(specs.load("", "job.yaml", {}, {}), options)
    (config,) = [each for each in yaml.safe_load_all(made) if each["kind"] == "ConfigMap"]
    assert config["data"] == {"job.yaml": text}


def test_what_may_be_helped_by_a_retry_is_retried() -> None:
    """One table: class `infrastructure`, the rendered policy, and the documents."""
    may = {status for status, kind in errors.CLASSES.items() if kind == "infrastructure"}
    assert may == {69, 71, 75}
    rules = manifests("two")["Job"]["spec"]["podFailurePolicy"]["rules"]
    assert {
        rule["action"]: set(rule["onExitCodes"]["values"])
        for rule in rules
        if "onExitCodes" in rule
    } == {
        "Count": may | {143},
        "FailJob": may | {143},  # NotIn
    }
    docs = Path(__file__).parents[2] / "docs"
    table = (docs / "reference/exit-codes.md").read_text()
    assert "| `infrastructure` | the hosts or the network; a retry may help | 69, 71, 75 |" in table
    rows = [
        line.strip("| *\n").split(" | ") for line in table.splitlines() if line.startswith("| ")
    ]
    advice = {row[0].strip("*"): row[-1].strip("* ") for row in rows if len(row) == 4}
    assert {status for status, words in advice.items() if words.startswith("retry")} == set(
        map(str, sorted(may))
    )
    assert "69, 71 or 75" in (docs / "how-to/kubernetes.md").read_text()


def sbatch(text: str) -> dict[str, str]:
    """sbatch's options: those of the script's head, as sbatch reads them."""
    head = text[: text.index("\nset -u\n")].splitlines()
    assert all(line.startswith("#") for line in head), (
        "sbatch reads no options after the first command"
    )
    options = [line.removeprefix("#SBATCH --") for line in head if line.startswith("#SBATCH")]
    return {name: value for name, _, value in (option.partition("=") for option in options)}


def test_what_a_slurm_job_asks_for() -> None:
    asked = ("cpu=8", "memory=64Gi", "nvidia.com/gpu=2", "shard:b=1")
    shared = rendered("slurm", "", resource=asked, time="2-12")
    assert sbatch(shared) == {
        "job-name": "job", "nodes": "2", "ntasks-per-node": "1", "cpus-per-task": "8", "mem": "64G",
        "gres": "gpu:2,shard:b:1", "time": "2-12", "signal": "TERM@60", "requeue": "", "open-mode": "append",
    }  # fmt: skip
    assert sbatch(rendered("slurm", "hosts: [a, b, c]", nodes=None))["nodes"] == "3"


@pytest.mark.parametrize("time", ["2", "1:01", "0:01:01", "0-1", "0-0:2", "0-0:1:1"])
def test_every_form_of_a_time_limit(time: str) -> None:
    assert sbatch(rendered("slurm", "", time=time))["time"] == time


@pytest.mark.parametrize(
    ("image", "runtime", "words"),
    [
        ("localhost:5000/train", "pyxis", "'--container-image=localhost:5000#train'"),
        ("team/train:1.2", "pyxis", "--container-image=team/train:1.2"),
        ("/images/train.sqsh", "pyxis", "--container-image=/images/train.sqsh"),
        ("./train.sqsh", "pyxis", "--container-image=./train.sqsh"),
        ("team/train:1.2", "apptainer", "--pwd=/job docker://team/train:1.2 \\"),
        ("oras://registry.example/train", "apptainer", "--pwd=/job oras://registry.example/train \\"),
    ],
)  # fmt: skip
def test_an_image_is_named_as_its_runtime_does(image: str, runtime: str, words: str) -> None:
    assert words in rendered("slurm", "", image=image, runtime=runtime)


def test_an_apptainer_sees_the_cards_and_what_the_script_names() -> None:
    text = "secret_file: /keys/secret\ndevice: nvidia\nslots: 1"
    assert (
        "apptainer exec --nv --bind=/job:/job --bind=/keys/secret:/keys/secret --pwd=/job docker://i \\\n"
        "    entrypoint run\n" in rendered("slurm", text, image="i", runtime="apptainer")
    )


@pytest.mark.promise(
    "a training job's body says what its spec does, and no secret of it",
    control="the fields that differ, in the same test",
)
def test_a_training_job_is_what_its_variables_say() -> None:
    """A container with the body's variables has the spec that the file had, but for what the
    platform says."""
    text = (
        "name: demo\nhosts: [a:4, b:4]\nlauncher: torchrun\nenv: {A: '[x] $B', C: ''}\n"
        "launcher_args: ['a b', \"'\"]\nport: 7000\ntimeouts: {grace: 45.5}\nrestarts: 2\ncommand: [train.py,"
        " 'x y', '']\n"
    )
    given = specs.load(text, "job.yaml", {}, {})
    body = json.loads(rendered("modelarts", text))
    made = specs.load(None, "", body["algorithm"]["environments"], {})
    differ = {
        field.path for field in specs.fields() if given.value(field.path) != made.value(field.path)
    }
    assert differ == {"hosts", "slots"}
    assert made.slots == 4


def test_who_needs_no_secret_is_not_asked_for_one() -> None:
    """A node alone, and nodes that hold no roll call by their spec. The control: all others."""
    for more, nodes, wanted in (("", 2, True), ("", 1, False), ("roll_call: none\n", 2, False)):
        text = f"name: demo\ncommand: [x]\n{more}"
        manifest = rendered("kubernetes", text, nodes=nodes)
        assert ("/run/secrets/entrypoint" in manifest) is wanted
        assert ("create secret generic demo " in manifest) is wanted
        assert ("ENTRYPOINT_SECRET_FILE" in rendered("slurm", text, nodes=nodes)) is wanted
        spec = specs.load(text, "job.yaml", {}, {})
        told = modelarts.notes(spec, Options(image="i", nodes=nodes, flavor="large"))
        assert ("EP128 the body has no secret" in "".join(told)) is wanted


SECRETS = (
    "env: {S3_SECRET_KEY: planted, URL: 'https://me:planted-word@host/', OK: x}\n"
    "command: [a, --password=planted-w]\nmpi: {x_args: -x MY_TOKEN=planted-word}\n"
)


@pytest.mark.promise("a training job's body says what its spec does, and no secret of it")
def test_every_secret_of_a_spec_is_named() -> None:
    said, kept = specs.written(specs.load(SECRETS, "job.yaml", {}, {}))
    assert sorted(kept) == ["S3_SECRET_KEY", "URL", "command", "mpi.x_args"]
    assert said == {"ENTRYPOINT_ENV": '{"OK": "x"}'}


REFUSED = table("tests/tables/deploy.yaml")


@pytest.mark.parametrize(
    ("target", "text", "options", "message"),
    [(target, *row) for target, rows in REFUSED.items() for row in rows],
)
def test_what_a_target_cannot_say(
    target: str, text: str, options: dict[str, Any], message: str
) -> None:
    options = {**options, "mount": mounts(options.get("mount", ()))}
    with pytest.raises(EntrypointError, match=re.escape(message)):
        rendered(target, text, **options)


def test_the_longest_name_of_a_jobset() -> None:
    """The control: one character less than above."""
    assert rendered("kubernetes", f"name: {'j' * 48}", kind="jobset")


def test_pods_have_relative_paths_of_the_spec_from_their_own_folder() -> None:
    """The folder of the spec, where they start otherwise, is not in the Pods."""
    text = "hosts: [a, b]\nworkdir: src\nmpi: {tune_file: /abs}\nsecret_file: secret\n"
    *_, job = yaml.safe_load_all(rendered("kubernetes", text, nodes=None))
    (container,) = job["spec"]["template"]["spec"]["containers"]
    env = {entry["name"]: entry.get("value") for entry in container["env"]}
    assert env["ENTRYPOINT_WORKDIR"] == "src"
    assert env["ENTRYPOINT_SECRET_FILE"].startswith("/")
    assert "ENTRYPOINT_MPI_TUNE_FILE" not in env
