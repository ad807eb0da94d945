"""What `entrypoint deploy` renders: as written down, and whole in itself."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from entrypoint import errors
from entrypoint import spec as specs
from entrypoint.deploy import compose, kubernetes, modelarts, slurm
from entrypoint.errors import EntrypointError
from tests.golden_deploy import CASES, cases, golden, made


def name(case: Path) -> str:
    return str(case.relative_to(CASES))


@pytest.mark.parametrize("case", cases(), ids=name)
def test_golden(case: Path) -> None:
    path, text = golden(case)
    assert [path] == [*case.glob("rendered.*")], f"{name(case)}: run `make golden`"
    assert text == path.read_text(), f"{name(case)}: run `make golden` and read the difference"


def manifests(case: str) -> dict[str, dict[str, Any]]:
    """Kind -> manifest."""
    return {each["kind"]: each for each in yaml.safe_load_all(made(CASES / "kubernetes" / case))}


# Those whose form is Kubernetes' own; for others see test_deploy_kinds.py.
KUBERNETES = [
    case.name for case in cases()
    if case.parent.name == "kubernetes" and "kind:" not in (case / "options.yaml").read_text()
]  # fmt: skip


@pytest.mark.parametrize("case", KUBERNETES)
def test_what_belongs_together_is_named_alike(case: str) -> None:
    parts = manifests(case)
    job, pod = parts["Job"]["spec"], parts["Job"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    env = {each["name"]: each.get("value") for each in container["env"]}
    assert (job["completionMode"], job["parallelism"]) == ("Indexed", job["completions"])
    # A policy needs Pods that are not restarted in place.
    assert pod["restartPolicy"] == "Never"
    codes = [
        rule["onExitCodes"] for rule in job["podFailurePolicy"]["rules"] if "onExitCodes" in rule
    ]
    assert {each["containerName"] for each in codes} == {container["name"]}
    assert codes[0]["values"] == codes[1]["values"] == [69, 71, 75, 143]
    mounts = {each["name"]: each["mountPath"] for each in container["volumeMounts"]}
    assert set(mounts) == {each["name"] for each in pod["volumes"]}
    assert env["ENTRYPOINT_SPEC"] == f"{mounts['spec']}/{next(iter(parts['ConfigMap']['data']))}"
    if job["completions"] == 1:
        assert "Service" not in parts
        # How many Pods there are is in nothing that Kubernetes says.
        assert env["ENTRYPOINT_HOSTS"] == f"{parts['Job']['metadata']['name']}-0"
        assert not {"ENTRYPOINT_NODE_RANK", "ENTRYPOINT_SECRET_FILE"} & set(env)
        return
    service = parts["Service"]
    assert pod["subdomain"] == service["metadata"]["name"]
    job_name = parts["Job"]["metadata"]["name"]
    labels = {"app.kubernetes.io/name": "entrypoint", "app.kubernetes.io/instance": job_name}
    assert service["spec"]["selector"] == labels
    assert labels.items() <= parts["Job"]["spec"]["template"]["metadata"]["labels"].items()
    hosts = [f"{job_name}-{index}.{pod['subdomain']}" for index in range(job["completions"])]
    assert str(env["ENTRYPOINT_HOSTS"]).split(",") == hosts
    assert str(env["ENTRYPOINT_SECRET_FILE"]).startswith(f"{mounts['secret']}/")


def test_cards_are_asked_for_as_their_plugin_calls_them() -> None:
    def limits(case: str) -> Any:
        return manifests(case)["Job"]["spec"]["template"]["spec"]["containers"][0]["resources"][
            "limits"
        ]

    assert limits("two") == {"nvidia.com/gpu": "8", "cpu": "32", "memory": "256Gi"}
    assert limits("sixty-four") == {"huawei.com/Ascend910B": "8"}


def test_slots_of_a_host_are_those_of_its_pod() -> None:
    def pod(*resources: str) -> Any:
        spec = specs.load("name: demo\nhosts: [a:1, b:3]\ndevice: nvidia", "job.yaml", {}, {})
        options = kubernetes.Options(image="image", resources=resources)
        (job,) = [
            each
            for each in yaml.safe_load_all(kubernetes.render(spec, options))
            if each["kind"] == "Job"
        ]
        return job["spec"]["template"]["spec"]["containers"][0]

    settings = {each["name"]: each.get("value") for each in pod("nvidia.com/gpu=3")["env"]}
    assert settings["ENTRYPOINT_HOSTS"] == "demo-0.demo:1,demo-1.demo:3"
    with pytest.raises(EntrypointError, match="EP801 all Pods of a Job get as many cards"):
        pod()


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


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        (
            "",
            {},
            (
                "EP800 number of Pods unknown | the spec has no hosts | add --nodes 2, or hosts:"
                " with any names"
            ),
        ),
        (
            "name: 1st",
            {"nodes": 2},
            "EP820 a Service's name begins with a letter | name: 1st | use for example j1st",
        ),
        (f"name: {'j' * 61}", {"nodes": 11}, f"{'j' * 61}-10 has 64 characters, DNS allows 63"),
        (
            "device: nvidia",
            {"nodes": 2},
            "EP801 number of cards per node unknown | device: nvidia, and no slots",
        ),
        (
            "name: demo\nenv: {S3_SECRET_KEY: planted, NOTE: x}",
            {"nodes": 2},
            (
                "EP802 a ConfigMap is no place for secrets"
                " | in the spec: S3_SECRET_KEY | take them out, and give them in "
                "the Secret demo-env, whose keys are variables of every Pod"
            ),
        ),
        (
            "",
            {"nodes": 2, "resources": ("cpu",)},
            "EP804 a resource is NAME=QUANTITY | cpu | write --resource",
        ),
    ],
)
def test_what_cannot_be_rendered(text: str, options: dict[str, Any], message: str) -> None:
    spec = specs.load(text, "job.yaml", {}, {})
    with pytest.raises(EntrypointError, match=re.escape(message)):
        kubernetes.render(spec, kubernetes.Options(image="image", spec_text=text, **options))


def test_compose_can_make_up_names() -> None:
    spec = specs.load("", "job.yaml", {}, {})
    text = compose.render(spec, compose.Options(image="image", folder="/job", nodes=2))
    assert list(yaml.safe_load(text)["services"]) == ["worker-0", "worker-1"]


def test_every_composed_node_has_the_mounts() -> None:
    options = compose.Options(image="i", folder="/job", nodes=2, mounts=("/data/$x:/out:ro",))
    text = compose.render(specs.load("", "job.yaml", {}, {}), options)
    for service in yaml.safe_load(text)["services"].values():
        assert service["volumes"] == ["/job:/job:ro", "/data/$$x:/out:ro"]


def test_compose_gives_each_node_cards_of_its_own() -> None:
    def services(text: str, *resources: str) -> list[dict[str, Any]]:
        spec = specs.load(text, "job.yaml", {}, {})
        options = compose.Options(image="image", folder="/job", nodes=2, resources=resources)
        return list(yaml.safe_load(compose.render(spec, options))["services"].values())

    def gpus(text: str, *resources: str) -> list[Any]:
        found = [
            service["deploy"]["resources"]["reservations"]["devices"]
            for service in services(text, *resources)
        ]
        assert all(
            each["driver"] == "nvidia" and each["capabilities"] == ["gpu"] for (each,) in found
        )
        return [each.get("device_ids") or each["count"] for (each,) in found]

    assert gpus("device: nvidia\nslots: 2") == [["0", "1"], ["2", "3"]]
    assert gpus("device: nvidia") == ["all", "all"]
    assert gpus("", "nvidia.com/gpu=1") == [["0"], ["1"]]
    assert all(
        "deploy" not in service and "devices" not in service for service in services("slots: 2")
    )
    first, second = services("device: ascend\nslots: 2")
    driver = ["/dev/davinci_manager", "/dev/devmm_svm", "/dev/hisi_hdc"]
    assert first["devices"] == ["/dev/davinci0", "/dev/davinci1", *driver]
    assert second["devices"] == ["/dev/davinci2", "/dev/davinci3", *driver]
    unequal = services("hosts: [a:1, b:2=10.0.0.2]\ndevice: ascend")
    assert [each["devices"][:-3] for each in unequal] == [
        ["/dev/davinci0"],
        ["/dev/davinci1", "/dev/davinci2"],
    ]
    assert {each["environment"]["ENTRYPOINT_HOSTS"] for each in unequal} == {"a:1,b:2"}
    first, second = services("", "huawei.com/Ascend910=1")
    assert [first["devices"], second["devices"]] == [
        ["/dev/davinci0", *driver],
        ["/dev/davinci1", *driver],
    ]
    assert gpus("hosts: [a:1, b]\nslots: 2\ndevice: nvidia") == [["0"], ["1", "2"]]
    for wrong, words in (
        ("cpu=4", "EP804 compose cannot give such a resource | cpu"),
        ("cpu", "EP804 a resource is NAME="),
    ):
        with pytest.raises(EntrypointError, match=re.escape(words)):
            services("", wrong)


@pytest.mark.parametrize(
    "text",
    ["\n  name: demo\n", "\n\n  slots: 2\n  name: x\n", "a: 1", "a: 1\n\n", "\n", " a: 1\n", "a: b \n", "\ta: 1\n",
     "a: |\n  x\n\n  y\n",
     "# ä 😀 \x85 \u2028\na: 1\n", "---\na: 1\n", "a: 1\r\n", "\ufeffa: 1\n", "- %x\n", "? a\n", "#\n a: 1\n"],
)  # fmt: skip
def test_the_spec_travels_byte_for_byte(text: str) -> None:
    options = kubernetes.Options(image="image", spec_text=text, nodes=2)
    rendered = kubernetes.render(specs.load("", "job.yaml", {}, {}), options)
    (config,) = [each for each in yaml.safe_load_all(rendered) if each["kind"] == "ConfigMap"]
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


@pytest.mark.parametrize(
    ("kind", "spares", "counts"), [("job", 1, True), ("job", 0, False), ("jobset", 1, False)]
)
def test_a_killed_pod_does_not_end_a_job_with_spares(kind: str, spares: int, counts: bool) -> None:
    text = f"name: demo\nslots: 1\ncommand: [train]\nrestarts: 2\nspares: {spares}\n"
    options = kubernetes.Options(
        image="train:1", nodes=3, folder="/job", spec_text=text, spec_name="job.yaml", kind=kind
    )
    made = kubernetes.render(specs.load(text, "job.yaml", {}, {}), options)
    values = re.findall(r"operator: (?:In|NotIn), values: \[(.*)\]", made)
    assert len(values) == 2
    assert {"137" in each for each in values} == {counts}


def script(text: str, **options: Any) -> str:
    given = {"image": "", "folder": "/job", "nodes": 2, **options}
    return slurm.render(specs.load(text, "job.yaml", {}, {}), slurm.Options(**given))


def sbatch(text: str) -> dict[str, str]:
    """sbatch's options: those of the script's head, as sbatch reads them."""
    head = text[: text.index("\nset -u\n")].splitlines()
    assert all(line.startswith("#") for line in head), (
        "sbatch reads no options after the first command"
    )
    options = [line.removeprefix("#SBATCH --") for line in head if line.startswith("#SBATCH")]
    return {name: value for name, _, value in (option.partition("=") for option in options)}


def test_what_a_slurm_job_asks_for() -> None:
    assert sbatch(script("name: demo")) == {
        "job-name": "demo", "nodes": "2", "ntasks-per-node": "1", "exclusive": "", "mem": "0", "signal": "TERM@60",
        "requeue": "", "open-mode": "append",
    }  # fmt: skip
    asked = sbatch(script("device: nvidia\nslots: 4\ntimeouts: {grace: 300}", time="2-12"))
    assert (asked["gres"], asked["time"], asked["signal"]) == ("gpu:4", "2-12", "TERM@330")
    shared = sbatch(script("", resources=("cpu=8", "memory=64Gi", "nvidia.com/gpu=2", "shard:b=1")))
    assert "exclusive" not in shared
    expected = ("8", "64G", "gpu:2,shard:b:1")
    assert (shared["cpus-per-task"], shared["mem"], shared["gres"]) == expected
    # srun does not take sbatch's since 22.05
    assert "--cpus-per-task=8 \\\n" in script("", resources=("cpu=8",))


def test_slurm_keeps_a_job_with_spares_when_a_node_fails() -> None:
    """Both of them: sbatch's is about the allocation, srun's about the step."""
    text = script("spares: 1\nrestarts: 2", nodes=3)
    assert sbatch(text)["no-kill"] == ""
    assert "--wait=0 \\\n    --no-kill \\\n" in text
    assert "no-kill" not in script("restarts: 2")


def test_hosts_of_a_slurm_job_count_its_nodes() -> None:
    text = script("hosts: [a:4, b:4, c:4]\ndevice: nvidia", nodes=None)
    assert sbatch(text)["nodes"] == "3"
    assert "export ENTRYPOINT_SLOTS=4\n" in text
    assert "ENTRYPOINT_HOSTS=$(scontrol show hostnames" in text
    assert "ENTRYPOINT_HOSTS" not in script("")


@pytest.mark.parametrize(
    ("image", "runtime", "words"),
    [
        (
            "registry.example/team/train:1.2",
            "",
            "'--container-image=registry.example#team/train:1.2'",
        ),
        ("localhost:5000/train", "pyxis", "'--container-image=localhost:5000#train'"),
        ("team/train:1.2", "pyxis", "--container-image=team/train:1.2"),
        ("/images/train.sqsh", "pyxis", "--container-image=/images/train.sqsh"),
        ("./train.sqsh", "pyxis", "--container-image=./train.sqsh"),
        (
            "team/train:1.2",
            "apptainer",
            "apptainer exec --bind=/job --pwd=/job docker://team/train:1.2 \\",
        ),
        ("train.sif", "apptainer", "--pwd=/job train.sif \\"),
        (
            "oras://registry.example/train",
            "apptainer",
            "--pwd=/job oras://registry.example/train \\",
        ),
    ],
)
def test_an_image_is_named_as_its_runtime_does(image: str, runtime: str, words: str) -> None:
    assert words in script("", image=image, runtime=runtime)


def test_containers_of_a_slurm_job_see_what_the_script_names() -> None:
    text = script("secret_file: /keys/secret\ndevice: nvidia\nslots: 1", image="i")
    assert (
        "--container-mounts=/job:/job,/keys/secret:/keys/secret --container-workdir=/job " in text
    )
    assert "--container-env=ENTRYPOINT_SPEC,ENTRYPOINT_SECRET_FILE " in text
    text = script(
        "secret_file: /keys/secret\ndevice: nvidia\nslots: 1", image="i", runtime="apptainer"
    )
    assert (
        "apptainer exec --nv --bind=/job --bind=/keys/secret --pwd=/job docker://i \\\n"
        "    entrypoint run\n" in text
    )


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        (
            "",
            {"nodes": None},
            "EP800 number of nodes unknown | the spec has no hosts | add --nodes 2",
        ),
        ("hosts: [a:1, b:2]", {}, "EP801 all nodes of a Slurm job get as many cards | slots 1, 2"),
        (
            "device: nvidia",
            {},
            "EP801 number of cards per node unknown | device: nvidia, and no slots",
        ),
        (
            "device: ascend\nslots: 8",
            {},
            "EP804 each cluster has its own name for such cards | device: ascend",
        ),
        (
            "",
            {"resources": ("huawei.com/Ascend910=8",)},
            "EP804 Slurm has no such resource | huawei.com/Ascend910",
        ),
        ("", {"resources": ("gpu=1.5",)}, "EP804 Slurm counts gpu in whole numbers | 1.5"),
        ("", {"resources": ("cpu=500m",)}, "EP804 Slurm counts cpu in whole numbers | 500m"),
        (
            "",
            {"resources": ("memory=64",)},
            "EP804 Slurm wants memory as a whole number with its unit | 64",
        ),
        ("", {"resources": ("gpu",)}, "EP804 a resource is NAME=QUANTITY | gpu"),
        (
            "",
            {"runtime": "docker", "image": "i"},
            "EP803 no such container runtime | --runtime docker",
        ),
        (
            "",
            {"runtime": "none", "image": "i"},
            "EP805 without a container runtime there is no image | --image i",
        ),
        ("", {"runtime": "pyxis"}, "EP805 --runtime pyxis needs an image"),
        ("", {"image": "i", "folder": "/a,b"}, "EP806 such a path cannot be mounted | /a,b"),
        ("", {"time": "soon"}, "EP807 this is no time limit of Slurm's | --time soon"),
        ("", {"time": "1\n#SBATCH --uid=0"}, "EP807 this is no time limit of Slurm's"),
        (
            "",
            {"time": "1"},
            "EP807 the time limit leaves the job no time | --time 1, and SIGTERM comes 60 s before",
        ),
        ("", {"time": "1:00"}, "EP807 the time limit leaves the job no time"),
        (
            "timeouts: {grace: 70000}",
            {},
            "EP807 Slurm cannot signal so long before the end | timeouts.grace is 70000",
        ),
    ],
)
def test_what_no_batch_script_can_say(text: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(EntrypointError, match=re.escape(message)):
        script(text, **options)


@pytest.mark.parametrize("time", ["2", "1:01", "0:01:01", "0-1", "0-0:2", "0-0:1:1"])
def test_every_form_of_a_time_limit(time: str) -> None:
    assert sbatch(script("", time=time))["time"] == time


def body(text: str, **options: Any) -> Any:
    given = {"image": "swr.example/team/train:1.2", "nodes": 2, "flavor": "large", **options}
    return json.loads(
        modelarts.render(specs.load(text, "job.yaml", {}, {}), modelarts.Options(**given))
    )


@pytest.mark.promise(
    "a training job's body says what its spec does, and no secret of it",
    control="the fields that differ, in the same test",
)
def test_a_training_job_is_what_its_variables_say() -> None:
    """A container with the body's variables has the spec that the file had, but for what the
    platform says."""
    text = (
        "name: demo\nhosts: [a:4, b:4]\nlauncher: torchrun\nenv: {A: '[x] $B', C: ''}\ntorch:"
        " {extra_args: ['a b', \"'\"]}\ntimeouts: {grace: 45.5}\nrestarts: 2\ncommand: [train.py,"
        " 'x y', '']\n"
    )
    given = specs.load(text, "job.yaml", {}, {})
    made = specs.load(None, "", body(text)["algorithm"]["environments"], {})
    differ = {
        field.path for field in specs.fields() if given.value(field.path) != made.value(field.path)
    }
    assert differ == {"hosts", "slots"}
    assert made.slots == 4


def test_where_a_training_job_s_program_is() -> None:
    made = body("command: [python, train.py]", code="obs://bucket/a/demo-code")
    assert made["algorithm"]["code_dir"] == "/bucket/a/demo-code/"
    env = made["algorithm"]["environments"]
    assert env["ENTRYPOINT_WORKDIR"] == "/home/ma-user/modelarts/user-job-dir/demo-code"
    assert "ENTRYPOINT_WORKDIR" not in body("")["algorithm"]["environments"]
    assert "log_export_path" not in made["spec"]


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        (
            "",
            {"nodes": None},
            "EP800 number of instances unknown | the spec has no hosts | add --nodes 2",
        ),
        ("", {"flavor": ""}, "EP805 instance type unknown | no --flavor"),
        ("hosts: [a:1, b:2]", {}, "EP801 all instances of a training job are alike | slots 1, 2"),
        ("", {"code": "bucket/code"}, "EP806 this is no folder of OBS | --code bucket/code"),
        ("", {"logs": "s3://bucket"}, "EP806 this is no folder of OBS | --logs s3://bucket"),
        (
            (
                "env: {S3_SECRET_KEY: planted, URL: 'https://me:planted-word@host/'}\ncommand: [a,"
                " --password=planted-w]\nmpi: {x_args: -x MY_TOKEN=planted-word}"
            ),
            {},
            "EP802 a training job's body is no place for secrets | in the spec: ",
        ),
    ],
)
def test_what_no_training_job_can_say(text: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(EntrypointError, match=re.escape(message)):
        body(text, **options)


def test_who_needs_no_secret_is_not_asked_for_one() -> None:
    """A node alone, and nodes that hold no roll call by their spec. The control: all others."""
    for more, nodes, wanted in (("", 2, True), ("", 1, False), ("roll_call: none\n", 2, False)):
        text = f"name: demo\ncommand: [x]\n{more}"
        spec = specs.load(text, "job.yaml", {}, {})
        manifest = kubernetes.render(
            spec, kubernetes.Options(image="i", nodes=nodes, spec_text=text)
        )
        assert (
            "/run/secrets/entrypoint" in manifest,
            "create secret generic demo " in manifest,
        ) == (wanted, wanted)
        assert ("ENTRYPOINT_SECRET_FILE" in script(text, nodes=nodes)) is wanted
        told = modelarts.notes(spec, modelarts.Options(image="i", nodes=nodes, flavor="large"))
        assert ("EP128 the body has no secret" in "".join(told)) is wanted


@pytest.mark.promise("a training job's body says what its spec does, and no secret of it")
def test_every_secret_of_a_spec_is_named() -> None:
    text = (
        "env: {S3_SECRET_KEY: planted, URL: 'https://me:planted-word@host/', OK: x}\n"
        "command: [a, --password=planted-w]\nmpi: {x_args: -x MY_TOKEN=planted-word}\n"
    )
    said, kept = specs.written(specs.load(text, "job.yaml", {}, {}))
    assert sorted(kept) == ["S3_SECRET_KEY", "URL", "command", "mpi.x_args"]
    assert said == {"ENTRYPOINT_ENV": '{"OK": "x"}'}


def test_pods_have_relative_paths_of_the_spec_from_their_own_folder() -> None:
    """The folder of the spec, where they start otherwise, is not in the Pods."""
    text = "hosts: [a, b]\nworkdir: src\nmpi: {tune_file: /abs}\nsecret_file: secret\n"
    spec = specs.load(text, "job.yaml", {}, {})
    rendered = kubernetes.render(spec, kubernetes.Options(image="i", spec_text=text))
    job = next(each for each in yaml.safe_load_all(rendered) if each["kind"] == "Job")
    (container,) = job["spec"]["template"]["spec"]["containers"]
    env = {entry["name"]: entry.get("value") for entry in container["env"]}
    assert env["ENTRYPOINT_WORKDIR"] == "src"
    assert env["ENTRYPOINT_SECRET_FILE"].startswith("/")
    assert "ENTRYPOINT_MPI_TUNE_FILE" not in env
