"""The engines and launchers that must boot: a row for each way to start one, with its test in real
containers."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass

from tests.containers import ASCEND, docker, exit_code, finished_at, logs, wait
from tests.containers import IMAGE as GPU

MPI4, MPI5 = "entrypoint-mpi:dev", "entrypoint-mpi:trixie"
TENSORFLOW, MINDSPORE = "entrypoint-tensorflow:dev", "entrypoint-mindspore:dev"
_YAML, _ALONE = "job.yaml", "variables"


@dataclass(frozen=True)
class Row:
    engine: str
    launcher: str
    given: str  # what says what to do: a job.yaml, or ModelArts' variables alone
    shape: str  # containers x processes in each
    image: str
    package: str  # whose version counts: a package of the image's Python, "mpi" or "python"
    test: str
    table: str = "engines"  # or "launchers"


def _row(
    engine: str, launcher: str, given: str, shape: str, image: str, package: str, test: str
) -> Row:
    return Row(engine, launcher, given, shape, image, package, f"tests/{test}")


def _both(
    engine: str, launcher: str, shape: str, image: str, package: str, test: str
) -> tuple[Row, Row]:
    """From a job.yaml and from variables alone, by one test."""
    test = f"engines/{test}{'' if test.endswith('-') else '['}"
    return (
        _row(engine, launcher, _YAML, shape, image, package, f"{test}{_YAML}]"),
        _row(engine, launcher, _ALONE, shape, image, package, f"{test}{_ALONE}]"),
    )


_SPAWN = "compose/test_torch_nodes.py::test_mp_spawn_from_modelarts_variables_alone"
_TORCH = "compose/test_torch_nodes.py::test_two_containers_train_as_one_process_would"
_ENGINE = "engines/test_pytorch_engine.py"
_SMOKE = "compose/test_smoke.py::test_three_containers_train_and_end_together"
_TF = "test_tensorflow_engine.py"

ROWS = (
    _row("PyTorch, one card", "plain", _YAML, "1 x 1", GPU, "torch",
         "compose/test_torch_nodes.py::test_one_card_runs_the_program_as_it_is"),
    _row("PyTorch, one card", "plain", _ALONE, "1 x 1", GPU, "torch", f"{_ENGINE}::test_one_card"),
    *_both("PyTorch, one node", "pytorch", "1 x 2", GPU, "torch", "test_pytorch_engine.py::test_one_node_of_two_cards"),
    _row("PyTorch, mp.spawn", "pytorch", _YAML, "2 x 2", GPU, "torch", f"{_TORCH}[spawn]"),
    _row("PyTorch, mp.spawn", "pytorch", _ALONE, "2 x 2", GPU, "torch", _SPAWN),
    _row("PyTorch DDP", "torchrun", _YAML, "2 x 2", GPU, "torch", f"{_TORCH}[torchrun]"),
    _row("PyTorch DDP", "torchrun", _ALONE, "2 x 2", GPU, "torch", f"{_ENGINE}::test_from_variables_alone[torchrun]"),
    _row("PyTorch DDP", "torchlaunch", _YAML, "2 x 2", GPU, "torch", f"{_TORCH}[torchlaunch]"),
    _row("PyTorch DDP", "torchlaunch", _ALONE, "2 x 2", GPU, "torch",
         f"{_ENGINE}::test_from_variables_alone[torchlaunch]"),
    _row("MA_RUN_METHOD", "torchrun", _ALONE, "2 x 2", GPU, "torch", f"{_ENGINE}::test_run_method_is_torchrun"),
    _row("Horovod, training", "mpirun", _YAML, "3 x 2", GPU, "horovod", _SMOKE),
    *_both("Horovod, benchmark", "mpirun", "2 x 2", GPU, "horovod", "test_horovod_engine.py::test_benchmark"),
    *_both("MPI, C", "mpirun", "2 x 2", MPI4, "mpi", "test_mpi_engine.py::test_c[4-"),
    *_both("MPI, C", "mpirun", "2 x 2", MPI5, "mpi", "test_mpi_engine.py::test_c[5-"),
    *_both("MPI, mpi4py", "mpirun", "2 x 2", MPI4, "mpi4py", "test_mpi_engine.py::test_mpi4py[4-"),
    *_both("MPI, mpi4py", "mpirun", "2 x 2", MPI5, "mpi4py", "test_mpi_engine.py::test_mpi4py[5-"),
    *_both("Ascend", "ascend", "2 x 2", ASCEND, "python", "test_ascend_engine.py::test_two_nodes_of_two_cards"),
    _row("Ascend, one node", "ascend", _ALONE, "1 x 2", ASCEND, "python",
         "engines/test_ascend_engine.py::test_one_node"),
    *_both("TensorFlow, one node", "plain", "1 x 1", TENSORFLOW, "tensorflow-cpu", f"{_TF}::test_one_node"),
    *_both("TensorFlow, between-graph", "tensorflow", "3 x 1", TENSORFLOW, "tensorflow-cpu",
           f"{_TF}::test_between_graph"),
    *_both("TensorFlow, ps strategy", "tensorflow", "4 x 1", TENSORFLOW, "tensorflow-cpu",
           f"{_TF}::test_parameter_server_strategy"),
    *_both("MindSpore", "mpirun", "2 x 2", MINDSPORE, "mindspore", "test_mindspore_engine.py::test_mpirun"),
    *_both("MindSpore", "msrun", "2 x 2", MINDSPORE, "mindspore", "test_mindspore_engine.py::test_msrun"),
)  # fmt: skip


# --------------------------------------------------------------------------------------------------
# Launchers: the table of `make test-launchers`


@dataclass(frozen=True)
class Example:
    """An example that tests/engines/test_launchers.py runs in each way that it has.

    It prints `rank N of M on HOST, ...` from every process, and compares itself with one process as
    `agrees` reads it. With `--fail S` one ends with S half way; with `--stay` each says `rank N is
    up`, and at SIGTERM `rank N told`.
    """

    engine: str
    launcher: str
    spec: str  # below examples/
    image: str
    package: str  # as in Row
    program: tuple[str, ...] = ("train.py",)  # the command's first words
    tolerance: str = "1e-10"
    nodes: int = 2
    slots: int = 2
    ways: str = "trains fails stops"
    anywhere: bool = False  # rank 0 need not be on the first host, and so on

    @property
    def hosts(self) -> list[str]:
        return [f"worker-{rank}" for rank in range(self.nodes)]


JAX, ACCELERATE = "entrypoint-jax:dev", "entrypoint-accelerate:dev"
DEEPSPEED, LIGHTNING = "entrypoint-deepspeed:dev", "entrypoint-lightning:dev"
RAY, MPICH = "entrypoint-ray:dev", "entrypoint-hydra:trixie"
_ALL = "trains variables fails stops"
EXAMPLES = {
    "jax": Example("JAX", "jax", "jax/job.yaml", JAX, "jax", ("python", "train.py"), ways=_ALL),
    "accelerate": Example(
        "Accelerate", "accelerate", "accelerate/job.yaml", ACCELERATE, "accelerate", ways=_ALL
    ),
    "deepspeed": Example(
        "DeepSpeed",
        "deepspeed",
        "deepspeed/job.yaml",
        DEEPSPEED,
        "deepspeed",
        tolerance="1e-05",
        ways=_ALL,
    ),
    "lightning": Example(
        "Lightning", "torchrun", "lightning/job.yaml", LIGHTNING, "lightning", ways=_ALL
    ),
    "ray-actors": Example(
        "Ray, actors", "ray", "ray/job.yaml", RAY, "ray", ("python", "actors.py"), anywhere=True
    ),
    "ray-train": Example(
        "Ray Train",
        "ray",
        "ray/train.yaml",
        RAY,
        "ray",
        ("python", "train.py"),
        ways="trains",
        anywhere=True,
    ),
    "hydra": Example(
        "MPICH, mpi4py", "hydra", "hydra/job.yaml", MPICH, "mpich", ("python", "train.py")
    ),
    "elastic": Example(
        "PyTorch DDP, elastic",
        "torchrun",
        "pytorch-elastic/job.yaml",
        GPU,
        "torch",
        nodes=3,
        ways="trains fails stops loses",
        anywhere=True,
    ),
}
_WAYS = {
    "trains": ("trains as one process", "test_it_trains_as_one_process_would"),
    "variables": ("the same, from variables", "test_it_trains_from_variables_alone"),
    "fails": ("a process fails", "test_a_failing_process_is_everybody_s_status"),
    "stops": ("SIGTERM", "test_sigterm_reaches_every_process"),
    "loses": ("a node is killed", "test_the_others_go_on"),
}
LAUNCHERS = tuple(
    Row(each.engine, each.launcher, _WAYS[way][0], f"{each.nodes} x {each.slots}", each.image, each.package,
        f"tests/engines/test_launchers.py::{_WAYS[way][1]}[{name}]", "launchers")
    for name, each in EXAMPLES.items() for way in each.ways.split()
)  # fmt: skip

ROW_OF = {row.test: row for row in (*ROWS, *LAUNCHERS)}


@functools.cache
def version(image: str, package: str, launcher: str) -> str:
    """What the image itself says it has."""
    if package == "mpi":
        said = docker("run", "--rm", "--entrypoint", "mpirun", image, "--version")
        return "Open MPI " + (re.search(r"\d+\.\d+\.\d+", said) or ["?"])[0]
    if package == "mpich":
        said = docker("run", "--rm", "--entrypoint", "mpiexec.hydra", image, "--version")
        return "MPICH " + (re.search(r"Version: +(\S+)", said) or ["", "?"])[1]
    if package == "python":
        said = docker("run", "--rm", "--entrypoint", "python", image, "--version")
        return f"{said.strip()}, cards simulated"
    code = f"from importlib.metadata import version; print(version('{package}'))"
    found = (
        f"{package} " + docker("run", "--rm", "--entrypoint", "python", image, "-c", code).strip()
    )
    if launcher != "mpirun" or package == "mindspore":
        return found
    return f"{found}, " + version(image, "mpi", "")


def said(containers: dict[str, str]) -> str:
    """Everything that these containers printed."""
    return "".join(f"--- {name}\n{logs(each)}" for name, each in containers.items())


def ended(
    containers: dict[str, str], seconds: float = 150, together: float = 2.0
) -> dict[str, int]:
    """Each container's status; all end by themselves, and together."""
    wait(*containers.values(), timeout=seconds)
    ends = [finished_at(each) for each in containers.values()]
    assert max(ends) - min(ends) < together, said(containers)
    return {name: exit_code(each) for name, each in containers.items()}


def places(log: str) -> list[tuple[str, str, str]]:
    """Rank, host and local rank, as the examples print them."""
    return sorted(re.findall(r"rank (\d+) of \d+ on (\S+), local rank (\d+), pid \d", log))


def expected(hosts: list[str], slots: int = 2) -> list[tuple[str, str, str]]:
    """What `places` has to be."""
    every = [(host, local) for host in hosts for local in range(slots)]
    return sorted((str(rank), host, str(local)) for rank, (host, local) in enumerate(every))


def agrees(log: str, allowed: str, falling: bool = True) -> None:
    """The example's own comparison with one process, and its loss."""
    found = re.search(r"difference to one process: (\S+) \(allowed (\S+)\)", log)
    assert found, log
    assert found[2] == allowed, log
    assert float(found[1]) <= float(allowed), log
    if falling:
        losses = re.search(r"loss (\S+) -> (\S+)", log)
        assert losses, log
        assert float(losses[2]) < 0.8 * float(losses[1]), log
