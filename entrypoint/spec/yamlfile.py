"""YAML text -> Items, whose scalars are all text.

    text --compose--> nodes with marks --item--> Item(value, place)  (problems: to a ProblemList)

PyYAML scans and parses. No tag can call code; a scalar such as `no`, `1.10` or `22:22` remains
text, and the field decides on its type. Only a plain scalar that is empty, `~` or `null` is
nothing.
"""

from __future__ import annotations

import re
from typing import Any

import yaml

from entrypoint.base.secret import is_secret
from entrypoint.base.tables import table
from entrypoint.base.text import brief, is_utf16
from entrypoint.base.values import dataclass, replace
from entrypoint.spec.items import Item, Place, ProblemList

MAX_CHARACTERS = 1 << 20
_MAX_VALUES = 20_000  # with all aliases expanded; a job may have 16,384 hosts

_TAG = "tag:yaml.org,2002:"
# Tags that a value of a kind of node may have. Those of numbers and booleans change nothing.
_TAGS = table("""
    scalar   | str null merge int float bool
    sequence | seq
    mapping  | map
""")
_PLAIN = {**dict.fromkeys(("", "~", "null", "Null", "NULL"), "null"), "<<": "merge"}
"""Scalars without quotes and tag that are no text -> their tag."""
_TYPOGRAPHIC = (
    "\u201c\u201d\u201e\u2018\u2019\u201a\u00ab\u00bb"  # quotes as a word processor writes them
)


class _Composer(yaml.BaseLoader):
    """PyYAML's composer, with scalars as text. It raises RecursionError at too many nodes."""

    count = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        """Return the next node."""
        self.count += 1
        if self.count > _MAX_VALUES:
            raise RecursionError
        return super().compose_node(parent, index)

    def resolve(self, kind: Any, value: Any, implicit: Any) -> Any:
        """Return the tag of a node without one."""
        if kind is yaml.ScalarNode and implicit[0] and value in _PLAIN:
            return f"{_TAG}{_PLAIN[value]}"
        return super().resolve(kind, value, implicit)  # type: ignore[no-untyped-call]


@dataclass
class Reader:
    """Reads a text. `file` names it in positions, `group` is that of its Places, `path` the field
    that it is for; all problems are added to `report`."""

    text: str
    file: str
    report: ProblemList
    group: int = 0
    path: str = ""
    left: int = _MAX_VALUES

    def read(self) -> Item | None:
        """Return the only document as an Item; None if it is not YAML. An empty document is an
        empty mapping."""
        if len(self.text) > MAX_CHARACTERS:
            self.fail(
                self.at(1, 1),
                "too large: over 1 MiB",
                f"{len(self.text):,} characters",
                "shorten it",
            )
            return None
        try:
            self.loader = _Composer(self.text)
            node: Any = self.loader.get_node() if self.loader.check_node() else None
            if self.loader.check_node():
                event: Any = self.loader.peek_event()  # type: ignore[no-untyped-call]
                summary = "a second document starts here, one is allowed"
                self.fail(
                    self.place(event.start_mark), summary, "---", "put each job into its own file"
                )
            is_empty = node is None or (
                isinstance(node, yaml.ScalarNode) and node.tag.endswith(":null")
            )
            return Item({}, self.at(1, 1)) if is_empty else self.item(node, self.path)
        except yaml.reader.ReaderError as error:
            self.not_read(error)
        except yaml.MarkedYAMLError as error:
            self.not_yaml(error)
        except (
            ValueError,
            OverflowError,
        ):  # PyYAML on escapes such as "\UFFFFFFFF" and on long %YAML numbers
            place = self.place(self.loader.get_mark())
            self.fail(place, "this is not YAML", "a number out of range", "fix or remove it")
        except RecursionError:
            summary = f"more than {_MAX_VALUES:,} values, or values nested too deep"
            self.fail(self.at(1, 1), summary, "with all aliases expanded", "write fewer")
        return None

    def fail(self, place: Place, summary: str, detail: str, hint: str, path: str = "") -> None:
        self.report.add(place, path or self.path, summary, detail, hint, "EP101")

    def at(self, line: int, column: int) -> Place:
        where = f"{self.file}:{line}:{column}"
        return (
            Place(self.group, line, column, where)
            if self.group == 0
            else Place(self.group, 0, 0, where)
        )

    def place(self, mark: Any) -> Place:
        return self.at(mark.line + 1, mark.column + 1)

    def not_read(self, error: yaml.reader.ReaderError) -> None:
        """Report a character that YAML does not allow, or that is no character."""
        before = self.text[: error.position]
        place = self.at(before.count("\n") + 1, len(before) - before.rfind("\n"))
        character = ord(self.text[error.position])
        summary = "a character that YAML does not allow"
        detail = f"U+{character:04X}"
        hint = 'write it as an escape in "..."'
        if is_utf16(self.text) or 0xDC80 <= character <= 0xDCFF:  # a byte that is not UTF-8
            summary = "this is not UTF-8"
            detail = "it is UTF-16" if is_utf16(self.text) else f"byte 0x{character & 0xFF:X}"
            hint = "save it as UTF-8"
        self.fail(place, summary, detail, hint)

    def not_yaml(self, error: yaml.MarkedYAMLError) -> None:
        """Report the parser's error in our terms, at the place that has to be fixed."""
        mark: Any = error.problem_mark or error.context_mark
        problem = error.problem or ""
        if error.context_mark and ("end of stream" in problem or "<stream end>" in problem):
            mark = error.context_mark  # the beginning that was never closed
        line = re.split("\r\n|[\n\r\x85\u2028\u2029]", self.text)[mark.line]
        summary = "this is not YAML"
        detail = (
            "" if is_secret(line) else f"{error.context}: {problem}" if error.context else problem
        )
        hint = "fix the indentation, quotes or brackets here"
        if "'\\t'" in problem:
            summary = (
                "a tab where YAML wants a space"
                if line[: mark.column].strip()
                else "a tab in the indentation"
            )
            detail = ""
            hint = "use spaces, YAML allows no tabs here"
        elif problem.startswith("mapping values are not allowed"):
            hint = 'quote text that holds ": ", or fix the indentation'
        elif "cannot start any token" in problem:
            hint = "quote text that starts with this character"
        self.fail(self.place(mark), summary, detail, hint)

    def item(self, node: Any, path: str) -> Item:
        self.left -= 1
        if self.left < 0:
            raise RecursionError
        place = self.place(node.start_mark)
        tag = node.tag.removeprefix(_TAG)
        if tag not in _TAGS[node.id].split():
            detail = f"`{brief(re.sub(f'^{_TAG}', '!!', node.tag))}`"
            self.fail(place, "this tag is not allowed here", detail, "remove the tag", path)
        if isinstance(node, yaml.ScalarNode):
            return Item(None if tag == "null" else self.scalar(node, place, path), place)
        if isinstance(node, yaml.SequenceNode):
            return Item([self.item(n, f"{path}.{i}") for i, n in enumerate(node.value)], place)
        return Item(self.mapping(node, path), place)

    def scalar(self, node: Any, place: Place, path: str) -> str:
        """Return the text of a scalar; a pair of escaped surrogates, as JSON writes characters
        beyond 16 bits, is one character."""
        text: str = node.value
        if node.style is None and text[:1] in _TYPOGRAPHIC and text:
            summary = "typographic quotes do not quote"
            self.fail(place, summary, brief(text), "use straight ones: \" or '", path)
            return text.strip(_TYPOGRAPHIC)
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")

    def mapping(self, node: Any, path: str) -> dict[str, Item]:
        out: dict[str, Item] = {}
        merged: list[Any] = []
        for key_node, value_node in node.value:
            if key_node.tag == f"{_TAG}merge":
                merged += (
                    value_node.value if isinstance(value_node, yaml.SequenceNode) else [value_node]
                )
                continue
            key = self.item(key_node, path)
            name = key_node.value  # text even if it would be nothing as a value
            if not isinstance(name, str):
                self.fail(key.place, "a key must be text", key.shown, "write text", path)
                continue
            inner = f"{path}.{name}" if path else name
            first = out.get(name)
            if first is None:
                out[name] = replace(self.item(value_node, inner), key=key.place)
            else:
                detail = f"first at {first.key.where if first.key else ''}"
                self.report.add(
                    key.place, inner, "this key is given twice", detail, "keep one of them", "EP103"
                )
        for source in merged:
            if isinstance(source, yaml.MappingNode):
                # own entries win, then those of the earlier source
                out = {
                    **self.mapping(source, path),
                    **out,
                }
            else:
                place = self.place(source.start_mark)
                hint = "give it an alias of a mapping"
                self.fail(place, "`<<` merges mappings only", "", hint, path)
        return out
