#!/usr/bin/env python3
"""translations.py - note in each Chinese page which text of the English page it translates.

A Chinese page begins with a comment that names the English page and, for each section of it, the
first 8 hexadecimal digits of the SHA-256 of its text. tests/unit/test_chinese.py compares them, and
so names the section that somebody has changed. Once the translation is right, run this.

    scripts/translations.py [PAGE ...]    README.zh-CN.md docs/zh/*.md unless you name others
"""

from __future__ import annotations

import hashlib
import re
import sys
from dataclasses import dataclass
from pathlib import Path

_HEADER = re.compile(r"(?s)\A<!-- Translation of ([^\s;]+)[^\n]*\n(.*?)-->\n+")


@dataclass(frozen=True)
class Section:
    """A heading, its level (1 to 6), and the text below it up to the next heading of any level."""

    level: int
    heading: str
    text: str

    @property
    def digest(self) -> str:
        """The first 8 hexadecimal digits of the SHA-256 of heading and text."""
        whole = f"{'#' * self.level} {self.heading}\n{self.text}"
        return hashlib.sha256(whole.encode()).hexdigest()[:8]


@dataclass(frozen=True)
class Translation:
    """A Chinese page: the English page's path in the tree, the digests of its sections when they
    were translated, and the text without the comment that says so."""

    source: str
    digests: tuple[str, ...]
    text: str


def pages(tree: Path) -> list[str]:
    """Return the paths of the Chinese pages in the tree."""
    found = [*tree.glob("*.zh-CN.md"), *tree.glob("docs/zh/*.md")]
    return sorted(path.relative_to(tree).as_posix() for path in found)


def sections(text: str) -> list[Section]:
    """Return the sections of a page. A `#` in a fenced block is no heading."""
    found: list[Section] = []
    fenced = False
    for line in text.splitlines(keepends=True):
        fenced ^= line.lstrip().startswith("```")
        heading = None if fenced else re.match(r"(#+) (.+)", line)
        if heading:
            found.append(Section(len(heading[1]), heading[2].strip(), ""))
        elif found:
            found[-1] = Section(found[-1].level, found[-1].heading, found[-1].text + line)
    return found


def translation(text: str) -> Translation:
    """Return a Chinese page's parts. Raises ValueError if it does not name its English page."""
    header = _HEADER.match(text)
    if not header:
        raise ValueError("the page does not begin with <!-- Translation of PAGE")
    digests = tuple(line.split(" ")[0] for line in header[2].splitlines())
    return Translation(header[1], digests, text[header.end() :])


def stamped(page: Translation, english: str) -> str:
    """Return the Chinese page's text with the digests of the English page as it is now."""
    lines = [f"{section.digest} {section.heading}\n" for section in sections(english)]
    first = f"<!-- Translation of {page.source}; its sections, by scripts/translations.py:\n"
    return f"{first}{''.join(lines)}-->\n{page.text}"


def main(tree: Path, names: list[str]) -> None:
    """Stamp these pages, or all, and print those that change."""
    for name in names or pages(tree):
        old = (tree / name).read_text(encoding="utf-8")
        page = translation(old)
        new = stamped(page, (tree / page.source).read_text(encoding="utf-8"))
        if new != old:
            (tree / name).write_text(new, encoding="utf-8")
            print(f"{name}: stamped with {page.source}")


if __name__ == "__main__":
    main(Path(__file__).parents[1], sys.argv[1:])
