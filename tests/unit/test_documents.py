"""The documents: every link leads somewhere, every page is in the index, and a page that is named
anywhere is there."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from entrypoint.registry import names
from entrypoint.spec.table import fields

pytestmark = pytest.mark.textual

TREE = Path(__file__).parents[2]
PAGES = sorted([*TREE.glob("*.md"), *TREE.glob("docs/**/*.md"), *TREE.glob("tests/*.md")])
OUTSIDE = {"system", "output", "ranks", "session"}  # where values come in and go out
DECIDED = {
    "spec": 1,
    "platforms": 2,
    "plan": 3,
    "job": 4,
    "check": 4,
    "netcheck": 4,
    "record": 4,
    "cli": 6,
}
LOOP = "node"
MOST_STOPS = 15
CODE = ("entrypoint", "examples", "scripts", "templates", "tests")


def anchors(text: str) -> set[str]:
    """The headings as GitHub links to them."""
    headings = re.findall(r"(?m)^#+ (.+)$", re.sub(r"(?ms)^```.*?^```", "", text))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def dead_links(page: Path, text: str) -> list[str]:
    wrong = []
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        path, _, anchor = target.partition("#")
        there = page.parent / path if path else page
        if "://" not in target and not (
            there.exists()
            and (not anchor or anchor in anchors(text if there == page else there.read_text()))
        ):
            wrong.append(target)
    return wrong


def names_of_pages() -> Iterator[tuple[str, str]]:
    files = [
        path for folder in CODE for path in (TREE / folder).rglob("*") if path.suffix != ".pyc"
    ]
    for file in filter(Path.is_file, [*files, *TREE.iterdir()]):
        for name in re.findall(r"\bdocs/[\w/-]+\.md", file.read_text(errors="replace")):
            yield str(file.relative_to(TREE)), name


def test_every_link_leads_somewhere() -> None:
    assert len(PAGES) > 10
    assert {
        str(page): wrong for page in PAGES if (wrong := dead_links(page, page.read_text()))
    } == {}
    # Control: what leads nowhere is named.
    links = "# Top\n[a](gone.md) [b](#top) [c](#gone) [d](CHANGELOG.md#nowhere) [e](docs) [f](https://x.example/)"
    assert dead_links(TREE / "README.md", links) == ["gone.md", "#gone", "CHANGELOG.md#nowhere"]


def backwards(steps: list[tuple[str, str]]) -> list[int]:
    """Return the steps (node, package) that go back: on one node a value comes in, is decided, and
    goes out.

    The loop, which carries values in both directions, has no place in this order.
    """
    wrong, stage, last = [], 0, ""
    for number, (node, package) in enumerate(steps, 1):
        arrives = node != last != "every" and package in {*OUTSIDE, "cli"}
        if arrives:
            stage = 0  # it has come to another node or process
        if package != LOOP:
            here = 0 if arrives else DECIDED.get(package, 0 if stage == 0 else 5)
            if here < stage:
                wrong.append(number)
            stage = max(stage, here)
        last = node
    return wrong


def test_a_value_never_goes_backwards() -> None:
    ways = (TREE / "docs/architecture.md").read_text().split("\n### ")[1:]
    assert [way.splitlines()[0] for way in ways] == [
        "A host name",
        "The secret",
        "A rank's exit status",
        "SIGTERM",
        "A check finding",
        "A netcheck measurement",
        "A phase of the timeline",
    ]
    for way in ways:
        rows = re.findall(r"(?m)^\| (\d+) \| (\w+) \| `(\w+)` \|", way)
        assert [int(number) for number, _, _ in rows] == list(range(1, way.count("\n| ")))
        assert 3 < len(rows) <= MOST_STOPS
        assert {package for _, _, package in rows} <= {*DECIDED, *OUTSIDE, LOOP}
        assert backwards([(node, package) for _, node, package in rows]) == []
    # Controls: a decision that asks an earlier package, also through the loop.
    assert backwards(
        [("every", "system"), ("every", "plan"), ("every", "spec"), ("every", "session")]
    ) == [3]
    assert backwards(
        [("worker", "job"), ("worker", "node"), ("worker", "session"), ("worker", "job")]
    ) == [4]


def test_every_page_is_in_the_index() -> None:
    index = TREE / "docs/README.md"
    linked = {
        (index.parent / path).resolve() for path in re.findall(r"\]\(([^)#\s]+)", index.read_text())
    }
    assert {page for page in PAGES if page.is_relative_to(index.parent)} - linked == {index}


def test_a_page_that_is_named_is_there() -> None:
    named = list(names_of_pages())
    assert len(named) > 10
    gone = [(file, name) for file, name in named if not (TREE / name).is_file()]
    # which tells of the past
    assert [(file, name) for file, name in gone if file != "CHANGELOG.md"] == []


def test_no_example_takes_its_host_s_name_from_a_variable() -> None:
    """HOSTNAME may be another node's, as in a task of srun: examples ask the kernel."""
    sources = [
        path
        for path in (TREE / "examples").rglob("*")
        if path.suffix in (".py", ".sh", ".c", ".yaml")
    ]
    assert len(sources) > 20
    assert [str(path.relative_to(TREE)) for path in sources if "HOSTNAME" in path.read_text()] == []


# Of a page: what CONTRIBUTING.md and platforms.md make up, and what CHANGELOG.md tells of earlier
# versions.
MADE_UP = re.compile(r"/(acme|lumen|beacon|cli/hosts|NAME)\b")
CODE_PATH = re.compile(rf"(?<![\w/.-])(?:{'|'.join(CODE)}|docs)/[\w./-]*\w")


def gone(text: str) -> list[str]:
    """The files and tests that a page names and that are not there."""
    paths = [
        path
        for path in CODE_PATH.findall(text)
        if not (TREE / path).exists() and not MADE_UP.search(path)
    ]
    sources = "".join(path.read_text() for path in (TREE / "tests").rglob("*.py"))
    modules = {path.stem for path in (TREE / "tests").rglob("test_*.py")}
    tests = {
        name for name in re.findall(r"\btest_\w+", text) if f"def {name}(" not in sources
    } - modules
    return [*paths, *sorted(tests)]


@pytest.mark.promise("every file and test that a page names exists, and every port is documented")
def test_every_file_and_test_that_a_page_names_is_there() -> None:
    pages = [page for page in PAGES if page.name != "CHANGELOG.md"]
    assert gone("".join(page.read_text() for page in pages)) == []


@pytest.mark.control("every file and test that a page names exists, and every port is documented")
def test_a_file_or_test_that_is_gone_is_named() -> None:
    assert gone("see entrypoint/host/derive.py and `test_of_old`, entrypoint/node.py") == [
        "entrypoint/host/derive.py",
        "test_of_old",
    ]


@pytest.mark.promise("every file and test that a page names exists, and every port is documented")
def test_every_port_and_launcher_is_in_the_table_of_ports() -> None:
    """A new setting of a port, or a new launcher, needs its line in what others on the network can
    reach."""
    text = (
        (TREE / "docs/explanation/security.md")
        .read_text()
        .partition("\n## Ports\n")[2]
        .partition("\n## ")[0]
    )
    ports = [field.path for field in fields() if field.path.endswith(".port")]
    launchers = names("launchers")
    assert len(ports) > 5
    assert [name for name in (*ports, *launchers) if f"`{name}`" not in text] == []


def test_readme_is_short_and_begins_with_what_to_know() -> None:
    lines = (TREE / "README.md").read_text().splitlines()
    assert len(lines) <= 120
    screen = "\n".join(lines[:25])
    for needed in ("**Status:**", "**Never tried**", "make demo", "make wheel", "docker run"):
        assert needed in screen


def test_no_page_installs_a_name_that_is_not_ours() -> None:
    """Nobody has registered the distribution's name: whoever does would run in users' images."""
    for page in PAGES:
        assert not re.search(r"pip3? install [^\n`]*\btraining-entrypoint\b", page.read_text()), (
            page
        )


def test_the_page_of_the_boot_names_messages_that_there_are() -> None:
    """What a node `sends` or `receives` there."""
    from entrypoint.job.messages import LEADER_SAYS, WORKER_SAYS

    names = {
        re.sub(r"(?<!^)(?=[A-Z])", "_", message.__name__).lower()
        for message in (*LEADER_SAYS, *WORKER_SAYS)
    }
    text = (TREE / "docs/explanation/boot.md").read_text()
    told = re.findall(r"(?:sends|receives|phases and|then) `([a-z_]+)[ `]", text)
    assert len(told) >= 6
    assert set(told) <= names
