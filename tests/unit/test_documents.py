"""The documents: every link leads somewhere, every page is in the index, and a page that is named anywhere is there."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

TREE = Path(__file__).parents[2]
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
            there.exists() and (not anchor or anchor in anchors(text if there == page else there.read_text()))
        ):
            wrong.append(target)
    return wrong


def names_of_pages() -> Iterator[tuple[str, str]]:
    files = [path for folder in CODE for path in (TREE / folder).rglob("*") if path.suffix != ".pyc"]
    for file in filter(Path.is_file, [*files, *TREE.iterdir()]):
        for name in re.findall(r"\bdocs/[\w/-]+\.md", file.read_text(errors="replace")):
            yield str(file.relative_to(TREE)), name


def test_every_link_leads_somewhere() -> None:
    assert len(PAGES) > 10
    assert {str(page): wrong for page in PAGES if (wrong := dead_links(page, page.read_text()))} == {}
    # Control: what leads nowhere is named.
    links = "# Top\n[a](gone.md) [b](#top) [c](#gone) [d](CHANGELOG.md#nowhere) [e](docs) [f](https://x.example/)"
    assert dead_links(TREE / "README.md", links) == ["gone.md", "#gone", "CHANGELOG.md#nowhere"]


def test_every_page_is_in_the_index() -> None:
    index = TREE / "docs/README.md"
    linked = {(index.parent / path).resolve() for path in re.findall(r"\]\(([^)#\s]+)", index.read_text())}
    assert {page for page in PAGES if page.is_relative_to(index.parent)} - linked == {index}


def test_a_page_that_is_named_is_there() -> None:
    named = list(names_of_pages())
    assert len(named) > 10
    gone = [(file, name) for file, name in named if not (TREE / name).is_file()]
    assert [(file, name) for file, name in gone if file != "CHANGELOG.md"] == []  # which tells of the past
