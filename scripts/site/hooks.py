"""The docs site's hook: links of a page that leave docs/ show the file's path instead.

The site has no copy of the sources, and the repository has no address yet that a link could have.
A translated page loses the comment at its top, since MkDocs takes a title from the first line only.
"""

from __future__ import annotations

import posixpath
import re
from typing import Any

_COMMENT = re.compile(r"(?s)\A<!--.*?-->\s*")
_LINK = re.compile(r"(?<!!)\[([^]]+)\]\(((?:\.\./)+[^)\s#]*)(#[^)\s]*)?\)")


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Return the page's text with each link to a file outside docs/ as text and path."""

    def inside(found: re.Match[str]) -> str:
        folder = posixpath.join("docs", posixpath.dirname(page.file.src_uri))
        path = posixpath.normpath(posixpath.join(folder, found[2]))
        return found[0] if path.startswith("docs/") else f"{found[1]} (`{path}`)"

    return _LINK.sub(inside, _COMMENT.sub("", markdown))


def on_nav(nav: Any, **_: Any) -> Any:
    """Return the navigation, with a Chinese name for the folder of the Chinese pages."""
    for item in nav.items:
        if item.is_section and item.title == "Zh":
            item.title = "中文"
    return nav
