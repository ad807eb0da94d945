"""The docs site's pages: links that lead somewhere on the site, and tables for narrow screens."""

from __future__ import annotations

import re

from tests import golden_site


def test_a_link_out_of_the_documents_is_a_page_of_the_site() -> None:
    assert "[examples/spec/full.yaml](../repo/examples/spec/full.yaml.md)" in golden_site.page(
        "docs/reference/spec.md"
    )
    found = golden_site.outside()
    assert {"CONTRIBUTING.md", "examples/spec/full.yaml", "examples/ascend"} <= {*found}
    assert "## job.yaml\n\n~~~~~~ yaml\n" in golden_site.page("examples/ascend")
    assert golden_site.address("docs/README.md") == "contents.md"


def test_a_link_has_the_title_of_its_page() -> None:
    text = golden_site.page("CONTRIBUTING.md")
    assert "[Add a platform](../extending/platform.md)" in text
    assert "[platform.md]" not in text


def test_the_navigation_is_the_index() -> None:
    sections = golden_site.navigation()
    names = [name for section in sections for name in section]
    assert names == [
        "Home", "Start", "Run", "Keep it training", "Watch it", "When it fails", "For platform teams",
        "Reference", "Extend", "中文",
    ]  # fmt: skip
    assert "how-to/kubernetes.md" in sections[2]["Run"]


def test_a_cell_has_the_head_of_its_column() -> None:
    row = "<tr><td>1</td><td></td></tr>"
    table = (
        f'<table><tr><th>a</th><th style="x"><code>b</code> &amp; "c"</th></tr>{row}{row}</table>'
    )
    cells = '<tr><td data-label="a">1</td><td data-label="b &amp; &quot;c&quot;"></td></tr>'
    assert golden_site.labelled(f"{row}{table}") == (
        row + table.replace(f"{row}{row}", f"{cells}{cells}")
    )


def test_a_block_of_the_log_wraps_and_another_does_not() -> None:
    block = '<div class="language-text highlight"><pre><code>{}</code></pre></div>'
    table, log = block.format("node  host"), block.format("[entrypoint] done")
    wrapped = golden_site.with_wrapped_logs(table + log)
    assert wrapped == table + log.replace("language-text", "language-console")


def test_a_flag_in_code_stays_whole() -> None:
    code = '<code><span class="w"> </span>--log-prefix a-b -l [--all]</code>'
    whole = golden_site.with_whole_flags(f"{code} --not-code")
    assert re.findall('<span class="flag">(.+?)</span>', whole) == ["--log-prefix", "-l", "--all"]
    assert re.sub('<span class="flag">(.+?)</span>', r"\1", whole) == f"{code} --not-code"
