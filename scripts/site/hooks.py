"""The docs site's hooks: MkDocs gets its pages from tests/golden_site.py.

A file outside docs/ that a page links to becomes a page below repo/, since the repository has no
address yet that a link could have. Chinese pages have a navigation of their own.
"""

from __future__ import annotations

from typing import Any

from mkdocs.structure.files import File  # type: ignore[import-not-found]
from mkdocs.structure.nav import Link, Navigation  # type: ignore[import-not-found]

from tests import golden_site

_MANY = 100  # anchors, as the page of the messages has


def on_config(config: Any, **_: Any) -> Any:
    """Return the settings with the navigation, and without links to sources if the repository's
    address is not given."""
    config.nav = golden_site.navigation()
    if not config.repo_url:
        config.edit_uri = None
    return config


def on_files(files: Any, config: Any, **_: Any) -> Any:
    """Return the files of the site with those that docs/ has not."""
    for path in (*golden_site.GENERATED, golden_site.INDEX, *golden_site.outside()):
        unfound = "---\nsearch: {exclude: true}\n---\n" if path == golden_site.INDEX else ""
        content = f"{unfound}{golden_site.page(path)}"
        files.append(File.generated(config, golden_site.address(path), content=content))
    return files


def on_nav(nav: Any, **_: Any) -> Any:
    """Return the navigation with no step from the last English page to the first Chinese one."""
    first = nav.items[-1].children[0]
    first.previous_page.next_page = first.previous_page = None
    return nav


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Return the page's text as the site has it."""
    uri = page.file.src_uri
    if uri == "README.md":
        return golden_site.page(uri)
    return markdown if page.file.generated_by else golden_site.page(f"docs/{uri}")


def on_page_content(content: str, page: Any, **_: Any) -> str:
    """Return the page's HTML for screens of any width. Of a page of many headings, the navigation
    has only the sections."""
    if len(page.present_anchor_ids) > _MANY:
        for section in (each for title in page.toc for each in title.children):
            section.children = []
    content = golden_site.with_wrapped_logs(golden_site.with_whole_flags(content))
    return golden_site.labelled(content)


def on_page_context(context: Any, page: Any, config: Any, nav: Any, **_: Any) -> Any:
    """Return what the theme makes the page of: a Chinese page has the theme's Chinese words, and
    the Chinese pages as its navigation."""
    chinese = nav.items[-1]
    is_chinese = page in chinese.children
    config.theme["language"] = "zh" if is_chinese else "en"
    if is_chinese:
        english = Link("English", nav.homepage.url)
        context["nav"] = Navigation([*chinese.children, english], nav.pages)
        context["nav"].homepage = chinese.children[0]
    return context
