"""`entrypoint schema`: print the spec's JSON Schema."""

from __future__ import annotations

import argparse
from math import inf
from typing import Any

from entrypoint.base import values
from entrypoint.base.text import json_document
from entrypoint.cli.parser import Command
from entrypoint.output.log import Logger, answer
from entrypoint.spec.jobspec import SHORT, JobSpec, leaf_path
from entrypoint.spec.rules import VARIABLE, FieldInfo
from entrypoint.spec.table import about, entries, fields, former_fields

COMMAND = Command("print the job spec's JSON Schema, for editors", "", is_of_job=False)
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


def act(args: argparse.Namespace, log: Logger) -> int:
    """Print the schema. Returns 0."""
    answer(json_document(schema()))
    return 0


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
    for path, field in former_fields().items():
        section, _, key = path.partition(".")
        kind = type(getattr(whole, section, None)).__name__
        empty = {"additionalProperties": False, "properties": {}, "type": "object"}
        former = definitions.get(kind) or properties.setdefault(section, empty)
        former["properties"][key] = {**_property(field), "deprecated": True}
    head = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": "urn:training-entrypoint:job-spec",
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
    if field.rule.word:
        value = {"anyOf": [value, {"const": field.rule.word}]}
    if field.default is None:
        value = {"anyOf": [value, {"type": "null"}]}
    if field.kind != "mapping":
        value["default"] = (
            list(field.default) if isinstance(field.default, tuple) else field.default
        )
    return {**value, "description": field.meaning}
