"""What values must be: Rules, and checked(), which makes an Item the value of its field or tells what is wrong."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from math import inf
from typing import Any, Literal

from entrypoint import registry
from entrypoint.interfaces import ip
from entrypoint.spec.items import Item, ProblemList
from entrypoint.text import brief, quoted
from entrypoint.values import dataclass

Wrong = tuple[str, str]  # what is wrong with a value, and what to do about it

SECRET = "ENTRYPOINT_SECRET"
JOB_NAME = r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$"
VARIABLE = re.compile("[A-Za-z_][A-Za-z0-9_]*")
# Far beyond what we were ever tried with; what is over them is a slip of the pen.
MAX_NODES, MAX_SLOTS = 16384, 4096
_FOLDERS = ("MA_JOB_DIR",)  # variables of platforms that boot commands begin with, shell or not
# Without a limit, the time for a long text of digits would grow with the square of its length.
_DECIMAL = r"[-+]?[0-9]{0,400}\.?[0-9]{1,400}([eE][-+]?[0-9]{1,9})?"
HOW = {  # to write lists and mappings as text
    "list": 'write shell words, or a list: ["python", "train.py"]',
    "mapping": 'write NAME=VALUE for a flag, a JSON object for a variable: {"NAME": "VALUE"}',
}


@dataclass(frozen=True)
class Rule:
    """What a field takes beyond its Python type: in words for messages and documents, bounds, a pattern, or a check."""

    words: str = ""  # where empty, made of the type and the bounds
    ge: float = -inf
    gt: float = -inf
    le: float = inf
    pattern: str = ""
    adapters: str = ""  # the kind of adapter that it names
    check: Callable[[str], Wrong | None] | None = None
    is_path: bool = False


@dataclass(frozen=True)
class FieldInfo:
    """One leaf field of the spec, as a person sets it."""

    path: str  # dotted, such as `ssh.port`
    kind: Literal["text", "integer", "number", "list", "mapping"]
    type: str  # what it takes, in words: "whole number from 1 to 65535"
    rule: Rule
    choices: tuple[str, ...]  # the only values it takes, where they are fixed
    default: Any
    meaning: str  # in the lines of the docstring
    env: str  # ENTRYPOINT_SSH_PORT
    aliases: tuple[str, ...]  # variables of other tools that set it too, the first one set wins
    flags: tuple[str, ...]

    @property
    def needs(self) -> str:  # the start of a message
        return f"{'a ' if self.rule.words or self.kind != 'text' else ''}{self.type} is needed"

    @property
    def example(self) -> str:  # a value it takes
        if self.default is None:
            return f"{self.rule.ge:g}" if self.rule.ge > -inf else f'"{self.rule.words.rpartition(" ")[2]}"'
        return str(self.default).removesuffix(".0")

    @property
    def adapters(self) -> list[str]:  # the only values it takes, where it names an adapter
        return registry.names(self.rule.adapters) if self.rule.adapters else []

    @property
    def description(self) -> str:  # its meaning on one line
        return " ".join(self.meaning.split())


def checked(field: FieldInfo, item: Item, report: ProblemList) -> Any:
    """The field's value, or None where it cannot be one, which is then in the report."""
    value, rule = _value(field, item, report), field.rule
    if value is None:
        return None
    fits, what, do = True, field.needs, f"write for example {field.example}"
    if rule.check and (wrong := rule.check(value)):
        fits, (what, do) = False, wrong
    elif field.choices:
        fits, do = value in field.choices, suggestion(value, dict(zip(field.choices, field.choices, strict=True)))
    elif isinstance(value, str):
        fits = not rule.pattern or re.fullmatch(rule.pattern, value) is not None
    elif isinstance(value, (int, float)):
        fits = rule.ge <= value <= rule.le and value > rule.gt
    if not fits:
        report.add(item.place, field.path, what, quoted(value) if isinstance(value, str) else brief(str(value)), do)
        return None
    return plain_path(value) if rule.is_path else value


def _value(field: FieldInfo, item: Item, report: ProblemList) -> Any:
    """The Item as the Python type of the field, or None."""
    raw, path = item.value, field.path
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
    if isinstance(raw, str) and (number := _number(field.kind, raw.strip())) is not None:
        return number
    if field.kind in HOW and item.place.group:
        do = HOW[field.kind]
    elif field.kind == "mapping":
        do = "write it as a mapping"
    elif field.kind == "list" and isinstance(raw, str) and len(raw) < 60:
        import json

        do = f"write a list: {json.dumps(raw.replace(',', ' ').split() if path == 'hosts' else raw.split())}"
    elif field.kind == "list":
        do = "write it as a list, one entry for each word"
    else:
        do = f"write for example {field.example}"
    report.add(item.place, path, field.needs, item.seen, do)
    return None


def _number(kind: str, text: str) -> int | float | None:
    """Return the number that a field of this kind takes the text for, or None."""
    if kind == "integer" and re.fullmatch(r"[-+]?[0-9]{1,100}", text):
        return int(text)
    if kind == "number" and re.fullmatch(_DECIMAL, text) and abs(float(text)) < 1e15:
        return float(text)
    return None


def _text(item: Item, path: str, report: ProblemList, needs: str = "text is needed") -> str | None:
    raw = item.value
    if isinstance(raw, str):
        if "\0" in raw:
            needs, do = "text cannot hold a NUL byte", "remove it"
        elif re.search("[\ud800-\udfff]", raw):
            needs, do = "text must be valid UTF-8", "fix the encoding"
        else:
            return raw
    elif raw is None:
        do = 'write text in quotes ("" for empty text), or remove it'
    else:
        do = "write one value"
    report.add(item.place, path, needs, item.seen, do)
    return None


def _variable(name: str, item: Item, path: str, report: ProblemList) -> bool:
    place = item.key or item.place
    if name == SECRET:
        what = "a secret does not belong among the job's variables"
        report.add(place, path, what, "", f"set {SECRET} on the container, or use secret_file", "EP105")
    elif not VARIABLE.fullmatch(name):
        what = "a variable's name is letters, digits and `_`, not a digit first"
        report.add(place, path, what, quoted(name), "rename it")
    else:
        return True
    return False


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


def _hosts(items: list[Item], report: ProblemList) -> bool:
    """Whether every entry is `NAME`, `NAME:SLOTS` or one of them with `=ADDRESS`, and none is there twice."""
    first: dict[str, int] = {}
    wrong = False
    for i, item in enumerate(items):
        if not isinstance(item.value, str):
            continue
        entry = HostEntry.of(item.value)
        before = first.setdefault(entry.name.lower(), i)
        if what := check_host(entry.name):
            what, do = f"this is no host name: {what}", "rename the host, or write NAME=ADDRESS"
        elif entry.slots is not None and not _is_slots(entry.slots):
            what = f"the slots of a host are a whole number from 1 to {MAX_SLOTS}"
            do = "write NAME:SLOTS, such as worker-0:8; a port is no part of it, see ssh.port and torch.port"
        elif entry.address is not None and not _is_address(entry.address):
            what, do = "an address is an IP address or a host name", "write NAME=ADDRESS, such as worker-0=10.0.0.7"
        elif before != i:
            what, do = f"this host is hosts.{before} too", "name each node once"
        else:
            continue
        report.add(item.place, f"hosts.{i}", what, item.seen, do)
        wrong = True
    return not wrong


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
    # Four numbers with dots are an IP address that is wrong, not a host name.
    return bool(ip(text)) or (check_host(text) is None and not re.fullmatch(r"[0-9.]+", text))


def expanded(word: str, env: Mapping[str, str]) -> str:
    """The word, as a shell would read `$MA_JOB_DIR/` or `${MA_JOB_DIR}/` at its beginning where that is set.

    ModelArts' boot commands are written so ("Boot Command"), and it starts those of custom images without a shell.
    """
    for variable in _FOLDERS:
        for written in (f"${variable}/", f"${{{variable}}}/"):
            if env.get(variable) and word.startswith(written):
                return f"{env[variable].rstrip('/')}/{word[len(written) :]}"
    return word


def plain_path(text: str) -> str:
    """A path without `/` at its end or twice in a row, and without `/./`, so that names can be put after it."""
    from pathlib import PurePosixPath  # slow to import, and many a start is given no path

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


def _listens(text: str) -> Wrong | None:
    return None if ip(text) else ("an IP address is needed", "write 127.0.0.1, or 0.0.0.0 or :: for all interfaces")


PATH = Rule("path", check=_path, is_path=True)
ADDRESS = Rule("IP address", check=_listens)
RUN_DIR = Rule("path", check=_run_dir, is_path=True)


def _interface(text: str) -> Wrong | None:
    import ipaddress  # here, since most starts name no interface

    if re.fullmatch("[A-Za-z0-9_][A-Za-z0-9_.-]{0,14}", text) and not ip(text):  # 15 characters: netdevice(7)
        return None
    what = "one interface is needed: its name, the beginning of its name, its network, or auto"
    do = "write for example eth0, ib, 10.0.0.0/24 or fd00::/64; several for Open MPI and NCCL: mpi.interface"
    try:
        network = ipaddress.ip_network(text, strict=False)
    except ValueError:
        return what, do
    if "/" not in text:
        return "an address is of one node alone", f"write the nodes' network, such as {_network_of(text)}, or a name"
    return None if str(network) == text else ("this is not how a network is written", f"write {network}")


def _network_of(address: str) -> str:
    import ipaddress

    return str(ipaddress.ip_network(f"{address}/{64 if ':' in address else 24}", strict=False))


INTERFACE = Rule("interface's name, beginning of a name, network (CIDR), or `auto`", check=_interface)


def adapter(kind: str) -> Rule:
    """The rule of a field that names an adapter of a kind, such as `launchers`."""
    one = kind.removesuffix("s")

    def check(text: str) -> Wrong | None:
        known = registry.names(kind)
        if text in known:
            return None
        homes = {name: name for name in known} | registry.also(kind)
        return f"there is no such {one}", suggestion(text, homes, known)

    return Rule(f"name of a {one}", adapters=kind, check=check)


def suggestion(word: str, homes: Mapping[str, str], known: Iterable[str] = ()) -> str:
    """What `homes` has for the name nearest to `word`, else all names that are `known`."""
    import difflib  # here, since most starts have no wrong word

    near = difflib.get_close_matches(word[:100], homes, 1)
    return f"did you mean `{homes[near[0]]}`?" if near else f"use one of {', '.join(known or homes)}"
