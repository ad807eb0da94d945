"""The docs site, built strictly from docs/: each page is there, and no link within it is dead."""

from __future__ import annotations

import html
import json
import os
import re
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

from tests import TREE
from tests.command import captured

SITE = TREE / "build/docs"
# Words that users search for, and where they have to find them.
FOUND = {
    "rollback": "how-to/adopt-and-remove",
    "uninstall": "how-to/adopt-and-remove",
    "air-gapped": "how-to/adopt-and-remove",
    "Prometheus": "how-to/observe",
    "checkpoint": "how-to/keep-it-training",
    "libuv": "reference/torchrun",
    "NCCL": "reference/mpirun",
}


def dead(page: Path, text: str, ids: dict[Path, set[str]]) -> list[str]:
    """Return the links of a page that lead to no file or anchor of the site."""
    found = []
    for written in re.findall(r'<a\b[^>]*\bhref="([^"]*)"', text):
        address, _, anchor = html.unescape(written).partition("#")
        there = (page.parent / unquote(address)).resolve() if address else page
        there = there / "index.html" if there.is_dir() else there
        is_known = unquote(anchor) in {"", "__skip", *ids.get(there, ())}
        if not re.match(r"[a-z]+:", address) and not (there.exists() and is_known):
            found.append(written)
    return found


def not_found(index: dict[str, Any]) -> list[str]:
    """Return the words of FOUND that the search's index has no page of, or not theirs."""
    separator = index["config"]["separator"]
    words: dict[str, set[str]] = {}
    for part in index["docs"]:
        page = part["location"].partition(".html")[0]
        words.setdefault(page, set()).update(re.split(separator, f"{part['title']} {part['text']}"))
    return [
        word for word, page in FOUND.items() if not set(re.split(separator, word)) <= words[page]
    ]


@pytest.mark.see
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_docs_site_builds_without_dead_links() -> None:
    env = {**os.environ, "REPOSITORY": "https://git.example.org/team/entrypoint"}
    done = captured([TREE / "scripts/docs"], cwd=TREE, env=env)
    assert done.returncode == 0, done.stderr
    texts = {page: page.read_text("utf-8") for page in SITE.rglob("*.html")}
    texts.pop(SITE / "404.html")
    made = {page.relative_to(SITE).with_suffix("").as_posix() for page in texts}
    sources = {page for page in made if page.startswith("repo/")}
    assert {"repo/CONTRIBUTING", "repo/examples/spec/full.yaml"} < sources
    docs = TREE / "docs"
    wanted = {page.relative_to(docs).with_suffix("").as_posix() for page in docs.rglob("*.md")}
    assert made - sources - {"index"} == (wanted | {"reference/messages"}) - {"README"}
    front = texts[SITE / "index.html"]
    assert re.search(r"(?s)Start.*Run.*Keep it training.*When it fails.*Reference.*Extend", front)
    assert 'data-label="field"' in texts[SITE / "reference/spec.html"]
    # A diagram is drawn without another host.
    drawn = texts[SITE / "explanation/phases.html"]
    assert '<pre class="mermaid">' in drawn
    assert 'src="../assets/mermaid.min.js"' in drawn
    assert (SITE / "assets/mermaid.min.js").stat().st_size > 1_000_000
    ids = {page: set(re.findall(r'\bid="([^"]*)"', text)) for page, text in texts.items()}
    assert {page: wrong for page, text in texts.items() if (wrong := dead(page, text, ids))} == {}
    index = json.loads((SITE / "search/search_index.json").read_text("utf-8"))
    assert not_found(index) == []
    # Controls
    index["config"]["separator"] = r"[\s\-]+"
    assert "rollback" in not_found(index)
    wrong = '<a href="gone.html">a</a> <a href="index.html#gone">b</a> <a href="index.html">c</a>'
    assert dead(SITE / "index.html", wrong, ids) == ["gone.html", "index.html#gone"]
