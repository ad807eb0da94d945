"""/etc/mpi/hostfile, as Kubeflow mounts it for MPI: a line for each node, `host slots=N`, or
`host:N`."""

from __future__ import annotations

from collections.abc import Mapping

from entrypoint.base.errors import ConfigError
from entrypoint.base.model import Facts
from entrypoint.base.text import digits
from entrypoint.base.values import frozen
from entrypoint.platforms._clues import Clues, Listener, Reason, label, listener

HOSTFILE = "/etc/mpi/hostfile"


@frozen
class Hostfile:
    """The content of the hostfile."""

    hosts: tuple[str, ...]
    index: int | None  # this node's line, by its own name
    slots: int | None  # of this node


def names(files: Mapping[str, str]) -> tuple[str, ...]:
    """Return the hosts as they are written, without the rest of their lines."""
    return tuple(listener(line.split()[0])[0] for line in _lines(files))


def read(facts: Facts) -> Hostfile:
    """Return the hostfile; without hosts if there is none.

    Raises ConfigError if a line cannot be parsed.
    """
    entries = [_entry(line) for line in _lines(facts.files)]
    # Whole labels are compared: worker-1 is not worker-10.
    pod = label(facts.hostname)
    matches = [place for place, (host, _) in enumerate(entries) if pod and label(host) == pod]
    index = matches[0] if len(matches) == 1 else None
    return Hostfile(
        tuple(host for host, _ in entries), index, None if index is None else entries[index][1]
    )


def take(clues: Clues, file: Hostfile, job: str, unknown: Reason | None) -> None:
    """Take the nodes of a job with this file and this name, unless they are unknown."""
    if unknown:
        clues.unknown["hosts"] = unknown
    else:
        clues.take("hosts", file.hosts, HOSTFILE)
    clues.take("index", file.index, HOSTFILE)
    clues.take("slots", file.slots, HOSTFILE)
    clues.take_job(HOSTFILE if file.hosts else "host name", job)


def _lines(files: Mapping[str, str]) -> list[str]:
    lines = (line.strip() for line in files.get(HOSTFILE, "").splitlines())
    return [line for line in lines if line and not line.startswith("#")]


def _entry(line: str) -> Listener:
    """Return host and slots of a line."""
    first, *others = line.split()
    host, slots = listener(first)
    for entry in others:
        name, _, value = entry.partition("=")
        if name == "slots":
            slots = digits(value) or 0
    if slots == 0:
        raise ConfigError(
            f"EP207 {HOSTFILE} has a line with wrong slots",
            repr(line[:80]),
            "write slots=1 or more",
        )
    return host, slots
