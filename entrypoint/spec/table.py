"""The table of fields, derived from JobSpec once: for checks, flags, help, schema and documents."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping
from math import inf
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from entrypoint.base import secret, values
from entrypoint.base.secret import is_secret
from entrypoint.base.tables import table
from entrypoint.spec.former import FORMER, for_launcher
from entrypoint.spec.jobspec import PREFIX, SHORT, JobSpec, leaf_path, variable
from entrypoint.spec.rules import FieldInfo, Rule

RESERVED = table("""
    ENTRYPOINT_SECRET  | The job's secret itself, at least 16 bytes, the same on every node.
    ENTRYPOINT_SPEC    | Path of the spec file; or its text, if that has several lines.
    ENTRYPOINT_ATTEMPT | Set for the ranks of a job with `restarts`, or that its scheduler has \
        started again: the attempt, from 1.
    ENTRYPOINT_VERDICT | Set for each rank: the file in which it may say why it fails.
    ENTRYPOINT_STAGE   | Internal: the stage of the boot that a process is in.
    ENTRYPOINT_KEEP    | Internal: the names that mpirun's -x sets by value, which a rank keeps.
    ENTRYPOINT_SIMULATE_ASCEND | For tests: count this many Ascend cards if there are none.
    ENTRYPOINT_IMAGE_START     | The image's own ENTRYPOINT, to run first, as a JSON list; `no` \
        leaves out the one that `install` has kept. Once it has run, `done`.
    ENTRYPOINT_USER    | For the file of `deploy compose`: the user that its containers run as.
    ENTRYPOINT_CACHE   | Internal: the directory in which the demo and the tests keep their \
        downloads.
""")
"""Our variables that are no field of the spec, and their meaning."""

# Those that describe no job.
_OF_NO_JOB = {"ENTRYPOINT_CACHE", "ENTRYPOINT_IMAGE_START", "ENTRYPOINT_USER"}

# Variables that Kubernetes sets in every container for each Service of its namespace
# (kubernetes.io, "Service", environment variables): those of a Service named entrypoint,
# entrypoint-api or sshd look like settings.
_LINK = re.compile(r"(tcp|udp|sctp)://")
_SERVICE = re.compile(
    r"\w_(SERVICE_HOST$|SERVICE_PORT(_\w|$)|PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?$)"
)

_KINDS: dict[Any, Any] = {int: "integer", float: "number", tuple: "list", Mapping: "mapping"}
_TYPES = table("""
    integer | whole number
    list    | list of texts
    mapping | mapping of names to texts
""")
# In a section's docstring: a field's name and its meaning, whose further lines are indented.
_MEANING = re.compile(r"^(\w+):\s+(.*(?:\n +.*)*)", re.MULTILINE)


@functools.cache
def fields() -> tuple[FieldInfo, ...]:
    """Return every leaf field of the spec, in the order of the model: for flags, help, documents
    and tests."""
    return tuple(_fields_of(JobSpec(), ""))


def entries(section: Any) -> dict[str, Any]:
    """Return names and values of the fields and sections of a section or of the whole spec."""
    return {name: value for name, value in vars(section).items() if not name.startswith("_")}


def about(section: Any) -> tuple[str, dict[str, str]]:
    """Return the description of a section and of its fields by name, from its docstring."""
    first, *lines = (section.__doc__ or " ").splitlines()  # none with -OO
    indent = min((len(line) - len(line.lstrip()) for line in lines if line.strip()), default=0)
    # like inspect.cleandoc, whose import takes 7 ms
    text = "\n".join([first, *(line[indent:] for line in lines)])
    meanings = {
        name: "\n".join(map(str.strip, meaning.splitlines()))
        for name, meaning in _MEANING.findall(text)
    }
    return text.partition("\n\n")[0], meanings


def _fields_of(section: Any, prefix: str) -> Iterator[FieldInfo]:
    declared = type(section).__annotations__
    meanings = about(section)[1]
    for name, default in entries(section).items():
        path = leaf_path(prefix, name)
        if values.is_dataclass(default):
            yield from _fields_of(default, path)
            continue
        takes, extras = _unwrapped(declared[name])
        kind = _KINDS.get(takes) or _KINDS.get(get_origin(takes), "text")
        rule = next((extra for extra in extras if isinstance(extra, Rule)), Rule())
        choices = get_args(takes) if get_origin(takes) is Literal else ()
        names = [extra for extra in extras if isinstance(extra, str)]
        flags = tuple(name for name in names if name.startswith("-"))
        aliases = tuple(name for name in names if not name.startswith("-"))
        type_text = rule.text or (
            f"one of {', '.join(choices)}" if choices else _TYPES.get(kind, kind) + _limits(rule)
        )
        yield FieldInfo(
            path,
            kind,
            type_text,
            rule,
            choices,
            default,
            meanings.get(name, ""),
            variable(path),
            aliases,
            flags,
        )


# Form of a former setting -> a present one of that form.
_LIKE = {"text": "mpi.interface", "path": "mpi.hostfile"}


@functools.cache
def former_fields() -> dict[str, FieldInfo]:
    """Return the former settings by their paths, as users still may set them."""
    present = {field.path: field for field in fields()}
    found = {}
    for path, former in FORMER.items():
        like = present[_LIKE.get(former.form) or former.now]
        launchers = ", ".join(former.launchers)
        meaning = f"Now `{former.now}`. Launchers: {launchers}."
        env, names = variable(path), former.variables
        found[path] = values.replace(
            like, path=path, env=env, aliases=names, flags=(), meaning=meaning
        )
    return found


def set_fields(spec: JobSpec) -> list[FieldInfo]:
    """Return every field of the spec, and what it has of former settings."""
    former = former_fields()
    found = list(fields())
    for path in spec._more:
        field = former.get(path) or next(
            former[name] for name, entry in FORMER.items() if entry.now == path
        )
        found.append(values.replace(field, path=path, env=variable(path)))
    return found


def names_of(path: str) -> set[str]:
    """Return all variables that set the field at this path."""
    former = [field for name, field in former_fields().items() if FORMER[name].now == path]
    own = [field for field in fields() if field.path == path]
    return {name for field in (*own, *former) for name in (field.env, *field.aliases)}


def _limits(rule: Rule) -> str:
    bounds = (("of at least", rule.ge), ("above", rule.gt), ("up to", rule.le))
    text = ", ".join(f"{name} {bound:.15g}" for name, bound in bounds if abs(bound) < inf)
    text = f" {text}" if text else ""
    if rule.le < inf and rule.ge > -inf:
        text = f" from {rule.ge:g} to {rule.le:.15g}"
    return text + (f", or `{rule.word}`" if rule.word else "")


def _unwrapped(annotation: Any) -> tuple[Any, tuple[Any, ...]]:
    """Return the type itself, the first of a union, and the other arguments of Annotated."""
    if get_origin(annotation) is Annotated:
        inner, extras = _unwrapped(annotation.__origin__)
        return inner, (*extras, *annotation.__metadata__)
    is_union = get_origin(annotation) in (Union, UnionType)
    return _unwrapped(get_args(annotation)[0]) if is_union else (annotation, ())


def settings_in(env: Mapping[str, str]) -> set[str]:
    """Return the names of our variables that are set and configure a job."""
    return {
        name
        for name, value in env.items()
        if value
        and name.startswith(PREFIX)
        and name not in _OF_NO_JOB
        and not is_service(name, value)
    }


def is_service(name: str, value: str) -> bool:
    """Return whether a variable has the form of those that Kubernetes sets for a Service, and is no
    setting."""
    return bool(_SERVICE.search(name) or (name.endswith("_PORT") and _LINK.match(value)))


# --------------------------------------------------------------------------------------------------
# Settings of a job that may be written where others can read them


_OF_FILES = ("spec",)
_OF_STARTS = ("flag", "env")
_OF_SCRIPTS = ("command", "env", "launcher", "node_rank")
# Fields that mean nothing under mpirun, or are refused.
_OF_OTHERS = re.compile(rf"nodes$|(ascend|ray|tensorflow|torch)\.|({'|'.join(FORMER)})$")


def given(spec: JobSpec) -> tuple[dict[str, str], list[str]]:
    """Return the user's settings as variables, without this node's index, the spec as its file; and
    the names of the secrets that they leave out."""
    spec = for_launcher(spec, spec.launcher or "")
    values, kept = _public(spec, _OF_STARTS, "node_rank", "command")
    files = [source.where for source in spec._sources.values() if source.origin == "spec"]
    result = {"ENTRYPOINT_SPEC": files[0].rsplit(":", 2)[0]} if files else {}
    for field, value in values:
        result[spec.source(field.path).where if field.path in FORMER else field.env] = _text(value)
    return result, kept


def written(spec: JobSpec) -> tuple[dict[str, str], list[str]]:
    """Return the content of the spec's file as variables, and the names of the secrets that they
    leave out.

    The hosts and this node's index are not included.
    """
    spec = for_launcher(spec, spec.launcher or "")
    values, kept = _public(spec, _OF_FILES, "hosts", "node_rank")
    return {field.env: _text(value) for field, value in values}, kept


def paths_in_file(spec: JobSpec) -> dict[str, str]:
    """Return the paths of the spec's file as variables, for a copy of it in another folder."""
    return {
        field.env: spec.value(field.path)
        for field in set_fields(spec)
        if field.rule.is_path and spec.source(field.path).origin == "spec"
    }


def for_script(spec: JobSpec) -> tuple[dict[str, Any], list[str]]:
    """Return the job as the content of a spec file for run_mpi.sh, which others may read; and the
    paths of the secrets that scripts leave out.

    Not included are this node's index, the launcher, and the settings of other launchers. `command`
    and `env` are those of `carried`.
    """
    values, kept = _public(spec, (*_OF_FILES, *_OF_STARTS), *_OF_SCRIPTS)
    scripted = carried(spec)
    content = {name: scripted[name] for name in ("command", "env") if scripted[name]}
    for field, value in values:
        if not _OF_OTHERS.match(field.path):
            name = f"{field.path}.{SHORT[field.path]}" if field.path in SHORT else field.path
            section, _, key = name.rpartition(".")
            (content.setdefault(section, {}) if section else content)[key] = value
    return content, kept


def carried(spec: JobSpec) -> dict[str, Any]:
    """Return what a script that others may read carries of the job, without secrets: env, workdir
    and command."""
    secrets = left_out(spec)
    return {
        "env": {name: value for name, value in spec.env.items() if name not in secrets},
        "workdir": spec.workdir,
        "command": spec.command if "command" not in secrets else (),
    }


def left_out(spec: JobSpec) -> list[str]:
    """Return the secrets that a script which others may read cannot contain: variables of `env`,
    and `command`."""
    is_secret_command = secret.masked_words(spec.command) != list(spec.command)
    return [*_secrets(spec.env), *(["command"] if is_secret_command else [])]


def _public(
    spec: JobSpec, origins: tuple[str, ...], *without: str
) -> tuple[list[tuple[FieldInfo, Any]], list[str]]:
    """Return the fields that these origins have set, but for those at the paths `without`, with
    their values; and the names of the secrets that they leave out."""
    values = []
    kept = []
    for field in set_fields(spec):
        value: Any = spec.value(field.path)
        if field.path in without or value is None:
            continue
        if field.kind == "mapping":
            hidden = _secrets(value)
            kept += [name for name in hidden if spec.source(f"env.{name}").origin in origins]
            value = {name: text for name, text in value.items() if name not in hidden}
        if spec.source(field.path).origin not in origins or value == {}:
            continue
        if _holds_secret(field, value):
            kept.append(field.path)
        else:
            values.append((field, value))
    return values, kept


def _secrets(env: Mapping[str, str]) -> list[str]:
    """Return the names of the variables that are secrets, by their names or their values."""
    return [name for name, text in env.items() if is_secret(name) or secret.masked(text) != text]


def _holds_secret(field: FieldInfo, value: Any) -> bool:
    is_text = isinstance(value, str)
    texts = [value] if is_text else list(value) if field.kind == "list" else []
    return secret.masked_words(texts) != texts or (is_text and secret.hides(field.path, value))


def _text(value: Any) -> str:
    """Return a value in the form of a variable."""
    if isinstance(value, str):
        return value
    import json  # most starts write none

    return json.dumps(value)
