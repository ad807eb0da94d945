"""An Item -> the value of its field, or a problem in plain words."""

from __future__ import annotations

import json
import math
import re
from typing import Any

from entrypoint.secret import is_secret
from entrypoint.spec.items import Item, Odd, Report, one_line, quoted
from entrypoint.spec.rules import HostEntry, plain_path, suggestion
from entrypoint.spec.table import SECRET, FieldInfo

HOW = {  # to write lists and mappings as text
    "list": 'write shell words, or a list: ["python", "train.py"]',
    "mapping": 'write NAME=VALUE for a flag, a JSON object for a variable: {"NAME": "VALUE"}',
}
VARIABLE = re.compile("[A-Za-z_][A-Za-z0-9_]*")


def checked(field: FieldInfo, item: Item, report: Report) -> Any:
    """The field's value, or None where it cannot be one, which is then in the report."""
    value = _value(field, item, report)
    if value is None:
        return None
    if field.rule.check and (wrong := field.rule.check(value)):
        report.add(item.place, field.path, wrong[0], quoted(value), wrong[1])
        return None
    if not field.rule.holds(value) or (field.choices and value not in field.choices):
        seen = quoted(value) if isinstance(value, str) else one_line(str(value))
        do = suggestion(value, field.choices) if field.choices else f"write for example {field.example}"
        report.add(item.place, field.path, field.needs, seen, do)
        return None
    return plain_path(value) if field.rule.is_path else value


def _value(field: FieldInfo, item: Item, report: Report) -> Any:
    """The Item as the Python type of the field, or None."""
    raw, path = item.value, field.path
    if raw is Odd.REPORTED:
        return None
    if field.kind == "text":
        return _text(item, path, report, field.needs)
    if field.kind == "list" and isinstance(raw, list):
        texts = [_text(entry, f"{path}.{i}", report) for i, entry in enumerate(raw)]
        hosts_fine = path != "hosts" or _hosts(raw, report)
        return tuple(texts) if hosts_fine and None not in texts else None
    if field.kind == "mapping" and isinstance(raw, dict):
        pairs = {name: _text(entry, f"{path}.{name}", report) for name, entry in raw.items()}
        names_fine = [_variable(name, entry, f"{path}.{name}", report) for name, entry in raw.items()]
        return pairs if all(names_fine) and None not in pairs.values() else None
    if field.kind == "integer" and isinstance(raw, int):
        return raw
    if field.kind == "number" and isinstance(raw, (int, float)) and abs(raw) < 1e15 and math.isfinite(raw):
        return float(raw)
    if field.kind in HOW:
        do = "write it as a list, one entry for each word" if field.kind == "list" else "write it as a mapping"
        if field.kind == "list" and isinstance(raw, str) and len(raw) < 60:
            do = f"write a list: {json.dumps(raw.replace(',', ' ').split() if path == 'hosts' else raw.split())}"
        if item.place.group:
            do = HOW[field.kind]
    elif isinstance(raw, str) and item.place.group == 0 and re.fullmatch(r"[0-9.]+", raw):
        do = "remove the quotes"
    else:
        do = f"write for example {field.example}"
    report.add(item.place, path, field.needs, item.seen, do)
    return None


def _text(item: Item, path: str, report: Report, needs: str = "text is needed") -> str | None:
    raw = item.value
    if isinstance(raw, str):
        if "\0" in raw:
            report.add(item.place, path, "text cannot hold a NUL byte", item.seen, "remove it")
        elif re.search("[\ud800-\udfff]", raw):
            report.add(item.place, path, "text must be valid UTF-8", item.seen, "mend the encoding")
        else:
            return raw
    elif raw is None:
        report.add(item.place, path, needs, item.seen, 'write "" for empty text, or remove it')
    elif isinstance(raw, (list, dict)):
        report.add(item.place, path, needs, item.seen, "write one value")
    elif raw is not Odd.REPORTED:
        do = "quote it" if is_secret(path) else f'quote it: "{one_line(item.written)}"'
        report.add(item.place, path, needs, item.seen, do)
    return None


def _variable(name: str, item: Item, path: str, report: Report) -> bool:
    place = item.key or item.place
    if name == SECRET:
        what = "a secret does not belong among the job's variables"
        report.add(place, path, what, "", f"set {SECRET} on the container, or use secret_file")
    elif not VARIABLE.fullmatch(name):
        what = "a variable's name is letters, digits and `_`, not a digit first"
        report.add(place, path, what, quoted(name), "rename it")
    else:
        return True
    return False


def _hosts(items: list[Item], report: Report) -> bool:
    """Whether every entry is `NAME`, `NAME:SLOTS` or one of them with `=ADDRESS`, and none is there twice."""
    first: dict[str, int] = {}
    is_fine = True
    for i, item in enumerate(items):
        if not isinstance(item.value, str):
            continue
        entry = HostEntry.of(item.value)
        at = first.setdefault(entry.name.lower(), i)
        wrong = entry.wrong() or (None if at == i else (f"this host is hosts.{at} too", "name each node once"))
        if wrong:
            report.add(item.place, f"hosts.{i}", wrong[0], item.seen, wrong[1])
            is_fine = False
    return is_fine
