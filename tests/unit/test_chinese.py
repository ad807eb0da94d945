"""Each Chinese page has the structure, the commands and the links of its English page, and
translates the text that this page has now."""

from __future__ import annotations

import posixpath
import re
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from shlex import split

import pytest

from scripts.translations import Section, Translation, main, pages, sections, translation

pytestmark = pytest.mark.textual

TREE = Path(__file__).parents[2]
_BLOCK = re.compile(r"(?ms)^(?:<!-- [^\n]+ -->\n)? *```.*?^ *```$")


def code_blocks(text: str) -> list[str]:
    """The fenced blocks, each with the comment before it that says whether it can be run."""
    return _BLOCK.findall(text)


def table_columns(text: str) -> list[list[int]]:
    """For each table the number of columns of each row."""
    tables = re.findall(r"(?m)(?:^ *\|.*\n)+", _BLOCK.sub("", text))
    return [[len(re.findall(r"(?<!\\)\|", row)) for row in each.splitlines()] for each in tables]


def list_items(text: str) -> int:
    return len(re.findall(r"(?m)^ *(?:[-*]|\d+\.) ", _BLOCK.sub("", text)))


def code_spans(text: str) -> set[str]:
    """The names, options and messages within sentences."""
    spans = re.findall(r"(?<!`)`([^`]+)`(?!`)", _BLOCK.sub("", text))
    return {" ".join(span.split()) for span in spans}


SAME: Mapping[str, Callable[[str], object]] = {
    "code blocks": code_blocks,
    "tables (columns of each row)": table_columns,
    "list items": list_items,
    "code within sentences": code_spans,
}


def slug(heading: str) -> str:
    """The anchor of a heading, as in tests/unit/test_documents.py."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def links(page: str, text: str) -> Counter[str]:
    """The targets of links: the path from the top of the tree, with the anchor."""
    found: Counter[str] = Counter()
    for target in re.findall(r"\]\(([^)\s]+)\)", _BLOCK.sub("", text)):
        path, mark, anchor = target.partition("#")
        if "://" not in target:
            path = posixpath.normpath(posixpath.join(posixpath.dirname(page), path))
            path = page if target.startswith("#") else path
        found[path + mark + anchor] += 1
    return found


class Pages:
    """All Chinese pages of a tree with their English pages."""

    def __init__(self, tree: Path) -> None:
        self.english: dict[str, str] = {}
        self.chinese: dict[str, Translation] = {}
        for name in pages(tree):
            page = translation((tree / name).read_text(encoding="utf-8"))
            self.chinese[name] = page
            self.english[name] = (tree / page.source).read_text(encoding="utf-8")

    def counterpart(self, target: str) -> str:
        """Return where the Chinese page links to where the English page links to `target`: a
        translation if there is one, the English page instead of the Chinese one, or the same."""
        path, mark, anchor = target.partition("#")
        for name, page in self.chinese.items():
            if path == name:
                return page.source
            if path == page.source and mark:
                old, new = sections(self.english[name]), sections(page.text)
                number = [slug(section.heading) for section in old].index(anchor)
                return f"{name}#{slug(new[number].heading)}"
            if path == page.source:
                return name
        return target

    def differences(self, name: str) -> Iterator[tuple[str, str]]:
        """Yield what is stale or differs in a Chinese page: the section's English heading, and what
        it is."""
        page = self.chinese[name]
        old, new = sections(self.english[name]), sections(page.text)
        if [section.level for section in old] != [section.level for section in new]:
            yield "the whole page", "levels of headings"
            return
        if name not in links(page.source, self.english[name]):
            yield old[0].heading, f"{page.source} has no link to the translation"
        for number, (english, chinese) in enumerate(zip(old, new, strict=True)):
            if page.digests[number : number + 1] != (english.digest,):
                yield english.heading, f"stale: {page.source} has changed"
            for what in self.unlike(page.source, name, english, chinese):
                yield english.heading, what

    def unlike(self, source: str, name: str, english: Section, chinese: Section) -> Iterator[str]:
        """Yield which parts of two sections differ."""
        for what, part in SAME.items():
            if part(english.text) != part(chinese.text):
                yield what
        targets: Counter[str] = Counter()
        for target, times in links(source, english.text).items():
            targets[self.counterpart(target)] += times
        if targets != links(name, chinese.text):
            yield "links"


def differences(tree: Path) -> list[tuple[str, str, str]]:
    """What is stale or differs: the Chinese page, the section by its English heading, and what."""
    every = Pages(tree)
    return [(name, *found) for name in every.chinese for found in every.differences(name)]


@pytest.mark.promise(
    "each Chinese page translates its English page as it is now, with the same commands"
)
def test_each_chinese_page_is_its_english_page() -> None:
    assert pages(TREE) == split(
        "README.zh-CN.md docs/zh/ascend.md docs/zh/exit-codes.md docs/zh/first-job.md docs/zh/modelarts.md docs/zh/ranktables.md"
    )
    assert differences(TREE) == [], "translate what has changed, then run scripts/translations.py"


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A tree with nothing but the Chinese pages and their English pages."""
    for name in pages(TREE):
        for each in (name, translation((TREE / name).read_text(encoding="utf-8")).source):
            (tmp_path / each).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(TREE / each, tmp_path / each)
    assert differences(tmp_path) == []
    return tmp_path


def change(file: Path, old: str, new: str) -> None:
    text = file.read_text(encoding="utf-8")
    assert text.count(old) >= 1, old
    file.write_text(text.replace(old, new, 1), encoding="utf-8")


ENGLISH, CHINESE, BOTH = "docs/how-to/modelarts.md", "docs/zh/modelarts.md", "On ModelArts"
STALE = f"stale: {ENGLISH} has changed"


@pytest.mark.control(
    "each Chinese page translates its English page as it is now, with the same commands"
)
@pytest.mark.parametrize(
    ("file", "old", "new", "found"),
    [
        (ENGLISH, "The body contains no secret.", "The body has no secret.", [STALE]),
        (ENGLISH, "--nodes 2", "--nodes 4", [STALE, "code blocks"]),
        (CHINESE, "--nodes 2", "--nodes 4", ["code blocks"]),
        (CHINESE, "# an IAM token", "# IAM", ["code blocks"]),
        (CHINESE, "<!-- rehearse: needs ModelArts -->\n", "", ["code blocks"]),
        (CHINESE, "| `--logs obs", "| | `--logs obs", ["tables (columns of each row)"]),
        (CHINESE, "`--resource`", "`--resources`", ["code within sentences"]),
        (CHINESE, "../reference/tested-on.md", "../reference/spec.md", ["links"]),
    ],
)
def test_a_change_is_named(copy: Path, file: str, old: str, new: str, found: list[str]) -> None:
    change(copy / file, old, new)
    assert differences(copy) == [(CHINESE, BOTH, each) for each in found]


@pytest.mark.control(
    "each Chinese page translates its English page as it is now, with the same commands"
)
def test_a_section_without_a_translation_is_named(copy: Path) -> None:
    with (copy / ENGLISH).open("a") as page:
        page.write("\n## More\n")
    assert differences(copy) == [(CHINESE, "the whole page", "levels of headings")]


def test_the_stamp_says_that_a_changed_section_was_translated(copy: Path) -> None:
    change(copy / ENGLISH, "The body contains no secret.", "The body has no secret.")
    before = (copy / CHINESE).read_text(encoding="utf-8")
    main(copy, [])
    after = (copy / CHINESE).read_text(encoding="utf-8")
    assert differences(copy) == []
    changed = zip(before.splitlines(), after.splitlines(), strict=True)
    assert [old.split(" ", 1)[1] for old, new in changed if old != new] == [BOTH]


def test_the_search_of_the_site_finds_a_word_within_a_chinese_sentence() -> None:
    config = (TREE / "mkdocs.yml").read_text(encoding="utf-8")
    separators = re.findall(r"(?m)^ +separator: '(.+)'$", config)
    assert len(separators) == 1
    words = [word for word in re.split(separators[0], "exit-codes：所有密钥。") if word]
    assert words == ["exit", "codes", "所", "有", "密", "钥"]
