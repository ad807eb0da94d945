"""The documents: every link leads somewhere, every page is in the index, and a page that is named
anywhere is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from entrypoint.base.registry import names
from entrypoint.spec.table import fields
from tests import TREE

pytestmark = pytest.mark.textual

PAGES = sorted([*TREE.glob("*.md"), *TREE.glob("docs/**/*.md"), *TREE.glob("tests/*.md")])
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


def test_every_link_leads_somewhere() -> None:
    assert len(PAGES) > 10
    assert {
        str(page): wrong for page in PAGES if (wrong := dead_links(page, page.read_text()))
    } == {}
    # Control: what leads nowhere is named.
    links = "# Top\n[a](gone.md) [b](#top) [c](#gone) [d](CHANGELOG.md#nowhere) [e](docs) [f](https://x.example/)"
    assert dead_links(TREE / "README.md", links) == ["gone.md", "#gone", "CHANGELOG.md#nowhere"]


FIRST = re.compile(r"<!-- (Translation of|Follows) (\S+?)(, for [\w ]+)? -->\n")
CHINESE = sorted([*TREE.glob("*.zh-CN.md"), *TREE.glob("docs/zh/*.md")])


def code(text: str) -> list[str]:
    """The lines of a page's blocks of code."""
    return "".join(re.findall(r"(?ms)^ *```\w*\n(.*?)^ *```$", text)).splitlines()


@pytest.mark.parametrize("page", CHINESE, ids=lambda page: str(page.name))
def test_a_chinese_page_has_the_code_of_its_english_page(page: Path) -> None:
    """The first line names that page; one that follows a page may have a part of its code."""
    text = page.read_text()
    first = FIRST.match(text)
    assert first, f"{page}: the first line names the English page"
    english = (TREE / first[2]).read_text()
    if first[1] == "Follows":
        assert [line for line in code(text) if line not in code(english)] == []
    else:
        assert code(text) == code(english)
        rows = r"(?m)^(?:\||#+ )"
        assert len(re.findall(rows, text)) == len(re.findall(rows, english))
    link = r"English \| \[简体中文\]\((\S+)\)"
    target = re.search(link, english)
    assert target, f"no link to {page}"
    assert (TREE / first[2]).parent.joinpath(target[1]).resolve() == page.resolve()


# Of a page: what docs/extending/ and platforms.md make up, and what CHANGELOG.md tells of earlier
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
    sources = text + "".join(path.read_text() for path in (TREE / "tests").rglob("*.py"))
    modules = {path.stem for path in (TREE / "tests").rglob("test_*.py")}
    modules |= {*re.findall(r"^# (test_\w+)\.py$", text, re.MULTILINE)}  # a user's
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
    ports = [field.path for field in fields() if field.path.rpartition(".")[2] == "port"]
    launchers = names("launchers")
    assert len(ports) > 2
    assert [name for name in (*ports, *launchers) if f"`{name}`" not in text] == []


def test_no_page_installs_a_name_that_is_not_ours() -> None:
    """Nobody has registered the distribution's name: whoever does would run in users' images."""
    for page in PAGES:
        assert not re.search(r"pip3? install [^\n`]*\btraining-entrypoint\b", page.read_text()), (
            page
        )
