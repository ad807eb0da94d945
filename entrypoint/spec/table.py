"""The table of fields, read off JobSpec once: for checks, flags, help, schema and documents."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import inf
from types import NoneType
from typing import Annotated, Any, Literal, get_args, get_origin

from entrypoint import registry
from entrypoint.spec.jobspec import JobSpec
from entrypoint.spec.rules import Rule

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

Kind = Literal["text", "integer", "number", "list", "mapping"]
_KINDS: dict[Any, Kind] = {int: "integer", float: "number", tuple: "list", Mapping: "mapping"}
_WORDS = {"integer": "whole number", "list": "list of texts", "mapping": "mapping of names to texts"}
# In a section's docstring: a field's name and its meaning, whose further lines are indented.
_MEANING = re.compile(r"^(\w+):\s+(.*(?:\n +.*)*)", re.MULTILINE)


@dataclass(frozen=True)
class FieldInfo:
    """One leaf field of the spec, as a person sets it."""

    path: str  # dotted, such as `ssh.port`
    kind: Kind
    rule: Rule
    choices: tuple[str, ...]  # the only values it takes, where they are fixed
    default: Any
    meaning: str  # in the lines of the docstring
    aliases: tuple[str, ...]  # variables of other tools that set it too, the first one set wins
    flags: tuple[str, ...]

    @property
    def env(self) -> str:
        """Its own variable, such as ENTRYPOINT_SSH_PORT."""
        return PREFIX + self.path.replace(".", "_").upper()

    @property
    def description(self) -> str:
        """Its meaning on one line."""
        return " ".join(self.meaning.split())

    @property
    def type(self) -> str:
        """What it takes, in words: "whole number from 1 to 65535"."""
        rule, word = self.rule, _WORDS.get(self.kind, self.kind)
        if rule.words or self.choices:
            return rule.words or f"one of {', '.join(self.choices)}"
        if rule.le < inf:
            return f"{word} from {rule.ge:g} to {rule.le:.15g}"
        return word + (f" of at least {rule.ge:g}" * (rule.ge > -inf)) + (f" over {rule.gt:g}" * (rule.gt > -inf))

    @property
    def needs(self) -> str:
        """What a value must be, as the start of a message."""
        return f"{'a ' if self.rule.words or self.kind != 'text' else ''}{self.type} is needed"

    @property
    def example(self) -> str:
        """A value it takes, for messages."""
        if self.default is None:
            return f"{self.rule.ge:g}" if self.rule.ge > -inf else '"2.1"'
        return str(self.default).removesuffix(".0")


@functools.cache
def fields() -> tuple[FieldInfo, ...]:
    """Every leaf field of the spec, in the order of the model: for flags, help, documents and tests."""
    return tuple(_rows(JobSpec(), ""))


def entries(section: Any) -> dict[str, Any]:
    """Names and values of a section's fields and sections, or of the whole spec's."""
    return {name: value for name, value in vars(section).items() if not name.startswith("_")}


def intro(section: Any) -> tuple[str, dict[str, str]]:
    """What a section's docstring says of it, and of each field by name."""
    text = inspect.cleandoc(section.__doc__)
    meanings = {name: "\n".join(map(str.strip, words.splitlines())) for name, words in _MEANING.findall(text)}
    return text.partition("\n\n")[0], meanings


def _rows(section: Any, prefix: str) -> Iterator[FieldInfo]:
    meanings = intro(section)[1]
    declared = inspect.get_annotations(type(section))
    for name, default in entries(section).items():
        if dataclasses.is_dataclass(default):
            yield from _rows(default, f"{prefix}{name}.")
            continue
        takes, extras = _unwrapped(declared[name])
        names = [extra for extra in extras if isinstance(extra, str)]
        yield FieldInfo(
            path=prefix + name,
            kind=_KINDS.get(get_origin(takes) or takes, "text"),
            rule=next((extra for extra in extras if isinstance(extra, Rule)), Rule()),
            choices=get_args(takes) if get_origin(takes) is Literal else (),
            default=default,
            meaning=meanings[name],
            aliases=tuple(each for each in names if not each.startswith("-")),
            flags=tuple(each for each in names if each.startswith("-")),
        )


def _unwrapped(annotation: Any) -> tuple[Any, tuple[Any, ...]]:
    """The type itself, without None, and what stands beside it in Annotated."""
    if get_origin(annotation) is Annotated:
        inner, extras = _unwrapped(annotation.__origin__)
        return inner, (*extras, *annotation.__metadata__)
    return _unwrapped(get_args(annotation)[0]) if NoneType in get_args(annotation) else (annotation, ())


def adapters(field: FieldInfo) -> list[str]:
    """The names that the field takes, where it names an adapter; else none."""
    return registry.names(field.rule.adapters) if field.rule.adapters else []


def is_service(name: str, value: str) -> bool:
    """Whether a variable has the form that Kubernetes gives those of a Service, and is nobody's setting."""
    return bool(_SERVICE.fullmatch(name) or (name.endswith("_PORT") and _LINK.match(value)))
