"""Every page of tests/pages.py in a real Chromium: it needs no network and no script, and everybody
can read it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.pages import LOOKS, PAGES, Page, browser, missing

pytestmark = [
    pytest.mark.see,
    pytest.mark.slow,
    pytest.mark.skipif(bool(missing()), reason=missing()),
]

# Of every element with text of its own: the contrast with what is behind it (WCAG 2.2, 1.4.3) and
# its size. And what of the page cannot be seen without moving it sideways.
Note = Callable[[str, object], None]
LOOK = """() => {
  const channel = part => (part /= 255) <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
  const numbers = colour => (colour.match(/[\\d.]+/g) || []).map(Number);
  const light = rgb => 0.2126 * channel(rgb[0]) + 0.7152 * channel(rgb[1]) + 0.0722 * channel(rgb[2]);
  const covers = (shape, text) => {
    const [a, b] = [shape.getBoundingClientRect(), text.getBoundingClientRect()];
    const [x, y] = [b.x + b.width / 2, b.y + b.height / 2];
    return a.left <= x && x <= a.right && a.top <= y && y <= a.bottom;
  };
  const shape = text => [...(text.ownerSVGElement?.querySelectorAll("rect") || [])].filter(
    each => each.compareDocumentPosition(text) & 4 && getComputedStyle(each).fill != "none" && covers(each, text)
  ).pop();
  const behind = element => {
    const drawn = shape(element);
    if (drawn) return numbers(getComputedStyle(drawn).fill);
    for (let each = element; each; each = each.parentElement) {
      const rgb = numbers(getComputedStyle(each).backgroundColor);
      if (rgb.length == 3 || rgb[3] == 1) return rgb;
    }
    return matchMedia("(prefers-color-scheme: dark)").matches ? [18, 18, 18] : [255, 255, 255];
  };
  const unreadable = [];
  for (const element of document.body.querySelectorAll("*")) {
    const words = [...element.childNodes].filter(node => node.nodeType == 3).map(node => node.data.trim()).join("");
    if (!words || !element.checkVisibility()) continue;
    const style = getComputedStyle(element), own = element.ownerSVGElement ? style.fill : style.color;
    const [a, b] = [light(numbers(own)), light(behind(element))].sort((one, two) => two - one);
    const contrast = (a + 0.05) / (b + 0.05);
    if (contrast < 4.5 || parseFloat(style.fontSize) < 11)
      unreadable.push(`${words.slice(0, 40)}: contrast ${contrast.toFixed(1)}, ${style.fontSize}`);
  }
  return {unreadable, wide: document.documentElement.scrollWidth - innerWidth};
}"""


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    with browser() as made:
        yield made


class Tab:
    """A page as it is shown, and what it asked for and complained about meanwhile."""

    def __init__(self, chromium: Any, file: Path, scheme: str = "light", width: int = 1000) -> None:
        self.asked: list[str] = []
        self.wrong: list[str] = []
        self.tab = chromium.new_page(viewport={"width": width, "height": 800}, color_scheme=scheme)
        self.tab.on("request", lambda request: self.asked.append(request.url))
        self.tab.on("console", lambda said: self.wrong.append(said.text))
        self.tab.on("pageerror", lambda error: self.wrong.append(str(error)))
        self.tab.goto(file.as_uri(), wait_until="load")

    def count(self, selector: str) -> int:
        """Elements that this selects, and that have a size."""
        shown = "all => all.filter(each => each.getBoundingClientRect().width > 1).length"
        found: int = self.tab.eval_on_selector_all(selector, shown)
        return found

    def look(self) -> tuple[list[str], int]:
        """What cannot be read, with every detail unfolded, and pixels that are too wide."""
        self.tab.eval_on_selector_all("details", "all => all.forEach(each => each.open = true)")
        seen = self.tab.evaluate(LOOK)
        return seen["unreadable"], seen["wide"]


@pytest.mark.promise("pages have their bars, need no network and no script, and can be read")
@pytest.mark.see("pages", "{page.name}: a bar for each node, no console error, no network request")
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_has_its_bars_and_needs_nothing(
    page: Page, chromium: Any, tmp_path: Path, record_property: Note
) -> None:
    file = tmp_path / "page.html"
    file.write_text(page.html())
    shown = Tab(chromium, file)
    bars = shown.count(page.bars)
    record_property(
        "seen", f"{bars} bars, {len(shown.wrong)} errors, {len(shown.asked) - 1} requests"
    )
    assert bars == page.count
    assert (shown.asked, shown.wrong) == ([file.as_uri()], [])


@pytest.mark.promise("pages have their bars, need no network and no script, and can be read")
@pytest.mark.see("pages", "{page.name}: can be read in light and dark, 1000 and 400 px wide")
@pytest.mark.parametrize(("scheme", "width"), LOOKS)
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_can_be_read(
    page: Page, scheme: str, width: int, chromium: Any, tmp_path: Path, record_property: Note
) -> None:
    file = tmp_path / "page.html"
    file.write_text(page.html())
    unreadable, wide = Tab(chromium, file, scheme, width).look()
    record_property(
        "seen", f"{len(unreadable)} words too pale or small, {max(wide, 0)} px too wide"
    )
    assert (unreadable, max(wide, 0)) == ([], 0)
    if scheme == "dark":
        colour = Tab(chromium, file, scheme).tab.evaluate(
            "getComputedStyle(document.body).backgroundColor"
        )
        assert max(int(part) for part in colour[4:-1].split(",")[:3]) < 64, "a dark page"


@pytest.mark.control("pages have their bars, need no network and no script, and can be read")
@pytest.mark.see("pages", "a page with all of these mistakes")
def test_what_is_wrong_with_a_page_is_seen(
    chromium: Any, tmp_path: Path, record_property: Note
) -> None:
    """The control: a page that asks for another file, has an error, is too wide, too pale and too
    small."""
    file = tmp_path / "page.html"
    file.write_text(
        "<img src='gone.png'><script>nowhere()</script><p style='color:#999;width:600px'>pale</p>"
        "<p style='font-size:8px'>small</p><b class='bar'></b>"
        "<svg><rect width='90' height='90' fill='#003'/><text y='50'>dark</text>"
        "<text y='50' fill='#fff'>clear</text></svg>"
    )
    shown = Tab(chromium, file, width=400)
    assert [url.rpartition("/")[2] for url in shown.asked] == ["page.html", "gone.png"]
    assert any("nowhere" in words for words in shown.wrong)
    unreadable, wide = shown.look()
    assert [words.partition(":")[0] for words in unreadable] == ["pale", "small", "dark"]
    record_property(
        "seen",
        f"{len(unreadable)} words too pale or small, {wide} px too wide, {len(shown.wrong)} errors",
    )
    assert wide > 100
    assert shown.count(".bar") == 0
