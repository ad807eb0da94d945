"""Makes the pages of the docs site from those of the repository, for `make docs`: the front page,
the navigation, links out of docs/, and tables for narrow screens. scripts/site/hooks.py gives them
to MkDocs."""

from __future__ import annotations

import html
import itertools
import posixpath
import re
from collections.abc import Callable
from typing import Any

from tests import TREE, golden_messages

GENERATED = {"docs/reference/messages.md": golden_messages.markdown}
INDEX = "docs/README.md"
_COMMENT = re.compile(r"(?s)\A(?:<!--.*?-->\s*)+")  # MkDocs takes a title from the first line only
_LINK = re.compile(r'(\]\(|(?:src|srcset)=")([^)\s#":]+)')
_FILE_NAME = re.compile(r"\[`?[\w.-]+\.md`?\]\(([^)\s#:]+)")


def read(path: str) -> str:
    """Return the text of a page of the repository."""
    made = GENERATED.get(path)
    return made() if made else _COMMENT.sub("", (TREE / path).read_text("utf-8"))


def address(path: str) -> str:
    """Return where the site has a file or folder of the repository; its front page is README.md."""
    if path in ("README.md", INDEX):
        return {INDEX: "contents.md"}.get(path, path)
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    return f"repo/{path.removesuffix('.md')}.md".replace("/.", "/")


def with_links(path: str, text: str, place: Callable[[str], str]) -> str:
    """Return the text of this file with its links to other files of the repository as place()
    says."""

    def other(link: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(posixpath.dirname(path), link[2]))
        return (
            link[1] + place(target) if target in GENERATED or (TREE / target).exists() else link[0]
        )

    return _LINK.sub(other, text)


def _targets(path: str) -> list[str]:
    found = []

    def place(target: str) -> str:
        found.append(target)
        return ""

    with_links(path, read(path), place)
    return found


def outside() -> list[str]:
    """Return the files and folders outside docs/ to which pages link, or pages that these are."""
    written = [path.relative_to(TREE).as_posix() for path in TREE.glob("docs/**/*.md")]
    found = ["README.md", *GENERATED, *written]
    for path in found:  # grows
        if path.endswith(".md"):
            found += [target for target in dict.fromkeys(_targets(path)) if target not in found]
    return [path for path in found if address(path).startswith("repo/")]


def page(path: str) -> str:
    """Return the text of the site's page of a file or folder of the repository.

    A link whose text is the name of a page's file gets the page's title. A generated page's path in
    backquotes becomes a link, since the repository has no such file.
    """
    if not path.endswith(".md"):
        return _source(path)
    folder = posixpath.dirname(address(path)) or "."

    def titled(link: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(posixpath.dirname(path), link[1]))
        title = re.match("# (.+)", read(target)) if (TREE / target).exists() else None
        return f"[{title[1]}]({link[1]}" if title else link[0]

    text = _FILE_NAME.sub(titled, read(path))
    text = with_links(path, text, lambda target: posixpath.relpath(address(target), folder))
    for uri in map(address, GENERATED):
        name = f"`{uri.removesuffix('.md')}.html`"
        text = text.replace(name, f"[{name}]({posixpath.relpath(uri, folder)})")
    return text


def navigation() -> list[dict[str, Any]]:
    """Return the site's navigation, which is the index: its headings, and the links below each."""
    sections: dict[str, Any] = {"Home": "README.md"}
    for heading, link in re.findall(r"(?m)^## (.+)|\]\(([^)#:]+)", page(INDEX)):
        if heading:
            sections[heading] = []
        else:
            sections[[*sections][-1]].append(link)
    return [{heading: links} for heading, links in sections.items()]


def labelled(content: str) -> str:
    """Return the HTML with the head of its column in each cell of a table, for narrow screens
    (docs/assets/site.css)."""

    def cells(table: re.Match[str]) -> str:
        heads = [re.sub("<.+?>", "", head) for head in re.findall(r"<th.*?>(.*?)</th>", table[0])]
        label = itertools.cycle(html.escape(html.unescape(head)) for head in heads)
        return re.sub(r"<td\b", lambda _: f'<td data-label="{next(label)}"', table[0])

    return re.sub(r"(?s)<table>.*?</table>", cells, content)


def with_whole_flags(content: str) -> str:
    """Return the HTML with each flag in its code in a span, since a browser breaks a line after any
    hyphen of `--log-prefix` (docs/assets/site.css)."""

    def flags(code: re.Match[str]) -> str:
        return re.sub(r"(?<=[\s>;(\[])-[\w-]+", r'<span class="flag">\g<0></span>', code[0])

    return re.sub(r"(?s)<code>.*?</code>", flags, content)


def with_wrapped_logs(content: str) -> str:
    """Return the HTML with blocks that show the toolkit's log as consoles, which wrap on a narrow
    screen (docs/assets/site.css)."""
    log = r'(?s)"language-text( highlight">(?=<pre>(?:(?!</pre>).)*?\[entrypoint))'
    return re.sub(log, r'"language-console\1', content)


def _source(path: str) -> str:
    """Return a page that shows a file, or each file of a folder."""
    top = TREE / path
    files = [top] if top.is_file() else sorted(file for file in top.rglob("*") if file.is_file())
    parts = ["---\nsearch: {exclude: true}\n---", f"# {path}"]
    for file in files:
        if file.suffix != ".pyc":
            parts += [] if file == top else [f"## {file.relative_to(top)}"]
            language = file.suffix[1:] or file.name.lower()
            parts.append(f"~~~~~~ {language}\n{file.read_text('utf-8')}\n~~~~~~")
    return "\n\n".join(parts)
