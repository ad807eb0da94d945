"""Slurm's variables: the steps that `srun` starts, and compact lists of nodes, such as
`r[1-2]n[08-11,20],login`, and of counts, such as `2(x3),1`.

Sources: slurm.schedmd.com, "scontrol" (show hostnames) and "srun" (SLURM_TASKS_PER_NODE).
Containers do not have `scontrol`, so the lists are parsed here. Slurm never writes ranges with
steps, and they are not supported.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from entrypoint.base.errors import ConfigError
from entrypoint.spec import MAX_NODES

_TOKEN = re.compile(r"[^\[\],\s]+|\[[^\[\]\s]+\]|,")
_RANGE = re.compile(r"([0-9]{1,18})(?:-([0-9]{1,18}))?")
_COUNT = re.compile(r"([0-9]{1,9})(?:\(x([0-9]{1,9})\))?")

_STEP = ("SLURM_STEP_ID", "SLURM_STEPID")
# Ids of a shell of `salloc` and of a batch script, which are no steps of `srun`: they run only on
# the first node.
_SHELLS = ("4294967290", "4294967291")


def is_step(env: Mapping[str, str]) -> bool:
    """Return whether these are the variables of a task of a step that `srun` started."""
    step = next((value for name in _STEP if (value := env.get(name, "").strip())), "")
    return bool(step) and step not in _SHELLS


def expand(text: str, name: str) -> tuple[str, ...]:
    """Return the nodes of a list, in its order; numbers keep leading zeros, and the last brackets
    count first.

    Raises ConfigError, which names the variable, if the text is no such list, or has more nodes
    than a job may.
    """
    nodes: list[str] = []
    for parts in _entries(text.strip(), name):
        names = [""]
        for part in parts:
            ends = _numbers(part[1:-1], name) if part.startswith("[") else [part]
            _check_size(len(nodes) + len(names) * len(ends), name)
            names = [start + end for start in names for end in ends]
        nodes += names
    return tuple(nodes)


def most(text: str, name: str) -> int:
    """Return the largest of a list of counts.

    Raises ConfigError, which names the variable, if the text is no such list.
    """
    counts = [_COUNT.fullmatch(part.strip()) for part in text.split(",")]
    if None in counts:
        raise ConfigError(
            f"EP207 {name} is not a list of counts, such as 2(x3),1", repr(text[:60]), f"fix {name}"
        )
    return max(int(count[1]) for count in counts if count)


def _entries(text: str, name: str) -> Iterator[list[str]]:
    """Yield the entries, which are separated by commas outside of brackets, as parts: plain text,
    or brackets."""
    parts: list[str] = []
    at = 0
    while at < len(text):
        token = _TOKEN.match(text, at)
        if not token:
            raise _invalid(name, text[at:])
        if token[0] != ",":
            parts.append(token[0])
        elif parts:
            yield parts
            parts = []
        else:
            raise _invalid(name, text[at:])
        at = token.end()
    if not parts:  # the text is empty, or ends with a comma
        raise _invalid(name, text[-20:])
    yield parts


def _numbers(text: str, name: str) -> list[str]:
    """Return the numbers of `08-11,20` as they are written in host names."""
    numbers: list[str] = []
    for part in text.split(","):
        ends = _RANGE.fullmatch(part)
        if not ends:
            raise _invalid(name, f"[{text}]")
        low = ends[1]
        high = ends[2] or low
        # 8-11 gets longer while counting; Slurm does not write 8-011 and 011-12.
        if (
            int(high) < int(low)
            or len(high) < len(low)
            or (len(high) > len(low) and high.startswith("0"))
        ):
            raise _invalid(name, f"[{text}]")
        _check_size(len(numbers) + int(high) - int(low) + 1, name)
        numbers += [f"{number:0{len(low)}}" for number in range(int(low), int(high) + 1)]
    return numbers


def _check_size(count: int, name: str) -> None:
    if count > MAX_NODES:
        raise ConfigError(
            f"EP204 {name} has too many nodes", f"{count} or more", f"a job has {MAX_NODES} at most"
        )


def _invalid(name: str, rest: str) -> ConfigError:
    detail = f"it cannot be read from {rest[:60]!r} on" if rest else "it is empty"
    return ConfigError(
        f"EP207 {name} is not a list of nodes, such as n[08-11]", detail, "set ENTRYPOINT_HOSTS"
    )
