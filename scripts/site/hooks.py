"""The docs site's hooks: pages that are generated here, and links that only work in the repository.

A page names a generated page by its path on the site in backquotes, which becomes a link here: the
repository has no such file. A link that leaves docs/ shows the file's path instead: the site has no
copy of the sources, and the repository has no address yet that a link could have. A translated page
loses the comment at its top, since MkDocs takes a title from the first line only.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File  # type: ignore[import-not-found]

from tests import golden_messages

_GENERATED = {"reference/messages.md": golden_messages.markdown}
_SCRIPT = "search-input.js"
_COMMENT = re.compile(r"(?s)\A<!--.*?-->\s*")
_LINK = re.compile(r"(?<!!)\[([^]]+)\]\(((?:\.\./)+[^)\s#]*)(#[^)\s]*)?\)")


def on_config(config: Any, **_: Any) -> Any:
    """Return the settings, without links to sources if the repository's address is not given."""
    if not config.repo_url:
        config.edit_uri = None
    return config


def on_files(files: Any, config: Any, **_: Any) -> Any:
    """Return the files of the site with the generated pages and the script for the search box."""
    for path, render in _GENERATED.items():
        files.append(File.generated(config, path, content=render()))
    script = (Path(__file__).parent / _SCRIPT).read_text("utf-8")
    files.append(File.generated(config, f"assets/{_SCRIPT}", content=script))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Return the page's text with links to generated pages, and each link to a file outside docs/
    as text and path."""
    folder = posixpath.dirname(page.file.src_uri)

    def inside(link: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join("docs", folder, link[2]))
        return link[0] if path.startswith("docs/") else f"{link[1]} (`{path}`)"

    text = _LINK.sub(inside, _COMMENT.sub("", markdown))
    for path in _GENERATED:
        name = f"`{path.removesuffix('.md')}.html`"
        text = text.replace(name, f"[{name}]({posixpath.relpath(path, folder or '.')})")
    return text


def on_nav(nav: Any, **_: Any) -> Any:
    """Return the navigation, with a Chinese name for the folder of the Chinese pages."""
    for item in nav.items:
        if item.is_section and item.title == "Zh":
            item.title = "中文"
    return nav
