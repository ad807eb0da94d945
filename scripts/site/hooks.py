"""The docs site's hook: links of a page that leave docs/ show the file's path instead.

The site has no copy of the sources, and the repository has no address yet that a link could have.
"""

from __future__ import annotations

import posixpath
import re
from typing import Any

_LINK = re.compile(r"(?<!!)\[([^]]+)\]\(((?:\.\./)+[^)\s#]*)(#[^)\s]*)?\)")


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Return the page's text with each link to a file outside docs/ as text and path."""

    def inside(found: re.Match[str]) -> str:
        folder = posixpath.join("docs", posixpath.dirname(page.file.src_uri))
        path = posixpath.normpath(posixpath.join(folder, found[2]))
        return found[0] if path.startswith("docs/") else f"{found[1]} (`{path}`)"

    return _LINK.sub(inside, markdown)
