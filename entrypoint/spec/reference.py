"""The reference of all fields: JSON Schema, and docs/reference/spec.md, which this module prints as
a program."""

from __future__ import annotations

from math import inf
from typing import Any

from entrypoint import values
from entrypoint.spec.jobspec import SHORT, JobSpec, leaf_path
from entrypoint.spec.rules import VARIABLE, FieldInfo
from entrypoint.spec.table import RESERVED, about, entries, fields
from entrypoint.text import markdown_table

_INTRODUCTION = """\
<!-- Generated from entrypoint/spec/jobspec.py: do not edit, run `make golden`. -->
# The job spec

One YAML mapping; every field is optional. `entrypoint schema` prints a JSON Schema of it for your
editor.

A value comes from the first of these that has one:

1. the flag,
2. the field's own variable, `ENTRYPOINT_<FIELD>`,
3. the variables of other tools listed after it, in that order,
4. the spec file,
5. the platform (hosts, node_rank and slots),
6. the default.

A value in the file is used as it is written, with or without quotes: in `env`, `no` is the text
`no` and `1.10` the text `1.10`. Numbers are decimal. Without quotes, an empty value, `~` and
`null` mean that there is no value: a field keeps its default, and an entry of `env` or of a list
is an error (`""` is empty text).

An empty variable counts as unset. An `ENTRYPOINT_` variable that is not listed here is an error.
In a variable or a flag, the entries of `hosts` are separated by commas or white space; the other
lists are shell words, or a JSON or YAML list if they begin with `[`. `ENTRYPOINT_ENV` is a JSON
object. Its entries, like those of the flag, override those of the file one by one.

A relative path in the file starts at the file's folder, one in a variable or a flag at the current
folder. On Kubernetes and ModelArts, `entrypoint deploy` passes the file's paths as variables.

A secret belongs neither in this file nor on the command line: mount a file and name it in
`secret_file`, or set `ENTRYPOINT_SECRET`. If both are set, the one with the higher origin wins;
if both are variables, this is an error.
"""
_TEXT = {"type": ["string", "number", "boolean"]}  # types that a YAML reader may give it
_TYPES: dict[str, dict[str, Any]] = {
    "text": _TEXT,
    "list": {"items": _TEXT, "type": "array"},
    "mapping": {
        "additionalProperties": _TEXT,
        "type": "object",
        "propertyNames": {"pattern": f"^{VARIABLE.pattern}$"},
    },
}
_BOUNDS = {"ge": "minimum", "gt": "exclusiveMinimum", "le": "maximum"}


def schema() -> dict[str, Any]:
    """Return a JSON Schema (draft 2020-12) of the spec file, for editors; its enums are the
    installed adapters."""
    whole = JobSpec()
    by_path = {field.path: field for field in fields()}
    definitions = {}
    properties: dict[str, Any] = {}
    for name, section in entries(whole).items():
        if values.is_dataclass(section):
            kind = type(section).__name__
            inner = {key: _property(by_path[leaf_path(name, key)]) for key in entries(section)}
            definitions[kind] = _object(section, inner)
            properties[name] = {
                "$ref": f"#/$defs/{kind}",
                "default": {key: inner[key]["default"] for key in inner},
            }
            if name in SHORT:
                whole_section = {"$ref": properties[name].pop("$ref")}
                properties[name] |= {"anyOf": [inner[SHORT[name]], whole_section]}
        else:
            properties[name] = _property(by_path[name])
    head = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "entrypoint job spec",
    }
    return {**head, "$defs": definitions, **_object(whole, properties)}


def _object(section: Any, properties: dict[str, Any]) -> dict[str, Any]:
    description, _ = about(section)
    return {
        "additionalProperties": False,
        "description": description,
        "properties": properties,
        "type": "object",
    }


def _property(field: FieldInfo) -> dict[str, Any]:
    value = dict(_TYPES.get(field.kind, {"type": field.kind}))
    for name, key in _BOUNDS.items():
        if abs(bound := getattr(field.rule, name)) < inf:
            value[key] = bound
    if field.rule.pattern:
        value["pattern"] = field.rule.pattern
    if names := field.adapters or list(field.choices):
        value["enum"] = names
    if field.default is None:
        value = {"anyOf": [value, {"type": "null"}]}
    if field.kind != "mapping":
        value["default"] = (
            list(field.default) if isinstance(field.default, tuple) else field.default
        )
    return {**value, "description": field.meaning}


def markdown() -> str:
    """Return the reference of all fields, docs/reference/spec.md."""
    groups: dict[str, list[FieldInfo]] = {}
    for field in fields():
        groups.setdefault(field.path.rpartition(".")[0], []).append(field)
    whole = JobSpec()
    out = [_INTRODUCTION]
    for section, members in groups.items():
        description, _ = about(getattr(whole, section) if section else whole)
        out += [f"## {f'`{section}`' if section else 'Top level'}\n", f"{description}\n"]
        head = ("field", "takes", "default", "variables", "flag", "meaning")
        out += [*markdown_table([head, *map(_row, members)]), ""]
    out.append("## Variables that are not fields\n")
    reserved = [(f"`{name}`", meaning) for name, meaning in RESERVED.items()]
    return "\n".join([*out, *markdown_table([("variable", "meaning"), *reserved]), ""])


def _row(field: FieldInfo) -> tuple[str, ...]:
    default = "" if field.default in (None, (), {}) else f"`{field.default}`"
    variables, flags = (
        " ".join(f"`{name}`" for name in names)
        for names in ((field.env, *field.aliases), field.flags)
    )
    names = ", ".join(f"`{name}`" for name in field.adapters)
    takes = f"one of {names}" if names else field.type
    return f"`{field.path}`", takes, default, variables, flags, field.description


if __name__ == "__main__":
    print(markdown(), end="")
