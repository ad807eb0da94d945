"""Former names of settings: each means what its present name does, under its launchers alone."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml

from entrypoint.base import registry
from entrypoint.base.errors import SpecError
from entrypoint.base.model import Plan
from entrypoint.base.values import replace
from entrypoint.cli.schema import schema
from entrypoint.plan import locate, located, warnings
from entrypoint.spec import JobSpec, for_launcher, given, load, names_of, removed, written
from entrypoint.spec.former import FORMER
from entrypoint.spec.table import fields, former_fields
from tests.unit.cases import FACTS, planned

TWO = {"hosts": ["a", "b"], "node_rank": 0, "slots": 2, "command": ["train.py"]}
VALUES: dict[str, Any] = {
    "port": 7000,
    "launcher_args": ["--one", "--two=2"],
    "env.TUNE_ENV_FILE": "/job/tune",
    "env.OPENMPI_BIND_ARGS": "--bind-to core",
    "env.OPENMPI_X_ARGS": "-x OMP_NUM_THREADS=3",
    "env.OPENMPI_MCA_ARGS": "-mca btl_tcp_if_include lo",
}
CASES = [(path, launcher) for path, former in FORMER.items() for launcher in former.launchers]
REFUSED = {("hydra", name) for name in ("mpi.tune_file", "mpi.x_args", "mpi.mca_args")}


def text(path: str, value: Any, **more: Any) -> str:
    """Return a spec with this setting, as YAML."""
    section, _, key = path.rpartition(".")
    setting = {section: {key: value}} if section else {key: value}
    return yaml.safe_dump({**TWO, **more, **setting})


def former_value(path: str) -> Any:
    value = VALUES[FORMER[path].now]
    return " ".join(value) if FORMER[path].form == "text" and isinstance(value, list) else value


def starts(made: Plan) -> Any:
    """Return what a plan starts, without the origins of its values."""
    programs = [
        (program.argv, {var.name: var.value for var in program.env})
        for program in made.launch.programs
    ]
    ours = {name for former in FORMER.values() for name in former.variables}
    env = {var.name: var.value for var in made.env if var.name not in ours}
    each = [file.text for file in made.files]
    return programs, env, each, made.launch.port


def read(document: str, env: dict[str, str] | None = None, launcher: str = "") -> JobSpec:
    spec = load(document, "job.yaml", env or {}, {})
    return for_launcher(spec, launcher or spec.launcher or "plain")


@pytest.mark.promise("a former setting means what its present name does, and a warning names that")
@pytest.mark.parametrize("is_variable", [False, True], ids=["file", "variable"])
@pytest.mark.parametrize(("path", "launcher"), CASES)
def test_a_former_name_means_what_the_present_one_does(
    path: str, launcher: str, is_variable: bool
) -> None:
    now, value = FORMER[path].now, former_value(path)
    present = text(now, VALUES[now], launcher=launcher)
    env = {}
    former = text(path, value, launcher=launcher)
    hint = f"{path} is now {now} (job.yaml:"
    if is_variable:
        field = former_fields()[path]
        env = {field.env: value if isinstance(value, str) else json.dumps(value)}
        former = text("name", "job", launcher=launcher)
        hint = f"{field.env} is now {now[4:] if '.' in now else f'ENTRYPOINT_{now.upper()}'}"
    (warning,) = read(former, env).renamed
    assert warning.startswith(f"EP131 settings have other names | {hint}")
    assert warning.endswith("| rename them")
    assert not read(present).renamed
    if (launcher, path) in REFUSED:
        with pytest.raises(SpecError, match=f"{now}: EP119 mpiexec.hydra takes no options"):
            planned(former, env)
        return
    made, expected = planned(former, env), planned(present)
    # One that is empty or has no effect would be equal, too.
    assert (
        starts(made) == starts(expected) != starts(planned(text("name", "job", launcher=launcher)))
    )


@pytest.mark.control("a former setting means what its present name does, and a warning names that")
@pytest.mark.parametrize("path", FORMER)
def test_every_other_launcher_ignores_it(path: str) -> None:
    """It is one of another launcher: a spec may hold sections of several."""
    former = FORMER[path]
    for launcher in registry.names("launchers"):
        if launcher not in former.launchers:
            document = text(path, former_value(path), launcher=launcher)
            assert read(document).renamed == []
            assert starts(planned(document)) == starts(
                planned(text("name", "job", launcher=launcher))
            )


@pytest.mark.parametrize("path", FORMER)
def test_two_values_are_an_error_that_names_both(path: str) -> None:
    now = FORMER[path].now
    launcher = FORMER[path].launchers[0]
    document = yaml.safe_load(text(path, former_value(path), launcher=launcher))
    other: Any = {"port": 7001, "launcher_args": ["--other"]}.get(now, "other")
    section, _, key = now.rpartition(".")
    present = {**document, section: {key: other}} if section else {**document, key: other}
    with pytest.raises(SpecError) as caught:
        read(yaml.safe_dump(present))
    (line,) = caught.value.lines()
    assert caught.value.status == 65
    assert line.startswith("job.yaml:")
    assert f": {path}: EP104 {now} contradicts it | spec job.yaml:" in line
    assert line.endswith(f"| remove {path}")
    same = {**present, **({section: {key: VALUES[now]}} if section else {key: VALUES[now]})}
    assert read(yaml.safe_dump(same)).renamed, "equal values contradict nothing"
    unused = next(name for name in ("ascend", "jax") if name not in FORMER[path].launchers)
    assert read(yaml.safe_dump({**present, "launcher": unused})), "nor does another launcher's"


@pytest.mark.parametrize(
    ("document", "env", "port"),
    [
        ("port: 1", {"ENTRYPOINT_TORCH_PORT": "2"}, 2),  # a variable wins over the file
        ("torch: {port: 1}", {"ENTRYPOINT_PORT": "2"}, 2),
        ("torch: {port: 1}", {"ENTRYPOINT_TORCH_PORT": "2"}, 2),
        ("torch: {port: 1}", {"MASTER_PORT": "2"}, 2),
        ("", {"ENTRYPOINT_TORCH_PORT": "1", "MASTER_PORT": "2"}, 1),  # ours over other tools'
        ("", {"ENTRYPOINT_PORT": "1", "MASTER_PORT": "2"}, 1),
        ("", {"ENTRYPOINT_PORT": "tcp://10.96.7.1:80", "MASTER_PORT": "2"}, 2),  # of a Service
        ("", {"JAX_COORDINATOR_PORT": "2"}, None),  # of another launcher
    ],
)
def test_of_several_names_the_higher_origin_wins(
    document: str, env: dict[str, str], port: int | None
) -> None:
    assert read(document, env, "torchrun").port == port


def test_two_variables_of_ours_that_differ() -> None:
    with pytest.raises(SpecError, match=r"ENTRYPOINT_TORCH_PORT: torch.port: EP104 port contrad"):
        read("", {"ENTRYPOINT_PORT": "1", "ENTRYPOINT_TORCH_PORT": "2"}, "torchrun")


def test_variables_that_modelarts_documents_are_right_and_its_own() -> None:
    env = {
        "TUNE_ENV_FILE": "/tune",
        "OPENMPI_BIND_ARGS": "-bind-to core",
        "OPENMPI_X_ARGS": "-x A",
        "OPENMPI_MCA_ARGS": "-mca btl tcp",
        "OPENMPI_EXTRA_ARGS": "--display-map  --verbose",
    }
    document = text("env", {"OPENMPI_X_ARGS": "-x B"}, launcher="mpirun")
    spec = read(document, env)
    assert spec.renamed == []
    assert spec.launcher_args == ("--display-map", "--verbose")
    assert spec.option("OPENMPI_X_ARGS") == "-x A", "the container's wins over the file"
    assert read(document).option("OPENMPI_X_ARGS") == "-x B"
    (program,) = planned(document, env).launch.programs
    asked = {name: value for name, value in env.items() if name != "OPENMPI_EXTRA_ARGS"}
    assert asked.items() <= {var.name: var.value for var in program.env}.items()


def test_the_launcher_s_own_settings_are_not_another_s() -> None:
    """As in the scripts that `render` writes for all launchers."""
    spec = load("launcher: ray\nport: 7000\nlauncher_args: [-v]\ntorch: {port: 1}", "j", {}, {})
    assert (for_launcher(spec, "ray").port, for_launcher(spec, "ray").launcher_args) == (
        7000,
        ("-v",),
    )
    other = for_launcher(spec, "torchrun")
    assert (other.port, other.launcher_args) == (1, ())


def test_a_launcher_without_options_is_told() -> None:
    document = text("launcher_args", ["-v"], launcher="plain")
    spec = load(document, "job.yaml", {}, {})
    says = "EP131 launcher plain has no options | launcher_args (job.yaml:"
    assert "".join(warnings(spec, planned(document))).startswith(says)
    worker = replace(planned(document), topology=locate(replace(spec, node_rank=1), FACTS))
    assert [*warnings(spec, worker)] == []
    document = text("launcher_args", ["-v"], launcher="torchrun")
    assert [*warnings(load(document, "job.yaml", {}, {}), planned(document))] == []


def test_which_launcher_reads_them_may_follow_from_the_plan() -> None:
    document = text("mpi.extra_args", "-v")
    spec = load(document, "job.yaml", {}, {})
    assert located(spec, FACTS)[0].launcher_args == ("-v",)
    alone = replace(spec, hosts=(), slots=1)
    assert located(alone, FACTS)[0].launcher_args == (), "a single rank needs no mpirun"


def test_deploy_passes_them_on() -> None:
    """Under their present names if the spec names its launcher."""
    env = {"OPENMPI_X_ARGS": "-x A", "MASTER_PORT": "7000"}
    document = "mpi: {extra_args: -v, mca_args: -mca a b}\nray: {port: 7001}\n"
    spec = load(document, "job.yaml", env, {})
    assert given(spec)[0] == {"ENTRYPOINT_SPEC": "job.yaml", **env}
    assert written(spec)[0] == {
        "ENTRYPOINT_MPI_EXTRA_ARGS": "-v",
        "ENTRYPOINT_MPI_MCA_ARGS": "-mca a b",
        "ENTRYPOINT_RAY_PORT": "7001",
    }
    spec = load(f"launcher: mpirun\n{document}", "job.yaml", env, {})
    assert given(spec)[0] == {
        "ENTRYPOINT_SPEC": "job.yaml",
        "ENTRYPOINT_PORT": "7000",
        "OPENMPI_X_ARGS": "-x A",
    }
    assert written(spec)[0] == {
        "ENTRYPOINT_LAUNCHER": "mpirun",
        "ENTRYPOINT_LAUNCHER_ARGS": '["-v"]',
        "OPENMPI_MCA_ARGS": "-mca a b",
        "ENTRYPOINT_RAY_PORT": "7001",
    }


def test_the_table_names_what_there_is() -> None:
    launchers = set(registry.names("launchers"))
    present = {field.path for field in fields()}
    properties = schema()["properties"]
    for path, former in FORMER.items():
        section, _, key = path.partition(".")
        assert path not in present
        assert former.now in present or former.now.startswith("env.")
        assert set(former.launchers) <= launchers
        where = properties[section]
        where = schema()["$defs"][where["$ref"][8:]] if "$ref" in where else where
        assert where["properties"][key]["deprecated"] is True
        assert (removed(f"--{path}") or "").startswith(f"set {former.now} in the spec, or ")
    assert {"ENTRYPOINT_PORT", "ENTRYPOINT_RAY_PORT", "MASTER_PORT"} <= names_of("port")
    variables = [name for field in former_fields().values() for name in (field.env, *field.aliases)]
    assert len(variables) == len({*variables})


@pytest.mark.parametrize(
    ("document", "says"),
    [
        ("accelerate: {extra_arg: [a]}", "accelerate.extra_arg: EP102 unknown key | `extra_arg` | did"),
        ("jax: {port: many}", "jax.port: EP100 a whole number from 1 to 65535 is needed | "),
        ("jax: 7", "jax: EP100 a mapping of keys to values is needed"),
        ("mpi: {x_args: [a]}", "mpi.x_args: EP100 text is needed | a list"),
        ("mpi: {tune_file: ''}", "mpi.tune_file: EP100 a path is needed"),
        ("extra_args: [a]", "extra_args: EP102 unknown key | `extra_args` | did you mean `launcher_args`?"),
    ],
)  # fmt: skip
def test_a_former_setting_is_checked_as_before(document: str, says: str) -> None:
    with pytest.raises(SpecError) as caught:
        load(document, "job.yaml", {}, {})
    assert says in caught.value.lines()[0]


@pytest.mark.parametrize(
    ("document", "env", "path"),
    [
        ("mpi: {tune_file: sub/x}", {}, "/spec/sub/x"),
        ("", {"ENTRYPOINT_MPI_TUNE_FILE": "sub/x"}, "/here/sub/x"),
        ("", {"TUNE_ENV_FILE": "sub/x"}, "/here/sub/x"),
    ],
)
def test_its_path_starts_where_it_was_written(
    document: str, env: dict[str, str], path: str
) -> None:
    spec = load(document, "job.yaml", env, {}, {"spec": "/spec", "env": "/here"})
    assert for_launcher(spec, "mpirun").option("TUNE_ENV_FILE") == path


def test_nothing_is_a_former_section_too() -> None:
    spec = load("accelerate:\njax: {port: }\nmpi:\n", "job.yaml", {}, {})
    assert spec == load("", "job.yaml", {}, {})
    assert spec.renamed == []
