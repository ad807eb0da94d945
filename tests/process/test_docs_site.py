"""The docs site, built strictly from docs/: each page is there, and no link within it is dead."""

from __future__ import annotations

import html
import os
import re
from pathlib import Path
from urllib.parse import unquote

import pytest

from tests import TREE, table
from tests.command import captured
from tests.pages import SITE, browser, first_hit, missing, site_tab

# What users type into the search, and the page that has to be its first answer.
FOUND = table("tests/tables/docs_site.yaml")["found"]


@pytest.fixture(scope="module")
def built() -> None:
    env = {**os.environ, "REPOSITORY": "https://git.example.org/team/entrypoint"}
    done = captured([TREE / "scripts/docs"], cwd=TREE, env=env)
    assert done.returncode == 0, done.stderr


def dead(page: Path, text: str, ids: dict[Path, set[str]]) -> list[str]:
    """Return the links of a page that lead to no file or anchor of the site."""
    found = []
    for written in re.findall(r'<a\b[^>]*\bhref="([^"]*)"', text):
        address, _, anchor = html.unescape(written).partition("#")
        there = (page.parent / unquote(address)).resolve() if address else page
        there = there / "index.html" if there.is_dir() else there
        is_known = unquote(anchor) in {"", "__skip", *ids.get(there, ())}
        if not re.match(r"[a-z]+:", address) and not (there.exists() and is_known):
            found.append(written)
    return found


@pytest.mark.see
@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.usefixtures("built")
def test_the_docs_site_builds_without_dead_links() -> None:
    texts = {page: page.read_text("utf-8") for page in SITE.rglob("*.html")}
    texts.pop(SITE / "404.html")
    made = {page.relative_to(SITE).with_suffix("").as_posix() for page in texts}
    sources = {page for page in made if page.startswith("repo/")}
    assert {"repo/CONTRIBUTING", "repo/examples/spec/full.yaml"} < sources
    docs = TREE / "docs"
    wanted = {page.relative_to(docs).with_suffix("").as_posix() for page in docs.rglob("*.md")}
    assert made - sources - {"index"} == (wanted | {"reference/messages", "contents"}) - {"README"}
    front = texts[SITE / "index.html"]
    assert re.search(r"(?s)Start.*Run.*Keep it training.*When it fails.*Reference.*Extend", front)
    assert 'data-label="field"' in texts[SITE / "reference/spec.html"]
    ids = {page: set(re.findall(r'\bid="([^"]*)"', text)) for page, text in texts.items()}
    assert {page: wrong for page, text in texts.items() if (wrong := dead(page, text, ids))} == {}
    # A Chinese page has Chinese pages as its navigation, and the theme's Chinese words.
    for page, language, has in (("zh/logs", "zh", False), ("how-to/logs", "en", True)):
        shown = texts[SITE / f"{page}.html"]
        assert f'<html lang="{language}"' in shown
        assert ("slurm.html" in shown.partition('class="md-content"')[0]) is has
    # Control
    wrong = '<a href="gone.html">a</a> <a href="index.html#gone">b</a> <a href="index.html">c</a>'
    assert dead(SITE / "index.html", wrong, ids) == ["gone.html", "index.html#gone"]


@pytest.mark.see
@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.skipif(bool(missing()), reason=missing())
@pytest.mark.usefixtures("built")
def test_the_search_finds_the_page_that_a_user_means() -> None:
    with browser() as chromium:
        tab = site_tab(chromium)
        hits = {query: first_hit(tab, query).removesuffix(".html") for query in (*FOUND, "qqqxyz")}
    assert hits == {**FOUND, "qqqxyz": ""}
