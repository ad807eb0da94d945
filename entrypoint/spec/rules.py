"""The rules of values, and checked(), which turns an Item into the value of its field or reports a
problem."""

from __future__ import annotations

import re
from binascii import crc32
from collections.abc import Callable, Iterable, Mapping
from math import inf
from typing import Any, Literal

from entrypoint.base import registry
from entrypoint.base.interfaces import ip
from entrypoint.base.text import brief, digits, quoted
from entrypoint.base.values import frozen
from entrypoint.spec.items import Item, ProblemList

Violation = tuple[str, str]  # what is wrong with a value, and a hint

SECRET = "ENTRYPOINT_SECRET"
JOB_NAME = r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$"
VARIABLE = re.compile("[A-Za-z_][A-Za-z0-9_]*")
# Far more than was ever tried; a larger number is a typing error.
MAX_NODES = 16384
CALL_IN = "call-in"  # instead of hosts: the nodes log in to worker-0
MAX_SLOTS = 4096
FEWEST_PORTS = 16  # in a range from which ports are chosen: two blocks of the largest size
# platforms' variables at the beginning of boot commands, with or without a shell
FOLDER = re.compile(r"\A\$(?=(?:MA_JOB_DIR|\{MA_JOB_DIR\})(?:/|\Z))\{?(MA_JOB_DIR)\}?")
# Without a limit, the time for a long text of digits would grow with the square of its length.
_DECIMAL = r"[-+]?[0-9]{0,400}\.?[0-9]{1,400}([eE][-+]?[0-9]{1,9})?"
HOW = {  # hints for lists and mappings in text form
    "list": 'write shell words, or a list: ["python", "train.py"]',
    "mapping": 'write NAME=VALUE for a flag, a JSON object for a variable: {"NAME": "VALUE"}',
}


@frozen
class Rule:
    """Limits of a field beyond its Python type: bounds, a pattern or a check, and a text for
    messages and documents."""

    text: str = ""  # if empty, derived from the type and the bounds
    ge: float = -inf
    gt: float = -inf
    le: float = inf
    pattern: str = ""
    word: str = ""  # that a number may be instead, such as `auto`
    adapters: str = ""  # kind of the adapter that the field names
    check: Callable[[str], Violation | None] | None = None
    is_path: bool = False


@frozen
class FieldInfo:
    """One leaf field of the spec, as users set it."""

    path: str  # dotted, such as `ssh.port`
    kind: Literal["text", "integer", "number", "list", "mapping"]
    type: str  # for people: "whole number from 1 to 65535"
    rule: Rule
    choices: tuple[str, ...]  # the only allowed values, if they are fixed
    default: Any
    meaning: str  # with the line breaks of the docstring
    env: str  # ENTRYPOINT_SSH_PORT
    aliases: tuple[str, ...]  # variables of other tools that set it too; the first that is set wins
    flags: tuple[str, ...]

    @property
    def needs(self) -> str:  # the start of a message
        return f"{'a ' if self.rule.text or self.kind != 'text' else ''}{self.type} is needed"

    @property
    def example(self) -> str:  # an allowed value
        if self.default is None:
            least = max(self.rule.ge, self.rule.gt + 1)
            return f"{least:g}" if least > -inf else f'"{self.rule.text.rpartition(" ")[2]}"'
        return str(self.default).removesuffix(".0")

    @property
    def adapters(self) -> list[str]:  # the only allowed values, if it names an adapter
        return registry.names(self.rule.adapters) if self.rule.adapters else []

    @property
    def description(self) -> str:  # its meaning on one line
        return " ".join(self.meaning.split())

    @property
    def summary(self) -> str:  # the first sentence of its description, without its end
        return re.split(r";|\. |\.$", self.description, maxsplit=1)[0]


def checked(field: FieldInfo, item: Item, report: ProblemList) -> Any:
    """Return the field's value, or None if it is not valid, which is then in the report."""
    value = _value(field, item, report)
    rule = field.rule
    if value is None:
        return None
    fits = True
    summary = field.needs
    hint = f"write for example {field.example}"
    if rule.check and (violation := rule.check(value)):
        fits = False
        summary, hint = violation
    elif field.choices:
        fits = value in field.choices
        hint = suggestion(value, dict(zip(field.choices, field.choices, strict=True)))
    elif isinstance(value, str):
        fits = not rule.pattern or re.fullmatch(rule.pattern, value) is not None
    elif isinstance(value, (int, float)):
        fits = rule.ge <= value <= rule.le and value > rule.gt
    if not fits:
        detail = quoted(value) if isinstance(value, str) else brief(str(value))
        report.add(item.place, field.path, summary, detail, hint)
        return None
    return plain_path(value) if rule.is_path else value


def _value(field: FieldInfo, item: Item, report: ProblemList) -> Any:
    """Return the Item as the Python type of the field, or None."""
    raw = item.value
    path = field.path
    if field.kind == "text":
        return _text(item, path, report, field.needs)
    if path == "hosts" and isinstance(raw, str) and HostEntry.of(raw).name == CALL_IN:
        raw = [item]
    if field.kind == "list" and isinstance(raw, list):
        texts = [_text(entry, f"{path}.{i}", report) for i, entry in enumerate(raw)]
        hosts_are_valid = path != "hosts" or _hosts(raw, report)
        return tuple(texts) if hosts_are_valid and None not in texts else None
    if field.kind == "mapping" and isinstance(raw, dict):
        pairs = {name: _text(entry, f"{path}.{name}", report) for name, entry in raw.items()}
        names_are_valid = [
            _variable(name, entry, f"{path}.{name}", report) for name, entry in raw.items()
        ]
        return pairs if all(names_are_valid) and None not in pairs.values() else None
    if isinstance(raw, str) and (number := _number(field.kind, raw.strip())) is not None:
        return number
    if raw and raw == field.rule.word:
        return raw
    if field.kind in HOW and item.place.group:
        hint = HOW[field.kind]
    elif field.kind == "mapping":
        hint = "write it as a mapping"
    elif field.kind == "list" and isinstance(raw, str) and len(raw) < 60:
        import json

        words = raw.replace(",", " ").split() if path == "hosts" else raw.split()
        hint = f"write a list: {json.dumps(words)}"
        if path == "hosts" and raw.startswith("-"):
            hint = f"write a space after each dash: - {words[0].lstrip('-')}"
    elif field.kind == "list":
        hint = "write it as a list, one entry for each word"
    else:
        hint = f"write for example {field.example}"
    report.add(item.place, path, field.needs, item.shown, hint)
    return None


def _number(kind: str, text: str) -> int | float | None:
    """Return the number that a field of this kind takes the text for, or None."""
    if kind == "integer" and re.fullmatch(r"[-+]?[0-9]{1,100}", text):
        return int(text)
    if kind == "number" and re.fullmatch(_DECIMAL, text) and abs(float(text)) < 1e15:
        return float(text)
    return None


def _text(
    item: Item, path: str, report: ProblemList, summary: str = "text is needed"
) -> str | None:
    raw = item.value
    if isinstance(raw, str):
        if "\0" in raw:
            summary = "text cannot contain a NUL byte"
            hint = "remove it"
        elif re.search("[\ud800-\udfff]", raw):
            summary = "text must be valid UTF-8"
            hint = "fix the encoding"
        else:
            return raw
    elif raw is None:
        hint = 'write text in quotes ("" for empty text), or remove it'
    else:
        hint = "write one value"
    report.add(item.place, path, summary, item.shown, hint)
    return None


def _variable(name: str, item: Item, path: str, report: ProblemList) -> bool:
    place = item.key or item.place
    if name == SECRET:
        summary = "a secret does not belong among the job's variables"
        report.add(
            place, path, summary, "", f"set {SECRET} on the container, or use secret_file", "EP105"
        )
    elif not VARIABLE.fullmatch(name):
        summary = "a variable's name is letters, digits and `_`, not a digit first"
        report.add(place, path, summary, quoted(name), "rename it")
    else:
        return True
    return False


@frozen
class HostEntry:
    """The parts of an entry of `hosts`, `NAME[:SLOTS][=ADDRESS]`, not validated; None for a missing
    part."""

    name: str
    slots: str | None = None
    address: str | None = None

    @classmethod
    def of(cls, text: str) -> HostEntry:
        """Return the entry's parts. Slots need a single `:`, so an IPv6 address in the name's place
        stays whole. A final dot, by which DNS marks a whole name, is left out."""
        name, equals, address = text.partition("=")
        name, colon, slots = name.partition(":") if name.count(":") == 1 else (name, "", "")
        name, address = name.removesuffix("."), address.removesuffix(".")
        return cls(name, slots if colon else None, address if equals else None)


def _hosts(items: list[Item], report: ProblemList) -> bool:
    """Return whether every entry is `NAME`, `NAME:SLOTS` or one of them with `=ADDRESS`, and none
    occurs twice."""
    first: dict[str, int] = {}
    are_valid = True
    for i, item in enumerate(items):
        if not isinstance(item.value, str):
            continue
        entry = HostEntry.of(item.value)
        before = first.setdefault(entry.name.lower(), i)
        if entry.name == CALL_IN and (len(items) > 1 or entry.slots):
            summary = f"{CALL_IN} stands alone: nodes that call in are not named"
            hint = f"write hosts: {CALL_IN}, or {CALL_IN}=ADDRESS with the address of worker-0"
        elif problem := check_host(entry.name):
            summary = f"not a host name: {problem}"
            hint = "rename the host, or write NAME=ADDRESS"
        elif entry.slots is not None and not 1 <= (digits(entry.slots) or 0) <= MAX_SLOTS:
            summary = f"the slots of a host are a whole number from 1 to {MAX_SLOTS}"
            hint = (
                "write NAME:SLOTS, such as worker-0:8; a port does not belong there, see ssh.port"
                " and port"
            )
        elif entry.address is not None and not ip(entry.address) and check_host(entry.address):
            summary = "an address is an IP address or a host name"
            hint = "write NAME=ADDRESS, such as worker-0=10.0.0.7"
        elif before != i:
            summary = f"this host is hosts.{before} too"
            hint = "name each node once"
        else:
            continue
        report.add(item.place, f"hosts.{i}", summary, item.shown, hint)
        are_valid = False
    return are_valid


def check_host(name: str) -> str | None:
    """Return what is wrong with a host name, or None. DNS allows 63 characters a label, 253 in all;
    `_` is fine. Resolvers read a number, also with dots, as an IP address, such as 7 as 0.0.0.7."""
    if len(name) > 253:
        return f"the name has {len(name)} characters, DNS allows 253"
    for label in name.split("."):
        if not label:
            return "a part between dots is empty" if name else "the name is empty"
        if len(label) > 63:
            return f"a label of it has {len(label)} characters, DNS allows 63"
        if label.startswith("-") or label.endswith("-"):
            return "a label of it begins or ends with `-`"
        if match := re.search(r"[^A-Za-z0-9_-]", label):
            return f"it holds {quoted(match[0])}; letters, digits, `-`, `_` and `.` are allowed"
    if re.fullmatch(r"([0-9]+|0[xX][0-9A-Fa-f]*)(\.([0-9]+|0[xX][0-9A-Fa-f]*))*", name):
        return None if ip(name) else "it is a number, which resolvers take for an address"
    return None


def expanded(text: str, env: Mapping[str, str]) -> str:
    """Return the text with `$MA_JOB_DIR/` or `${MA_JOB_DIR}/` at its beginning expanded, or without
    the slash as the whole text, if that is set.

    ModelArts' boot commands begin so ("Boot Command"), and it starts those of custom images without
    a shell.
    """
    return FOLDER.sub(lambda match: (env.get(match[1]) or match[0]).removesuffix("/"), text)


def plain_path(text: str) -> str:
    """Return a path without `/` at its end or twice in a row, and without `/./`, so that names can
    be appended."""
    from pathlib import PurePosixPath  # slow to import, and many starts have no path

    return str(PurePosixPath(re.sub("^//+", "/", text)))


def _path(text: str) -> Violation | None:
    return None if text else ("a path is needed", "write one, or remove it")


def _run_dir(text: str) -> Violation | None:
    # sshd_config, hostfiles and mpirun's own command line contain this path, and not all of them
    # support quoting.
    if re.search(r"[\s\"'$%\\:]", text):
        return (
            "white space, quotes, `:`, `$`, `%` and `\\` are not allowed in this path",
            "use another directory",
        )
    if plain_path(text).rpartition("/")[2] in ("", ".."):
        return "a directory of its own is needed", "end it with a name, such as /tmp/job"
    return None if text.startswith("/") else ("an absolute path is needed", "begin it with /")


def _listens(text: str) -> Violation | None:
    return (
        None
        if ip(text)
        else ("an IP address is needed", "write 127.0.0.1, or 0.0.0.0 or :: for all interfaces")
    )


PATH = Rule("path", check=_path, is_path=True)
ADDRESS = Rule("IP address", check=_listens)
RUN_DIR = Rule("path", check=_run_dir, is_path=True)


def _interface(text: str) -> Violation | None:
    import ipaddress  # slow to import, and most starts name no interface

    # 15 characters: netdevice(7)
    if re.fullmatch("[A-Za-z0-9_][A-Za-z0-9_.-]{0,14}", text) and not ip(text):
        return None
    summary = "one interface is needed: its name, the beginning of its name, its network, or auto"
    hint = (
        "write for example eth0, ib, 10.0.0.0/24 or fd00::/64; several for Open MPI and NCCL:"
        " mpi.interface"
    )
    try:
        network = ipaddress.ip_network(text, strict=False)
    except ValueError:
        return summary, hint
    if "/" not in text:
        prefix = 64 if network.version == 6 else 24
        return (
            "an address is of one node alone",
            f"write the nodes' network, such as {network.supernet(new_prefix=prefix)}, or a name",
        )
    return (
        None
        if str(network) == text
        else ("this is not how a network is written", f"write {network}")
    )


def _ports(text: str) -> Violation | None:
    hint = "write for example 20000-20999, below the ports that the kernel gives to connections"
    if not re.fullmatch("[1-9][0-9]{3,4}-[1-9][0-9]{3,4}", text):
        return "a range of ports is needed: the first and the last one, over 1023", hint
    first, last = port_range(text)
    if not 1024 <= first <= last - FEWEST_PORTS + 1 <= 65536 - FEWEST_PORTS:
        return f"a range is {FEWEST_PORTS} ports at least, from 1024 to 65535", hint
    return None


def port_range(text: str) -> tuple[int, int]:
    """Return the first and the last port of a range such as 20000-20999."""
    first, _, last = text.partition("-")
    return int(first), int(last)


def port_blocks(ports: str, span: int, seed: str, number: int) -> tuple[int, ...]:
    """Return the first ports of `number` blocks of `span` ports of a range, or of all if there are
    fewer. The first block follows from `seed`."""
    first, last = port_range(ports)
    blocks = (last - first + 1) // span
    start = crc32(seed.encode())
    return tuple(first + (start + i) % blocks * span for i in range(min(number, blocks)))


PORTS = Rule("range of ports, FIRST-LAST", check=_ports)
INTERFACE = Rule(
    "interface's name, beginning of a name, network (CIDR), or `auto`", check=_interface
)


def adapter(kind: str) -> Rule:
    """Return the rule of a field that names an adapter of a kind, such as `launchers`."""
    one = kind.removesuffix("s")

    def check(text: str) -> Violation | None:
        names = registry.names(kind)
        if text in names:
            return None
        homes = {name: name for name in names} | registry.also(kind)
        return f"there is no such {one}", suggestion(text, homes, names)

    return Rule(f"name of a {one}", adapters=kind, check=check)


def suggestion(text: str, homes: Mapping[str, str], names: Iterable[str] = ()) -> str:
    """Return a hint with the entry of `homes` for the name nearest to `word`, or else with all
    `names`."""
    name = nearest(text, homes)
    return (
        f"did you mean `{homes[name]}`?"
        if name is not None
        else f"use one of {', '.join(names or homes)}"
    )


def nearest(text: str, names: Iterable[str]) -> str | None:
    """Return the name that the text may stand for: the only one that begins with it, or the most
    similar one."""
    import difflib  # slow to import, and most starts have no typing error

    available = list(names)
    begun = [name for name in available if len(text) > 1 and name.startswith(text)]
    matches = begun if len(begun) == 1 else difflib.get_close_matches(text[:100], available, 1)
    return matches[0] if matches else None
