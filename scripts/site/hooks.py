"""The docs site's hooks: MkDocs gets its pages from tests/golden_site.py.

A file outside docs/ that a page links to becomes a page below repo/, since the repository has no
address yet that a link could have. Mermaid's library is one of the site's own files, so that no
request leaves the reader's network; pages with a diagram load it.
"""

from __future__ import annotations

import posixpath
import re
import sys
import zipfile
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File  # type: ignore[import-not-found]

from tests import golden_site

_MANY = 100  # anchors, as the page of the messages has
_MERMAID = "assets/mermaid.min.js"


def on_config(config: Any, **_: Any) -> Any:
    """Return the settings with the navigation, and without links to sources if the repository's
    address is not given."""
    config.nav = golden_site.navigation()
    if not config.repo_url:
        config.edit_uri = None
    return config


def on_files(files: Any, config: Any, **_: Any) -> Any:
    """Return the files of the site with those that docs/ has not."""
    for path in (*golden_site.GENERATED, *golden_site.outside()):
        content = golden_site.page(path)
        files.append(File.generated(config, golden_site.address(path), content=content))
    (wheel,) = Path(sys.prefix, "mermaid").glob("*.whl")  # scripts/docs downloads it
    with zipfile.ZipFile(wheel) as archive:
        for uri, name in ((_MERMAID, "mermaid.min.js"), (f"{_MERMAID}.LICENSE", "LICENSE")):
            library = archive.read(f"sphinx_immaterial/bundles/mermaid/{name}")
            files.append(File.generated(config, uri, content=library))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Return the page's text as the site has it."""
    uri = page.file.src_uri
    if uri == "README.md":
        return golden_site.front()
    return markdown if page.file.generated_by else golden_site.page(f"docs/{uri}")


def on_page_content(content: str, page: Any, **_: Any) -> str:
    """Return the page's HTML for screens of any width, with what draws its diagrams. Of a page of
    many headings, the navigation has only the sections."""
    if len(page.present_anchor_ids) > _MANY:
        for section in (each for title in page.toc for each in title.children):
            section.children = []
    diagram = r'(?s)<pre class="mermaid">.*?</pre>'
    content, drawn = re.subn(diagram, r'<div class="diagram">\g<0></div>', content)
    if drawn:
        folder = posixpath.dirname(page.file.dest_uri) or "."
        content += f'<script src="{posixpath.relpath(_MERMAID, folder)}"></script>'
    return golden_site.labelled(golden_site.with_whole_flags(content))
