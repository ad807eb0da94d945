"""The parts of pages that are made of the code: `make golden` runs `python -m tests.golden_pages`,
which rewrites them between their markers, `<!-- fields -->` and `<!-- end of fields -->`.

    phases    the table of docs/explanation/phases.md
    fields    the tables of docs/reference/spec.md
    causes    the list of docs/reference/causes.md
    probes    the table of docs/how-to/check.md
    platforms the table of docs/reference/platforms.md; and entrypoint/platforms/index.tsv
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from entrypoint.base.phases import ALLOWED
from entrypoint.base.registry import load, names
from entrypoint.causes.table import KINDS, Signature, signatures
from entrypoint.features.health.probe import rows
from entrypoint.features.health.probes import PROBES
from entrypoint.spec.jobspec import JobSpec
from entrypoint.spec.rules import FieldInfo
from entrypoint.spec.table import RESERVED, about, former_fields
from entrypoint.spec.table import fields as all_fields

DOCS = Path(__file__).parents[1] / "docs"
_FORMER = (
    "Each of these was a setting of some launchers, and still is under them; every other launcher"
    " ignores it. A former name in a file or after `ENTRYPOINT_` gives a warning with the present"
    " one. The other variables are those of other tools, and stay. `env.NAME` is the variable"
    " `NAME`, of the containers or in the spec's `env`."
)
_MOST_WORDS = 8  # of what programs print, for each cause


def markdown_table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the rows as the lines of a table in Markdown; the first is the head."""
    lines = [" | ".join(cell.replace("|", "\\|") for cell in row) for row in rows]
    return [f"| {lines[0]} |", "|" + "---|" * len(rows[0]), *(f"| {line} |" for line in lines[1:])]


def phases() -> list[str]:
    """Return the table of phases, and of those that may follow each."""
    rows = [
        (f"`{each.name}`", ", ".join(f"`{to.name}`" for to in then))
        for each, then in ALLOWED.items()
    ]
    return markdown_table([("phase", "may be followed by"), *rows])


def fields() -> list[str]:
    """Return the reference of all fields."""
    groups: dict[str, list[FieldInfo]] = {}
    for field in all_fields():
        groups.setdefault(field.path.rpartition(".")[0], []).append(field)
    whole = JobSpec()
    out: list[str] = []
    for section, members in groups.items():
        description, _ = about(getattr(whole, section) if section else whole)
        out += [f"## {f'`{section}`' if section else 'Top level'}\n", f"{description}\n"]
        head = ("field", "takes", "default", "variables", "flag", "meaning")
        out += [*markdown_table([head, *map(_row, members)]), ""]
    former = [(f"`{path}`", *_former(field)) for path, field in former_fields().items()]
    out += ["## Former names\n", f"{_FORMER}\n"]
    out += [*markdown_table([("former setting", "variables", "meaning"), *former]), ""]
    reserved = [(f"`{name}`", meaning) for name, meaning in RESERVED.items()]
    out += ["## Variables that are not fields\n"]
    return [*out, *markdown_table([("variable", "meaning"), *reserved])]


def _former(field: FieldInfo) -> tuple[str, str]:
    return " ".join(f"`{name}`" for name in (field.env, *field.aliases)), field.description


def _row(field: FieldInfo) -> tuple[str, ...]:
    default = "" if field.default in (None, (), {}) else f"`{field.default}`"
    variables, flags = (
        " ".join(f"`{name}`" for name in names)
        for names in ((field.env, *field.aliases), field.flags)
    )
    names = ", ".join(f"`{name}`" for name in field.adapters)
    takes = f"one of {names}" if names else field.type
    return f"`{field.path}`", takes, default, variables, flags, field.description


def causes() -> list[str]:
    """Return the list of all causes, and a section for each."""
    rows = [
        (f"[`{kind.slug}`](#{kind.slug})", kind.meaning, kind.blame, kind.retry)
        for kind in KINDS.values()
    ]
    out = markdown_table([("cause", "meaning", "blame", "retry"), *rows])
    for kind in KINDS.values():
        out += ["", *_section(kind)]
    return out


def _section(kind: Signature) -> list[str]:
    lines = [
        f"## {kind.slug}\n",
        f"{kind.meaning[0].upper()}{kind.meaning[1:]}.\n",
        f"- Blame: {kind.blame}. Retry: {kind.retry}.",
        f"- Fix: {kind.fix}.",
    ]
    if words := _words(kind.slug):
        lines.append(f"- Seen as: {', '.join(f'`{word}`' for word in words)}")
    return lines


def _words(slug: str) -> list[str]:
    """Return some of what programs print. A needle without its first letter, which may be a capital
    or not, gets an ellipsis."""
    rows = [row for row in signatures() if row.slug == slug and not row.also]
    plain = [row for row in rows if not row.pattern and len(row.needle) > 5]
    needles = dict.fromkeys(row.needle.strip(" (:`[") for row in plain or rows)
    whole = [needle for needle in needles if not needle[0].islower() and not needle.isdigit()]
    part = [f"…{needle}" for needle in needles if needle[0].islower()]
    return [word for word in [*whole, *part] if "`" not in word][:_MOST_WORDS]


def probes() -> list[str]:
    """Return the table of what `check` looks at."""
    head = ("", "actual value", "needed", "the same on all nodes")
    pages = (rows(kind.texts).get("page") for kind in PROBES)
    return markdown_table([head, *(page[: len(head)] for page in pages if page)])


def platforms() -> list[str]:
    """Return the table of how platforms are recognised, in their order."""
    head = ("platform", "recognised by", "hosts", "this node", "slots", "what you must add")
    rows = [
        [cell.strip() for cell in line.split("|")]
        for module in _platforms()
        for line in re.sub(r"\n {4,}", " ", module.ROWS).strip().splitlines()
    ]
    return markdown_table([head, *([*row, ""][: len(head)] for row in rows)])


def _platforms() -> list[Any]:
    modules = [load("platforms", name) for name in names("platforms")]
    return sorted(modules, key=lambda module: getattr(module, "LAYER", math.inf))


def index() -> str:
    """Return what a start needs of platforms that it does not load."""
    head = (
        "# Made of these modules by `make golden`. platform",
        "layer",
        "marks",
        "files",
        "script",
    )
    rows = [head]
    for module in _platforms():
        if hasattr(module, "MARKS"):
            name, layer = module.__name__.rpartition(".")[2], str(module.LAYER)
            values = (getattr(module, each, ()) for each in ("MARKS", "FILES", "SCRIPT"))
            rows.append((name, layer, *map(" ".join, values)))
    return "".join("\t".join(row) + "\n" for row in rows)


PARTS = {
    phases: DOCS / "explanation/phases.md",
    fields: DOCS / "reference/spec.md",
    causes: DOCS / "reference/causes.md",
    probes: DOCS / "how-to/check.md",
    platforms: DOCS / "reference/platforms.md",
}
INDEX = DOCS.parent / "entrypoint/platforms/index.tsv"


def pages() -> dict[Path, str]:
    """Return each page as it has to be."""
    made = {INDEX: index()}
    for part, page in PARTS.items():
        begin, end = f"<!-- {part.__name__} -->\n", f"<!-- end of {part.__name__} -->\n"
        text = page.read_text(encoding="utf-8")
        before, after = re.split(f"(?s){begin}.*{end}", text)
        made[page] = before + "\n".join([begin, *part(), f"\n{end}"]) + after
    return made


if __name__ == "__main__":
    for page, text in pages().items():
        page.write_text(text, encoding="utf-8")
