"""Values -> YAML for people, with the same meaning for every reader of YAML: ambiguous text is
quoted."""

from __future__ import annotations

import re
from typing import Any

import yaml

_PLAIN = re.compile(r"[A-Za-z/][A-Za-z0-9_./-]*")
_NOT_TEXT = {"y", "n", "yes", "no", "true", "false", "on", "off", "null"}  # for some readers
_WIDTH = 1 << 20  # no line is folded


class _Dumper(yaml.SafeDumper):
    def ignore_aliases(self, data: Any) -> bool:
        return True

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, False)


def _text(dumper: _Dumper, text: str) -> yaml.ScalarNode:
    plain = _PLAIN.fullmatch(text) and text.lower() not in _NOT_TEXT
    lines = "\n" in text and not text.endswith("\n\n")
    style = None if plain else "|" if lines else '"'
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text)


def dump(value: Any) -> str:
    """Return the value as YAML, fields in their order."""
    return str(yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=_WIDTH))
