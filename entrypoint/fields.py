"""What each field of the job spec is and takes, read off the model once: for checks, flags, help and documents.

JobSpec (jobspec.py) --fields()--> FieldInfo --checked()--> a value, or a problem in plain words
                                           --schema()---> JSON Schema for editors
                                           --markdown()-> docs/reference/spec.md
"""

from __future__ import annotations

import difflib
import functools
import ipaddress
import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from types import NoneType
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel, ValidationError

from entrypoint import registry, secret
from entrypoint.jobspec import MAX_SLOTS, HostEntry, JobSpec
from entrypoint.secret import is_secret
from entrypoint.yamlfile import Item, Odd, Report, one_line, quoted

PREFIX = "ENTRYPOINT_"
SECRET = "ENTRYPOINT_SECRET"
RESERVED = {
    SECRET: "The job's secret itself, at least 16 bytes, the same on every node.",
    "ENTRYPOINT_SPEC": "Path of the spec file.",
    "ENTRYPOINT_STAGE": "Ours: which stage of the boot a process is in.",
    "ENTRYPOINT_KEEP": "Ours: the names that mpirun's -x sets by value, which a rank keeps.",
    "ENTRYPOINT_SIMULATE_ASCEND": "For tests: count this many Ascend cards where there are none.",
    "ENTRYPOINT_CACHE": "Ours: where the demo and the tests keep what they fetched.",
}
"""Variables of ours that are no field of the spec, and what they are."""
NO_JOB = {"ENTRYPOINT_CACHE"}  # of those, what says nothing of a job

# What Kubernetes sets in every container for each Service of its namespace (kubernetes.io, "Service", environment
# variables): for one named entrypoint, entrypoint-api or sshd they look like settings.
_LINK = re.compile(r"(tcp|udp|sctp)://")
_SERVICE = re.compile(r"\w+_(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)")

_ADAPTERS = {"launcher": "launchers", "platform": "platforms", "device": "devices"}  # field -> kind in the registry
_PATHS = (
    *("workdir", "secret_file", "run_dir", "ssh.client_key", "ssh.host_key", "ssh.known_hosts"),
    *("mpi.hostfile", "mpi.tune_file"),
)
_TYPES = {
    **{path: f"name of a {path}" for path in _ADAPTERS},
    **dict.fromkeys(_PATHS, "path"),
    "name": "DNS label (a-z, 0-9 and -, up to 63)",
    "torch.version": "version such as 2.1",
}
HOW = {  # to write lists and mappings as text
    "list": 'write shell words, or a list: ["python", "train.py"]',
    "mapping": 'write NAME=VALUE for a flag, a JSON object for a variable: {"NAME": "VALUE"}',
}


@dataclass(frozen=True)
class FieldInfo:
    """One leaf field of the spec, as a person sets it."""

    path: str  # dotted, such as `ssh.port`
    kind: Literal["text", "integer", "number", "list", "mapping"]
    type: str  # what it takes, in words: "whole number from 1 to 65535"
    default: Any
    description: str
    env: str  # ENTRYPOINT_SSH_PORT
    aliases: tuple[str, ...] = ()  # variables of other tools that set it too, the first one set wins
    flags: tuple[str, ...] = ()
    choices: tuple[str, ...] = ()  # the only values it takes, where they are fixed
    example: str = ""  # a value it takes, for messages

    @property
    def needs(self) -> str:
        """What a value must be, as the start of a message."""
        return f"{'' if self.kind == 'text' and self.path not in _TYPES else 'a '}{self.type} is needed"


@functools.cache
def fields() -> tuple[FieldInfo, ...]:
    """Every leaf field of the spec, in the order of the model: for flags, help, documents and tests."""
    return tuple(_fields_of(JobSpec, ""))


def is_service(name: str, value: str) -> bool:
    """Whether a variable has the form that Kubernetes gives those of a Service, and is nobody's setting."""
    return bool(_SERVICE.fullmatch(name) or (name.endswith("_PORT") and _LINK.match(value)))


@dataclass(frozen=True)
class Given:
    """A setting as variables carry it: the one to set, which is the first, and every one that sets it too."""

    names: tuple[str, ...]
    value: str


def given(spec: JobSpec) -> tuple[Given, ...]:
    """What a user gave, so that a script can give it again: not this node's index, no secret; the spec as its file."""
    return _shared(spec)[0]


def kept_back(spec: JobSpec) -> list[str]:
    """The secrets that `given` leaves out, by name: others may read a script."""
    return _shared(spec)[1]


def left_out(spec: JobSpec) -> list[str]:
    """The secrets that a script which others may read cannot have in it: variables of `env`, and `command`."""
    names = [name for name, value in spec.env.items() if is_secret(name) or secret.masked(value) != value]
    return names + (["command"] if secret.masked_words(spec.command) != list(spec.command) else [])


def _shared(spec: JobSpec) -> tuple[tuple[Given, ...], list[str]]:
    out: list[Given] = []
    files: set[str] = set()
    kept: list[str] = []
    for field in fields():
        source = spec.source(field.path)
        if source.origin == "spec":
            files.add(source.where.rsplit(":", 2)[0])
        elif source.origin in ("flag", "env") and field.path not in ("node_rank", "command"):
            value: Any = functools.reduce(getattr, field.path.split("."), spec)
            if field.kind == "mapping":
                kept += [n for n in value if is_secret(n) and spec.source(f"env.{n}").origin != "spec"]
                value = {name: entry for name, entry in value.items() if not is_secret(name)}
            if isinstance(value, str) and secret.masked(value) != value:
                kept.append(field.path)
            elif value != {}:
                out.append(Given((field.env, *field.aliases), value if isinstance(value, str) else json.dumps(value)))
    return (*(Given(("ENTRYPOINT_SPEC",), file) for file in files), *out), kept


def schema() -> dict[str, Any]:
    """JSON Schema (draft 2020-12) of the spec file, for editors; adapters that are installed are its enums."""
    out: dict[str, Any] = _public(JobSpec.model_json_schema())
    for name, kind in _ADAPTERS.items():
        out["properties"][name]["anyOf"][0]["enum"] = registry.names(kind)
    out["properties"]["env"]["propertyNames"] = {"pattern": f"^{_VARIABLE.pattern}$"}
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "entrypoint job spec"}
    return {**head, **out}


def adapters(field: FieldInfo) -> list[str]:
    """The names that the field takes, where it names an adapter; else none."""
    return registry.names(_ADAPTERS[field.path]) if field.path in _ADAPTERS else []


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


def suggestion(word: str, names: Mapping[str, str] | Iterable[str], known: Iterable[str] | None = None) -> str:
    """The name nearest to `word` (where `names` maps it to another, that one), else all that are `known`."""
    homes = names if isinstance(names, Mapping) else {name: name for name in names}
    near = difflib.get_close_matches(word[:100], homes, 1)
    return f"did you mean `{homes[near[0]]}`?" if near else f"use one of {', '.join(known or homes)}"


def nested(flat: Mapping[str, Any]) -> dict[str, Any]:
    """Dotted paths -> the nested mapping the model takes."""
    out: dict[str, Any] = {}
    for path, value in flat.items():
        section, _, name = path.rpartition(".")
        (out.setdefault(section, {}) if section else out)[name] = value
    return out


# ---------------------------------------------------------------------------------------------------------------
# What a value must be


def checked(field: FieldInfo, item: Item, report: Report) -> Any:
    """The field's value, or None where it cannot be one, which is then in the report."""
    value = _value(field, item, report)
    if value is None:
        return None
    check = _CHECKS.get(field.path)
    if check and (wrong := check(value)):
        report.add(item.place, field.path, wrong[0], quoted(value), wrong[1])
        return None
    try:
        JobSpec.model_validate(nested({field.path: value}))
    except ValidationError:
        seen = quoted(value) if isinstance(value, str) else one_line(str(value))
        do = suggestion(value, field.choices) if field.choices else f"write for example {field.example}"
        report.add(item.place, field.path, field.needs, seen, do)
        return None
    return plain_path(value) if field.path in (*_PATHS, "log_dir") else value


def plain_path(text: str) -> str:
    """A path without `/` at its end or twice in a row, and without `/./`, so that names can be put after it."""
    return str(PurePosixPath(re.sub("^//+", "/", text)))


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


_VARIABLE = re.compile("[A-Za-z_][A-Za-z0-9_]*")


def _variable(name: str, item: Item, path: str, report: Report) -> bool:
    place = item.key or item.place
    if name == SECRET:
        what = "a secret does not belong among the job's variables"
        report.add(place, path, what, "", f"set {SECRET} on the container, or use secret_file")
    elif not _VARIABLE.fullmatch(name):
        what = "a variable's name is letters, digits and `_`, not a digit first"
        report.add(place, path, what, quoted(name), "rename it")
    else:
        return True
    return False


def _hosts(items: list[Item], report: Report) -> bool:
    """Whether every entry is `NAME`, `NAME:SLOTS` or one of them with `=ADDRESS`, and none is there twice."""
    first: dict[str, int] = {}
    wrong = False
    for i, item in enumerate(items):
        if not isinstance(item.value, str):
            continue
        entry = HostEntry.of(item.value)
        name, address = entry.name, entry.address
        what, do = check_host(name), "rename the host, or write NAME=ADDRESS"
        if what:
            what = f"this is no host name: {what}"
        elif entry.slots is not None and not _is_slots(entry.slots):
            what = f"the slots of a host are a whole number from 1 to {MAX_SLOTS}"
            do = "write NAME:SLOTS, such as worker-0:8; a port is no part of it, see ssh.port and torch.port"
        elif address is not None and not _is_address(address):
            what, do = "an address is an IP address or a host name", "write NAME=ADDRESS, such as worker-0=10.0.0.7"
        elif name.lower() in first:
            what, do = f"this host is hosts.{first[name.lower()]} too", "name each node once"
        first.setdefault(name.lower(), i)
        if what:
            report.add(item.place, f"hosts.{i}", what, item.seen, do)
            wrong = True
    return not wrong


def _is_slots(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 9 and 1 <= int(text) <= MAX_SLOTS


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        # Four numbers with dots are an IP address that is wrong, not a host name.
        return check_host(text) is None and not re.fullmatch(r"[0-9.]+", text)
    return True


def _path(text: str) -> tuple[str, str] | None:
    return None if text else ("a path is needed", "write one, or remove it")


def _run_dir(text: str) -> tuple[str, str] | None:
    # sshd_config, hostfiles and mpirun's own command line take this path, and not all of them know quoting.
    if re.search(r"[\s\"'$%\\:]", text):
        return "white space, quotes, `:`, `$`, `%` and `\\` are not allowed in this path", "use another directory"
    if plain_path(text).rpartition("/")[2] in ("", ".."):
        return "a directory of its own is needed", "end it with a name, such as /tmp/job"
    return None if text.startswith("/") else ("an absolute path is needed", "begin it with /")


def _adapter(kind: str, text: str) -> tuple[str, str] | None:
    known = registry.names(kind)
    if text in known:
        return None
    homes = {name: name for name in known} | registry.also(kind)
    return (f"there is no such {kind.removesuffix('s')}", suggestion(text, homes, known))


_CHECKS: dict[str, Callable[[str], tuple[str, str] | None]] = {
    **dict.fromkeys(_PATHS, _path),
    **{name: functools.partial(_adapter, kind) for name, kind in _ADAPTERS.items()},
    "run_dir": _run_dir,
}
"""Field -> what is wrong with a value and what to do, or None."""


def _fields_of(model: type[BaseModel], prefix: str) -> Iterator[FieldInfo]:
    for name, info in model.model_fields.items():
        path, annotation = prefix + name, info.annotation
        if isinstance(annotation, type) and issubclass(annotation, BaseModel):
            yield from _fields_of(annotation, f"{path}.")
            continue
        if NoneType in get_args(annotation):
            (annotation,) = (arg for arg in get_args(annotation) if arg is not NoneType)
        choices = get_args(annotation) if get_origin(annotation) is Literal else ()
        kinds: dict[Any, Any] = {int: "integer", float: "number", tuple: "list", Mapping: "mapping"}
        kind = kinds.get(get_origin(annotation) or annotation, "text")
        limits = {key: getattr(rule, key) for rule in info.metadata for key in ("ge", "gt", "le") if hasattr(rule, key)}
        default = info.get_default(call_default_factory=True)
        extra: Any = info.json_schema_extra or {}
        example = str(limits.get("ge", "") if default is None else default).removesuffix(".0")
        yield FieldInfo(
            path=path,
            kind=kind,
            type=_TYPES.get(path) or (f"one of {', '.join(choices)}" if choices else _type(kind, limits)),
            default=default,
            description=" ".join((info.description or "").split()),
            env=PREFIX + path.replace(".", "_").upper(),
            aliases=tuple(extra.get("x-env", ())),
            flags=tuple(extra.get("x-flag", ())),
            choices=choices,
            example=example or '"2.1"',
        )


def _type(kind: str, limits: Mapping[str, float]) -> str:
    words = {"integer": "whole number", "list": "list of texts", "mapping": "mapping of names to texts"}
    bounds = {"ge": " of at least {}", "gt": " over {}"}
    if "le" in limits:
        return f"{words.get(kind, kind)} from {limits['ge']:g} to {limits['le']:.15g}"
    return words.get(kind, kind) + "".join(bounds[key].format(f"{limit:g}") for key, limit in limits.items())


def _public(schema: Any) -> Any:
    """The schema without our own keys, and without the titles that repeat the names."""
    if isinstance(schema, dict):
        hidden = {key for key in schema if key.startswith("x-") or (key == "title" and isinstance(schema[key], str))}
        return {key: _public(value) for key, value in schema.items() if key not in hidden}
    return [_public(value) for value in schema] if isinstance(schema, list) else schema
