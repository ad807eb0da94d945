"""The text of a variable or a flag, or of a YAML file -> Items."""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import replace
from typing import Any

from entrypoint.secret import is_secret
from entrypoint.spec.checks import HOW
from entrypoint.spec.items import Item, Odd, Place, Report, one_line, quoted, text_item
from entrypoint.spec.table import FieldInfo


def from_yaml(text: str, file: str, report: Report, group: int = 0, path: str = "") -> Item | None:
    """As yamlfile.read, which is imported here: most starts read no YAML, and PyYAML takes its time."""
    from entrypoint.spec import yamlfile

    return yamlfile.read(text, file, report, group, path)


def from_text(field: FieldInfo, given: str | list[str], place: Place, report: Report) -> Item | None:
    """The Item that a variable or a flag gives; None where the text itself is broken, which is then in the report."""
    try:
        if field.kind == "mapping":
            return _json(given, place) if isinstance(given, str) else _assignments(given, place)
        if isinstance(given, list):
            return Item([text_item(word, place) for word in given], place, "a list")
        if field.kind in ("integer", "number") and re.fullmatch(r"\s*[-+]?[0-9]{1,100}\s*", given):
            return Item(int(given.strip()), place, quoted(given))
        if field.kind == "number" and re.fullmatch(r"\s*[-+]?[0-9]*\.?[0-9]+([eE][-+]?[0-9]+)?\s*", given):
            return Item(float(given.strip()), place, quoted(given))
        if field.kind != "list":
            return text_item(given, place)
        if given.lstrip().startswith("["):
            return _flow_list(given, place, field.path, report)
        words = re.split(r"[,\s]+", given.strip(", \t\r\n")) if field.path == "hosts" else shlex.split(given)
        return Item([text_item(word, place) for word in words], place, "a list")
    except ValueError as error:
        # Only shell words may be shown: a command's, unless it seems to hold a password.
        shown = quoted(given) if isinstance(given, str) and field.kind == "list" and not is_secret(given) else ""
        report.add(place, field.path, f"{field.needs}: {one_line(str(error))}", shown, HOW[field.kind])
        return None


def _assignments(words: list[str], place: Place) -> Item:
    entries = {}
    for word in words:
        name, sign, value = word.partition("=")
        if not sign:
            raise ValueError("`=` is missing" + ("" if is_secret(word) else f" after {quoted(name)}"))
        entries[name] = text_item(value, place)  # given twice, the later wins, as in a shell
    return Item(entries, place, "a mapping")


def _flow_list(text: str, place: Place, path: str, report: Report) -> Item | None:
    """A JSON list, else a YAML one: JSON first because its surrogate pairs and tabs are nothing to YAML."""
    try:
        return _json(text, place)
    except ValueError:
        item = from_yaml(text, place.where, report, place.group, path)
        return item and replace(item, place=place)


def _json(text: str, place: Place) -> Item:
    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        seen: set[str] = set()
        for name, _ in pairs:
            if name in seen:
                raise ValueError(f"{quoted(name)} is given twice")
            seen.add(name)
        return dict(pairs)

    def item(value: Any) -> Item:
        if isinstance(value, str):
            return text_item(value, place)
        if isinstance(value, list):
            return Item([item(entry) for entry in value], place, "a list")
        if isinstance(value, dict):
            return Item({name: item(entry) for name, entry in value.items()}, place, "a mapping")
        written = json.dumps(value)
        kind = "nothing" if value is None else "a boolean" if isinstance(value, bool) else "a number"
        return Item(Odd.MISREAD if isinstance(value, bool) else value, place, f"{one_line(written)} is {kind}", written)

    try:
        return item(json.loads(text, object_pairs_hook=once))
    except json.JSONDecodeError as error:
        raise ValueError(f"this is not JSON at character {error.pos + 1}") from None
    except RecursionError:
        raise ValueError("nested too deep") from None
