"""What values must be, beyond their Python types: bounds, patterns, host names, paths and names of adapters."""

from __future__ import annotations

import difflib
import functools
import ipaddress
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from math import inf
from pathlib import PurePosixPath

from entrypoint import registry
from entrypoint.spec.items import quoted

Wrong = tuple[str, str]
"""What is wrong with a value, and what to do about it."""

JOB_NAME = r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$"
# Far beyond what we were ever tried with; what is over them is a slip of the pen.
MAX_NODES, MAX_SLOTS = 16384, 4096


@dataclass(frozen=True)
class Rule:
    """What a field takes: in words for messages and documents, as bounds, a pattern, or a check of its own."""

    words: str = ""  # where empty, made of the type and the bounds
    ge: float = -inf
    gt: float = -inf
    le: float = inf
    pattern: str = ""
    adapters: str = ""  # the kind of adapter that it names
    check: Callable[[str], Wrong | None] | None = None
    is_path: bool = False

    def holds(self, value: object) -> bool:
        """Whether a value of the right type is within the bounds, or has the form of the pattern."""
        if isinstance(value, (int, float)):
            return self.ge <= value <= self.le and value > self.gt
        return not self.pattern or (isinstance(value, str) and bool(re.fullmatch(self.pattern, value)))


@dataclass(frozen=True)
class HostEntry:
    """An entry of `hosts`, `NAME[:SLOTS][=ADDRESS]`, taken apart and not checked; None for what it leaves out."""

    name: str
    slots: str | None = None
    address: str | None = None

    @classmethod
    def of(cls, text: str) -> HostEntry:
        """The entry's parts. Only one `:` can be that of slots: an IPv6 address in the name's place stays whole."""
        name, given, address = text.partition("=")
        name, colon, slots = name.partition(":") if name.count(":") == 1 else (name, "", "")
        return cls(name, slots if colon else None, address if given else None)

    def wrong(self) -> Wrong | None:
        """What is wrong with it by itself."""
        if what := check_host(self.name):
            return f"this is no host name: {what}", "rename the host, or write NAME=ADDRESS"
        if self.slots is not None and not _is_slots(self.slots):
            do = "write NAME:SLOTS, such as worker-0:8; a port is no part of it, see ssh.port and torch.port"
            return f"the slots of a host are a whole number from 1 to {MAX_SLOTS}", do
        if self.address is not None and not _is_address(self.address):
            return "an address is an IP address or a host name", "write NAME=ADDRESS, such as worker-0=10.0.0.7"
        return None


def check_host(name: str) -> str | None:
    """What is wrong with a host name, or None: DNS limits (63 characters a label, 253 in all), and `_` is allowed."""
    if len(name) > 253:
        return f"the name has {len(name)} characters, DNS allows 253"
    for label in name.split("."):
        if not label:
            return "a part between dots is empty" if name else "the name is empty"
        if len(label) > 63:
            return f"a label of it has {len(label)} characters, DNS allows 63"
        if label.startswith("-") or label.endswith("-"):
            return "a label of it begins or ends with `-`"
        if wrong := re.search(r"[^A-Za-z0-9_-]", label):
            return f"it holds {quoted(wrong[0])}; letters, digits, `-`, `_` and `.` are allowed"
    return None


def _is_slots(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 9 and 1 <= int(text) <= MAX_SLOTS


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        # Four numbers with dots are an IP address that is wrong, not a host name.
        return check_host(text) is None and not re.fullmatch(r"[0-9.]+", text)
    return True


def suggestion(word: str, names: Mapping[str, str] | Iterable[str], known: Iterable[str] | None = None) -> str:
    """The name nearest to `word` (where `names` maps it to another, that one), else all that are `known`."""
    homes = names if isinstance(names, Mapping) else {name: name for name in names}
    near = difflib.get_close_matches(word[:100], homes, 1)
    return f"did you mean `{homes[near[0]]}`?" if near else f"use one of {', '.join(known or homes)}"


def plain_path(text: str) -> str:
    """A path without `/` at its end or twice in a row, and without `/./`, so that names can be put after it."""
    return str(PurePosixPath(re.sub("^//+", "/", text)))


def _path(text: str) -> Wrong | None:
    return None if text else ("a path is needed", "write one, or remove it")


def _run_dir(text: str) -> Wrong | None:
    # sshd_config, hostfiles and mpirun's own command line take this path, and not all of them know quoting.
    if re.search(r"[\s\"'$%\\:]", text):
        return "white space, quotes, `:`, `$`, `%` and `\\` are not allowed in this path", "use another directory"
    if plain_path(text).rpartition("/")[2] in ("", ".."):
        return "a directory of its own is needed", "end it with a name, such as /tmp/job"
    return None if text.startswith("/") else ("an absolute path is needed", "begin it with /")


def _adapter(kind: str, text: str) -> Wrong | None:
    known = registry.names(kind)
    if text in known:
        return None
    homes = {name: name for name in known} | registry.also(kind)
    return (f"there is no such {kind.removesuffix('s')}", suggestion(text, homes, known))


def adapter(kind: str) -> Rule:
    """The rule of a field that names an adapter of a kind, such as `launchers`."""
    return Rule(f"name of a {kind.removesuffix('s')}", adapters=kind, check=functools.partial(_adapter, kind))


PATH = Rule("path", check=_path, is_path=True)
RUN_DIR = Rule("path", check=_run_dir, is_path=True)
