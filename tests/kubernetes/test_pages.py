"""What docs/how-to/kubernetes.md, kustomize.md and checkpoints.md say, typed as it stands there
on a real Kubernetes. Of a block only the image's name is another one."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests import TREE
from tests.kubernetes.realcluster import PAGE, Namespace, block
from tests.recipes import for_kind, recipes

SPEC = """\
name: demo
launcher: mpirun
slots: 1
command: [sh, -c, '{command}']
timeouts: {{peers: 120, grace: 5}}
"""
RUNS = 'echo "rank $OMPI_COMM_WORLD_RANK runs"'
# What a rank of each recipe sees, beside that its job runs.
SEES = {
    "Data from a volume, on certain nodes": "[ -e /data/samples ]",
    "A user by number": "[ $(id -u) = 1000 ]",
    "A secret as a file or a variable": (
        "printenv ACCESS_KEY | grep -qx .*EXAMPLE && grep -q c-4711 /run/secrets/storage/credentials"
    ),
    "A queue": "true",
    "More": "true",
}
KUSTOMIZE = f"{TREE}/docs/how-to/kustomize.md"
KEEP = f"{TREE}/docs/how-to/checkpoints.md"
GPUS = "nvidia.com/gpu"


def gpus(namespace: Namespace) -> None:
    """Give each node GPUs that are none, since the pages ask for eight for each Pod. They stay."""
    for node in ("node1", "node2"):
        namespace.seats(GPUS, node, 64)


def secret(namespace: Namespace) -> None:
    """Make the job's secret, by the page's line."""
    namespace.typed(block(PAGE, "openssl").splitlines()[1])


def line_by_line(namespace: Namespace, block: str, pods: int) -> str:
    """Type a block; return what its last line prints. It is typed when the Pods are there."""
    *lines, last = block.strip().splitlines()
    for line in lines:
        namespace.typed(line)
    namespace.until(lambda: len(namespace.pods()) == pods, 60, f"{pods} Pods")
    return namespace.typed(last, 180)


@pytest.mark.promise("the Kubernetes page's commands work as they stand there")
def test_the_first_lines_of_the_page(namespace: Namespace) -> None:
    """kubernetes.md: the four lines that it begins with, and the table of how the job ended"""
    gpus(namespace)
    (namespace.folder / "job.yaml").write_text(SPEC.format(command=RUNS))
    log = line_by_line(namespace, block(PAGE, "openssl"), 4)
    assert sorted(line[-11:] for line in log.splitlines() if line.endswith(" runs")) == [
        f"rank {rank} runs" for rank in range(4)
    ]
    assert namespace.ended(4) == [0] * 4
    lines = namespace.typed(block(PAGE, "custom-columns")).splitlines()
    assert lines[0].split() == ["POD", "RESULT"]
    assert len(lines) == 5
    assert all('"class": "success"' in line for line in lines[1:])


def test_the_page_s_jobset(namespace: Namespace) -> None:
    """kubernetes.md: the line under "Other kinds", and what it renders runs"""
    gpus(namespace)
    (namespace.folder / "job.yaml").write_text(SPEC.format(command=RUNS))
    secret(namespace)
    namespace.typed(block(PAGE, "--kind jobset"))
    namespace.typed("kubectl apply -f demo.yaml")
    assert namespace.ended(4) == [0] * 4


def test_a_changed_spec(namespace: Namespace) -> None:
    """kubernetes.md: apply alone refuses a changed spec; delete and apply, and it runs"""
    namespace.start(SPEC.format(command=RUNS), 2)
    assert namespace.ended(2) == [0, 0]
    namespace.deploy(SPEC.format(command=RUNS.replace("runs", "runs anew")), 2)
    alone = namespace.sh("kubectl apply -f demo.yaml")
    assert alone.returncode != 0
    assert "immutable" in alone.stderr
    namespace.typed("kubectl delete -f demo.yaml; kubectl apply -f demo.yaml")
    assert namespace.ended(2) == [0, 0]
    assert namespace.printed(" runs anew") == 2


def test_where_the_program_saves(namespace: Namespace) -> None:
    """checkpoints.md: a claim in each Pod, in which all ranks write"""
    out = namespace.folder / "out"
    out.mkdir()
    namespace.volume("checkpoints", out)
    (namespace.folder / "job.yaml").write_text(
        SPEC.format(command="touch /out/$OMPI_COMM_WORLD_RANK")
    )
    secret(namespace)
    namespace.typed(block(KEEP, "deploy kubernetes"))
    namespace.typed("kubectl apply -f demo.yaml")
    assert namespace.ended(2) == [0, 0]
    assert sorted(path.name for path in out.iterdir()) == ["0", "1"]


@pytest.mark.promise("the recipes of the kustomize page work as they stand there", control="what the rank looks for")  # fmt: skip
@pytest.mark.parametrize(
    "title", [title for title, files in recipes().items() if "batch.volcano.sh" not in str(files)]
)
def test_a_recipe(title: str, namespaces: Callable[..., Namespace]) -> None:
    """kustomize.md: a recipe, rendered and applied by the page's lines"""
    # More: Kubernetes' restricted standard allows no capability but one
    namespace = namespaces("privileged" if title == "More" else "restricted")
    gpus(namespace)
    prepare(namespace, title)
    command = f'{SEES[title]} && echo "rank $OMPI_COMM_WORLD_RANK runs"'
    (namespace.folder / "job.yaml").write_text(SPEC.format(command=command))
    secret(namespace)
    namespace.typed(fewer(title, block(KUSTOMIZE, "deploy kubernetes")))
    for name, text in recipes()[title].items():
        text = for_kind("job", text) if name == "pod.yaml" else text
        (namespace.folder / "demo" / name).write_text(text)
    namespace.typed(block(KUSTOMIZE, "apply -k"))
    nodes = 2 if title == "More" else 4
    assert namespace.ended(nodes) == [0] * nodes, namespace.said()
    assert namespace.printed(" runs") == nodes


def fewer(title: str, render: str) -> str:
    """Return the page's line, with a Pod for each host where there may be no more."""
    return render.replace("--nodes 4", "--nodes 2") if title == "More" else render


def prepare(namespace: Namespace, title: str) -> None:
    """Make what a recipe takes for granted."""
    if title == "Data from a volume, on certain nodes":
        data = namespace.folder / "data"
        data.mkdir()
        (data / "samples").touch()
        namespace.volume("datasets", data)
        namespace.typed("kubectl label node node1 node2 pool=training --overwrite")
    elif title == "A secret as a file or a variable":
        (namespace.folder / "credentials").write_text("c-4711\n")
        namespace.typed(block(KUSTOMIZE, "create secret"))
    elif title == "More":
        namespace.typed("kubectl create serviceaccount trainer")


@pytest.mark.control("the recipes of the kustomize page work as they stand there")
def test_the_data_are_not_there_without_the_recipe(namespace: Namespace) -> None:
    """the control: without the recipe the rank does not find what it looks for"""
    command = SEES["Data from a volume, on certain nodes"]
    namespace.start(SPEC.format(command=command), 2)
    assert 0 not in namespace.ended(2)
