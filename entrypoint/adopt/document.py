"""A job.yaml as people write one: a comment above each setting, and what is only proposed as a
comment."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from math import inf
from typing import Any

import yaml

from entrypoint.errors import CantCreateError
from entrypoint.output.log import answer
from entrypoint.spec import fields
from entrypoint.text import one_line
from entrypoint.values import dataclass

_STDOUT = "-"


@dataclass(frozen=True)
class Setting:
    """One field with its value, and what is said about it."""

    path: str  # dotted, such as `ssh.port`
    value: Any
    comment: str = ""
    proposed: bool = False  # written as a comment


def document(head: Iterable[str], settings: Sequence[Setting]) -> str:
    """Return the YAML text: the head as comments, then the settings in the order of the spec."""
    order = {field.path: at for at, field in enumerate(fields())}
    lines = [_comment(line) for line in head]
    section = ""
    for setting in sorted(settings, key=lambda setting: order[setting.path]):
        group, _, key = setting.path.rpartition(".")
        if group != section and group:
            lines += ["", f"{'# ' if _all_proposed(settings, group) else ''}{group}:"]
        elif not group:
            lines.append("")
        section = group
        lines += _setting(setting, key, "  " if group else "")
    return "\n".join([*lines, ""])


def _all_proposed(settings: Iterable[Setting], group: str) -> bool:
    return all(setting.proposed for setting in settings if setting.path.startswith(f"{group}."))


def _setting(setting: Setting, key: str, indent: str) -> Iterator[str]:
    if setting.comment:
        yield f"{indent}{_comment(setting.comment)}"
    before = f"# {indent}" if setting.proposed else indent
    if isinstance(setting.value, dict):
        yield f"{before}{key}:"
        for name, value in setting.value.items():
            yield f"{before}  {name}: {_value(value)}"
    else:
        yield f"{before}{key}: {_value(setting.value)}"


def _value(value: Any) -> str:
    """Return a text, number or list of texts as YAML on one line."""
    text = yaml.safe_dump(value, allow_unicode=True, default_flow_style=True, width=inf)
    return text.removesuffix("...\n").strip()


def _comment(text: str) -> str:
    return f"# {one_line(text)}".rstrip()


def create(out: str, text: str) -> bool:
    """Write the text into a new file, or to stdout if `out` is `-`. Return whether it is a file.

    Raises CantCreateError if the file exists, or cannot be written: then there is none.
    """
    if out == _STDOUT:
        answer(text)
        return False
    try:
        with open(out, "x", encoding="utf-8", errors="surrogateescape") as file:
            try:
                file.write(text)
                file.flush()
            except OSError:
                os.unlink(out)
                raise
    except FileExistsError:
        raise CantCreateError(
            f"EP134 {out} exists", "it stays as it is", "give --out another name, or - for stdout"
        ) from None
    except OSError as error:
        detail = error.strerror or str(error)
        hint = "give --out a writable place"
        raise CantCreateError(f"EP112 cannot write {out}", detail, hint) from None
    return True
