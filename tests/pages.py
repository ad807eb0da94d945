"""The pages that the toolkit makes: a row each, tried in a real browser by
tests/process/test_pages.py.

`python -m tests.pages FOLDER` makes their screenshots, and those of the docs site: make screenshots.
"""

from __future__ import annotations

import contextlib
import itertools
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

from tests import TREE, made_up

LOOKS = [(scheme, width) for scheme in ("light", "dark") for width in (1000, 400)]


@dataclass(frozen=True)
class Page:
    """`html` makes the text of a made-up result; there are to be `count` elements that `bars`
    selects."""

    name: str
    html: Callable[[], str]
    bars: str
    count: int


PAGES = (Page("timeline", made_up.timeline_page, "main > .node > .bar", 4),)
SITE = TREE / "build/docs"
SITE_PAGES = ("index", "reference/spec", "performance", "reference/messages")


def missing() -> str:
    """Why no browser can be driven here; "" where one can."""
    try:
        import playwright  # noqa: F401
    except ImportError:
        return "playwright is not installed: scripts/test all pages"
    return "" if shutil.which("chromium") else "there is no chromium here: scripts/test all pages"


@contextlib.contextmanager
def browser() -> Iterator[Any]:
    """A real Chromium without a window: the system's own, none is downloaded."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        chromium = driver.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        yield chromium
        chromium.close()


def main(folder: Path) -> None:
    """Write NAME-light.png and NAME-dark.png of every page, and NAME-narrow.png, as a telephone
    shows it.
    """
    with browser() as chromium, tempfile.TemporaryDirectory() as made:
        for page in PAGES:
            file = Path(made) / f"{page.name}.html"
            file.write_text(page.html())
            for name, scheme, width in (
                ("light", "light", 1000),
                ("dark", "dark", 1000),
                ("narrow", "light", 400),
            ):
                tab = chromium.new_page(
                    viewport={"width": width, "height": 300}, color_scheme=scheme
                )
                tab.goto(file.as_uri())
                tab.screenshot(path=folder / f"{page.name}-{name}.png", full_page=True)
                print(folder / f"{page.name}-{name}.png")


def site_tab(chromium: Any, width: int = 1280, scheme: str = "light") -> Any:
    """Return a tab that finds the site at http://site/, since the theme shows the search only
    there."""

    def answer(route: Any) -> None:
        route.fulfill(path=f"{SITE}{urlsplit(route.request.url).path}")

    view = {"width": width, "height": 1600 if width > 400 else 2400}
    tab = chromium.new_page(viewport=view, color_scheme=scheme, reduced_motion="reduce")
    tab.route("http://site/**", answer)
    return tab


def first_hit(tab: Any, query: str) -> str:
    """Return the page of the site that the search finds first, or ""."""
    tab.goto(f"http://site/index.html?{urlencode({'q': query})}", wait_until="networkidle")
    tab.wait_for_selector(".md-search-result__item, .md-search-result__meta:has-text('No match')")
    found = tab.locator(".md-search-result__link").first
    return urlsplit(found.get_attribute("href")).path.strip("/") if found.count() else ""


def of_site(folder: Path) -> None:
    """Write PAGE-WIDTH-SCHEME.png: the first screens of the site's main pages."""
    with browser() as chromium:
        for page, width, scheme in itertools.product(SITE_PAGES, (1280, 400), ("light", "dark")):
            tab = site_tab(chromium, width, scheme)
            tab.goto(f"http://site/{page}.html", wait_until="networkidle")
            tab.screenshot(path=folder / f"{Path(page).name}-{width}-{scheme}.png")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
    of_site(Path(sys.argv[1]) / "site")
