"""Whole numbers in variables that platforms set: counts of nodes, of accelerators, and places among them."""

from __future__ import annotations

from collections.abc import Mapping

from entrypoint.errors import ConfigError
from entrypoint.spec import MAX_NODES


def number(env: Mapping[str, str], name: str) -> int | None:
    """The variable's number; None where it is unset or empty.

    Raises ConfigError when it is no whole number, or one that no job has.
    """
    text = env.get(name, "").strip()
    if not text:
        return None
    if not (text.isascii() and text.isdigit()):
        raise ConfigError(f"EP207 {name} is not a whole number", repr(text[:60]), f"fix {name}")
    if len(text) > 20 or int(text) > MAX_NODES:  # of slots there are fewer
        raise ConfigError(f"EP207 {name} is too large", text[:60], f"set it to {MAX_NODES} at most, the nodes of a job")
    return int(text)
