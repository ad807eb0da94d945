"""The docs site, built strictly from docs/ and shown by a real Chromium: on a telephone and a
screen, light and dark."""

from __future__ import annotations

import contextlib
import functools
import html
import http.server
import os
import re
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

from tests.command import captured
from tests.pages import browser, missing

pytestmark = [
    pytest.mark.see,
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.skipif(bool(missing()), reason=missing()),
]
TREE = Path(__file__).parents[2]
SITE = TREE / "build/docs"
SCREENS = TREE / "build/docs-screens"
REPO = "https://git.example.org/team/entrypoint"
LOOKS = [(scheme, width) for scheme in ("light", "dark") for width in (1280, 400)]
PAGES = ("index.html", "how-to/docker.html", "reference/spec.html", "zh/first-job.html")


def build(tree: Path, repo: str = REPO) -> subprocess.CompletedProcess[str]:
    return captured([tree / "scripts/docs"], cwd=tree, env={**os.environ, "DOCS_REPO": repo})


@pytest.fixture(scope="module")
def site() -> Path:
    done = build(TREE)
    assert done.returncode == 0, done.stderr
    return SITE


@pytest.fixture(scope="module")
def served(site: Path) -> Iterator[str]:
    """The site's address on a web server of this machine: browsers read no index from a folder."""
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=site)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    with browser() as made:
        yield made


def links(page: Path) -> Iterator[tuple[Path, str]]:
    """The file and the anchor that each link within the site leads to."""
    for written in re.findall(r'<a\b[^>]*\bhref="([^"]*)"', page.read_text(encoding="utf-8")):
        address, _, anchor = html.unescape(written).partition("#")
        if not re.match(r"[a-z]+:", address):
            yield (page.parent / unquote(address)).resolve() if address else page, unquote(anchor)


def test_each_page_is_there_and_each_link_within_the_site_leads_somewhere(
    site: Path, record_property: Callable[[str, object], None]
) -> None:
    pages = [path for path in site.rglob("*.html") if path.name != "404.html"]
    ids = {
        page: set(re.findall(r'\bid="([^"]*)"', page.read_text(encoding="utf-8"))) for page in pages
    }
    made = {page.relative_to(site).with_suffix("").as_posix() for page in pages}
    wanted = {
        path.relative_to(TREE / "docs").with_suffix("").as_posix()
        for path in (TREE / "docs").rglob("*.md")
    }
    assert made - {"index"} == (wanted | {"reference/messages"}) - {"README"}
    dead, count = [], 0
    for page in pages:
        for target, anchor in links(page):
            count += 1
            there = target / "index.html" if target.is_dir() else target
            known = anchor in ids.get(there, ()) or anchor in ("", "__skip")
            if not there.exists() or not known:
                dead.append(f"{page.relative_to(site)}: {target.name}#{anchor}")
    record_property("pages", len(pages))
    record_property("links", count)
    assert (dead, count > 1000) == ([], True)


def test_each_page_has_a_link_to_its_source(site: Path) -> None:
    text = (site / "how-to/docker.html").read_text(encoding="utf-8")
    assert f'href="{REPO}/edit/main/docs/how-to/docker.md"' in text


def test_every_page_leads_to_the_generated_page_of_messages(site: Path) -> None:
    for name in ("how-to/docker.html", "how-to/troubleshooting.html"):  # the second in its text
        text = (site / name).read_text(encoding="utf-8")
        assert 'href="../reference/messages.html"' in text
    assert '<a href="../reference/messages.html"><code>' in text


@pytest.mark.parametrize(("scheme", "width"), LOOKS)
@pytest.mark.parametrize("name", PAGES)
def test_a_page_fits_and_asks_nobody(
    name: str, scheme: str, width: int, site: Path, chromium: Any
) -> None:
    asked: list[str] = []
    size = {"width": width, "height": 800}
    tab = chromium.new_page(viewport=size, color_scheme=scheme)
    tab.on("request", lambda request: asked.append(request.url))
    tab.goto((site / name).as_uri(), wait_until="load")
    assert [url for url in asked if not url.startswith(("file:", "data:", "blob:"))] == []
    assert tab.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
    colour = tab.evaluate("getComputedStyle(document.body).backgroundColor")
    light = sum(map(int, re.findall(r"\d+", colour)[:3])) > 3 * 128
    assert light == (scheme == "light"), colour
    if name == PAGES[1]:
        SCREENS.mkdir(parents=True, exist_ok=True)
        tab.screenshot(path=SCREENS / f"{scheme}-{width}.png")
    tab.close()


def search(tab: Any, url: str, words: str, entered: str) -> list[str]:
    """Return the links of the results for words entered before or after the search has its
    index."""

    def hold(route: Any) -> None:
        tab.wait_for_function("document.querySelector('.md-search__input').value")
        route.continue_()

    if entered == "before":
        tab.route("**/search_index.json", hold)
    tab.goto(url, wait_until="load")
    if entered == "after":
        ready = ".md-search-result__meta:has-text('Type to start searching')"
        tab.wait_for_selector(ready, state="attached", timeout=10_000)
    if tab.viewport_size["width"] == 400:
        tab.click("label[for=__search].md-icon >> visible=true")
    tab.fill("input.md-search__input", words)  # an input event without a key, as from a paste
    tab.wait_for_selector(".md-search-result__link", timeout=10_000)
    return tab.eval_on_selector_all(".md-search-result__link", "all => all.map(a => a.href)")


@pytest.mark.parametrize("entered", ["before", "after"])
@pytest.mark.parametrize("width", [1280, 400])
@pytest.mark.parametrize(
    ("words", "page"),
    [("rank table", "ranktables"), ("密钥", "zh/"), ("EP602", "messages.html?h=ep602#ep602")],
)
def test_the_search_finds_words(
    words: str, page: str, width: int, entered: str, served: str, chromium: Any
) -> None:
    with contextlib.closing(chromium.new_page(viewport={"width": width, "height": 800})) as tab:
        found = search(tab, f"{served}/index.html", words, entered)
    assert any(page in link for link in found), found


def copy_sources(folder: Path) -> None:
    for name in ("docs", "entrypoint", "scripts/dev", "scripts/site"):
        shutil.copytree(TREE / name, folder / name)
    (folder / "tests").mkdir()  # of which the site needs what renders its page of messages
    renders = [f"tests/{name}.py" for name in ("__init__", "golden_messages", "markdown")]
    for name in ("mkdocs.yml", "scripts/docs", *renders):
        shutil.copy(TREE / name, folder / name)


def test_without_the_repository_s_address_the_site_has_no_links_to_sources(tmp_path: Path) -> None:
    copy_sources(tmp_path)
    done = build(tmp_path, repo="")
    assert done.returncode == 0, done.stderr
    assert "/edit/main" not in (tmp_path / "build/docs/how-to/docker.html").read_text("utf-8")


@pytest.mark.parametrize(
    ("page", "wrong"),
    [("how-to/docker.md", "[a](no-such-page.md)"), ("README.md", "[a](how-to/docker.md#no-such)")],
)
def test_a_link_that_leads_nowhere_fails_the_build(page: str, wrong: str, tmp_path: Path) -> None:
    copy_sources(tmp_path)
    with (tmp_path / "docs" / page).open("a", encoding="utf-8") as file:
        file.write(f"\n{wrong}\n")
    done = build(tmp_path)
    assert done.returncode != 0
    assert "no-such" in done.stderr
