"""Fixtures of all folders, which leave nothing behind, and marks that follow from where a test
is."""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from hypothesis import settings

from tests import TREE
from tests.cluster import Cluster
from tests.composed import Compose
from tests.containers import IMAGE, IMAGES, engine, missing, new_network
from tests.faults.faultjob import Job
from tests.modelarts import ModelArts
from tests.process.bench import Bench
from tests.proof.areas import area_of
from tests.rows import ended, said
from tests.tiers import EVERY_CHANGE, RELEASE, THOROUGH

pytest_plugins = ["tests.proof.results", "tests.plugin.overdue", "tests.plugin.pure"]
settings.register_profile("quick", deadline=None)  # an example may be slow on a busy machine
settings.register_profile("thorough", deadline=None, max_examples=300)
settings.load_profile("quick")

NOT_HERE = [name for name in ("mpirun", "ssh") if not shutil.which(name)] + (
    [] if shutil.which("sshd", path="/usr/sbin:/usr/local/sbin") else ["sshd"]
)
Ran = tuple[dict[str, str], str]  # host -> container, and all they said

CONTAINERS = (
    "bake", "compose", "engines", "faults", "image", "kubernetes", "restarts", "sbatch",
)  # fmt: skip


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--with",
        action="append",
        default=[],
        help="NAME=PATH: a Python that has torch, or what scripts/dev/python-with NAME installs; or sif=IMAGE",
    )
    parser.addoption(
        "--image", action="append", help="try this image in place of those that are handed out"
    )


def pytest_configure() -> None:
    """A shell has what it starts in its background ignore Ctrl-C, nohup SIGHUP, and what a test
    starts would, too."""
    for signum in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
        default = signal.default_int_handler if signum == signal.SIGINT else signal.SIG_DFL
        if signal.getsignal(signum) is signal.SIG_IGN:
            signal.signal(signum, default)
    # Each worker would compile all tests again, where the environment says so.
    sys.dont_write_bytecode = False


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Tests of images try both that are handed out, or the BASES of their module; with --image
    those alone."""
    given = any("image" in mark.args[0] for mark in metafunc.definition.iter_markers("parametrize"))
    if "image" in metafunc.fixturenames and not given:
        own, asked = getattr(metafunc.module, "BASES", None), metafunc.config.getoption("--image")
        images = (
            [image for image in asked if own is None or image in own] if asked else own or IMAGES
        )
        metafunc.parametrize("image", images, indirect=True)


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark what only `make test-all` or `make test-release` runs, and skip what this machine has no
    programs or images for."""
    folder = item.nodeid.split("/")[1]
    fixtures = getattr(item, "fixturenames", ())
    needs_containers = folder in CONTAINERS or (folder == "security" and "image" in fixtures)
    # Libraries of some GB are no part of `make test`.
    if (
        "launcher_python" in fixtures
        or (needs_containers and not item.nodeid.startswith(EVERY_CHANGE))
        or item.nodeid.startswith(THOROUGH)
    ):
        item.add_marker("slow")
    if item.nodeid.startswith(RELEASE) or area_of(item.nodeid).tier == "release":
        item.add_marker("release")
    reason = None
    if folder == "loopback" and NOT_HERE:
        reason = f"not on this machine: {', '.join(NOT_HERE)}"
    if folder in ("compose", "engines", "faults", "restarts", "sbatch"):
        params = getattr(item, "callspec", None)
        image = getattr(item.module, "IMAGE", IMAGE)  # type: ignore[attr-defined]
        reason = missing(str(params.params.get("image", image) if params else image))
    if reason:
        item.add_marker(pytest.mark.skip(reason=reason))


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """A quiet run does not begin with the seed."""
    seed = config.getoption("randomly_seed", None)
    if terminalreporter.verbosity < 0 and seed is not None:
        terminalreporter.write_line(f"order of the tests: --randomly-seed={seed}")


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that every user of a container can read."""
    with tempfile.TemporaryDirectory(prefix="entrypoint-") as name:
        path = Path(name)
        path.chmod(0o755)
        yield path


# --------------------------------------------------------------------------------------------------
# Processes of this machine


@pytest.fixture
def alone(request: pytest.FixtureRequest) -> Iterator[None]:
    """One of a file's tests at a time, whatever process runs it."""
    with open(request.path) as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    """A place for real processes, cleared after the test."""
    made = Bench(tmp_path)
    yield made
    for pid in made.left():
        os.kill(pid, signal.SIGKILL)


@pytest.fixture
def cluster() -> Iterator[Callable[..., Cluster]]:
    """Nodes on this machine, each with a real sshd."""
    made: list[Cluster] = []
    # Short, since a unix socket's path is: pytest's own folders are too deep.
    with tempfile.TemporaryDirectory(prefix="ep-", dir="/tmp") as folder:

        def make(nodes: int, slots: int = 2) -> Cluster:
            made.append(Cluster(Path(folder), nodes, slots))
            return made[-1]

        yield make
        for each in made:
            each.close()
            print(each.both())  # pytest shows it where the test failed


@pytest.fixture
def torch_python(python_with: Callable[[str], str]) -> str:
    """A Python with torch in it."""
    return python_with("torch")


@pytest.fixture
def python_with(pytestconfig: pytest.Config) -> Iterator[Callable[[str], str]]:
    """The path of a Python that has what this name means, or of another program."""
    given = dict(word.partition("=")[::2] for word in pytestconfig.getoption("--with"))
    with ExitStack() as held:

        def path(name: str) -> str:
            if name == "ray":  # `ray start` refuses to where it sees another's processes
                lock = held.enter_context(open(f"/tmp/ray-of-tests-{os.getuid()}", "w"))
                fcntl.flock(lock, fcntl.LOCK_EX)
            return given.get(name) or pytest.skip(f"--with names no {name}")

        yield path


# --------------------------------------------------------------------------------------------------
# Containers


@pytest.fixture
def image(request: pytest.FixtureRequest) -> str:
    """An image, as pytest_generate_tests chooses them."""
    name: str = request.param
    if reason := missing(name):
        pytest.skip(reason)
    return name


@pytest.fixture
def compose(folder: Path) -> Iterator[Compose]:
    project = Compose(folder, f"ep{os.getpid()}")
    yield project
    project.down()


@pytest.fixture
def network() -> Iterator[str]:
    name = new_network()
    yield name
    engine().networks.get(name).remove()


@pytest.fixture
def modelarts(network: str) -> Iterator[ModelArts]:
    job = ModelArts(network)
    yield job
    job.remove()


@pytest.fixture
def job_yaml(compose: Compose) -> Callable[..., Ran]:
    """Run an example's spec in containers, to a good end."""

    def run(image: str, spec: str, *command: str, seconds: float = 150) -> Ran:
        compose.render(TREE / "examples" / spec, *command, image=image)
        compose.run("up", "-d")
        return _well(compose.containers(), seconds)

    return run


@pytest.fixture
def variables(modelarts: ModelArts) -> Callable[..., Ran]:
    """Run an example from ModelArts' variables alone, to a good end."""

    def run(image: str, example: str, *command: str, seconds: float = 150, **more: object) -> Ran:
        return _well(modelarts.start(image, example, *command, **more), seconds)  # type: ignore[arg-type]

    return run


def _well(containers: dict[str, str], seconds: float) -> Ran:
    assert containers
    statuses = ended(containers, seconds)
    log = said(containers)
    assert set(statuses.values()) == {0}, log
    return containers, log


@pytest.fixture(scope="session")
def faults_network() -> Iterator[str]:
    name = new_network()
    yield name
    engine().networks.get(name).remove()


@pytest.fixture
def make(faults_network: str) -> Iterator[Callable[..., Job]]:
    """Jobs whose containers end with the test."""
    jobs: list[Job] = []

    def job(launcher: str, nodes: int = 2) -> Job:
        jobs.append(Job(faults_network, launcher, [f"worker-{rank}" for rank in range(nodes)]))
        return jobs[-1]

    yield job
    for each in jobs:
        each.close()
