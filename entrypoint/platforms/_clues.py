"""Collects a Site: values with their origins, and the reasons for unknown values; reads hosts as
platforms name them.

Hosts are written with ports, as `host:port` or `[address]:port`, or alone. On platforms that run on
Kubernetes, Pods with an index are named `<job>-<index>`; a JobSet's Job is named
`<jobset>-<replicated job>-<n>`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial
from types import ModuleType
from typing import Any

from entrypoint.base.errors import ConfigError
from entrypoint.base.interfaces import ip
from entrypoint.base.model import Facts, Site
from entrypoint.base.text import count, digits
from entrypoint.spec import JOB_NAME, MAX_NODES

Listener = tuple[str, int | None]  # host, and port if there is one
Reason = tuple[str, str, str]  # why a field is unknown: summary, detail, hint
INDEX = "JOB_COMPLETION_INDEX"
POD_SECRET = "mount a Kubernetes Secret into every Pod, and name its file by ENTRYPOINT_SECRET_FILE"
_MOST = 99999  # Jobs of a JobSet; a longer number is a date or a time in a Job's own name
# Counts of the scheduler's restarts: Slurm sets the first (slurm.schedmd.com, "sbatch"); to a Pod
# `deploy kubernetes` gives JobSet's annotation restart-attempt, or Volcano's job-retry-count.
_RESTARTS = ("SLURM_RESTART_COUNT", "JOBSET_RESTART_ATTEMPT", "VC_RETRY_COUNT")
_SPEC_FIELDS = {"index": "node_rank", "job": "name"}  # a Site's name for a field of JobSpec


class Clues:
    """Values from a platform's variables and files, and the reasons for missing ones."""

    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        self.env = facts.env
        self.origins: dict[str, str] = {}  # as Site.origins
        self.unknown: dict[str, Reason] = {}  # as Site.unknown
        self._values: dict[str, Any] = {}

    @property
    def hosts(self) -> tuple[str, ...]:
        """The hosts that were taken."""
        return tuple(self._values.get("hosts", ()))

    @property
    def index(self) -> int | None:
        """The index that was taken."""
        return self._values.get("index")

    def site(self, platform: str) -> Site:
        """Return the Site of this platform."""
        return Site(platform, **self._values, origins=self.origins, unknown=self.unknown)

    def first(self, *names: str) -> str:
        """Return the first of these variables that is set; the first of all if none is."""
        return next((name for name in names if self.env.get(name, "").strip()), names[0])

    def number(self, name: str) -> int | None:
        """Return the variable's number, as `number` does."""
        return number(self.env.get(name, ""), name)

    def take(self, field: str, value: Any, origin: str = "") -> None:
        """Take a value for a field of the Site, unless it is empty.

        `origin` is the variable or file that it is from; "" if it follows from other values.
        """
        if value in (None, "", ()):
            return
        self._values[field] = value
        if origin:
            self.origins[_SPEC_FIELDS.get(field, field)] = origin

    def drop(self, field: str) -> None:
        """Take the value of a field back."""
        self._values.pop(field, None)

    def no_hosts(self, summary: str, detail: str, hint: str) -> None:
        """Note why the hosts are unknown."""
        self.unknown["hosts"] = (summary, detail, hint)

    def no_index(self, summary: str, detail: str, hint: str) -> None:
        """Note why this node's index is unknown."""
        self.unknown["node_rank"] = (summary, detail, hint)

    def take_hosts(
        self, origin: str, counter: str = "", hosts: tuple[str, ...] | None = None
    ) -> None:
        """Take the hosts that the variable lists, or `hosts`, unless `counter` differs."""
        if hosts is None:
            hosts = names(self.env.get(origin, ""))
        self.take("hosts", self.counted(hosts, origin, counter), origin)

    def counted(self, hosts: tuple[str, ...], origin: str, counter: str) -> tuple[str, ...]:
        """Return the hosts; none if the variable `counter` has another number of them."""
        nodes = self.number(counter)
        if nodes is None or len(hosts) == nodes or (nodes == 1 and not hosts):
            return hosts
        if hosts:
            self.no_hosts(
                "the platform names another number of hosts than it counts",
                f"{origin} has {len(hosts)}, {counter} is {nodes}",
                "set ENTRYPOINT_HOSTS to the right list",
            )
        else:
            summary = f"{counter} is {nodes} and nothing names the hosts"
            self.no_hosts(summary, f"{origin} is unset", "set ENTRYPOINT_HOSTS")
        return ()

    def take_listeners(self, listeners: Sequence[Listener], origin: str) -> None:
        """Take the hosts and their ports; no ports if one of the hosts has none."""
        self.take("hosts", tuple(host for host, _ in listeners), origin)
        self._values["ports"] = ports(listeners)
        if reason := wrong_ports(listeners, origin):
            self.unknown["hosts"] = reason

    def take_index(self, name: str, offset: int = 0, first: int = 0) -> None:
        """Take this node's place among the hosts: the variable's number, after `offset` others, and
        after that of the `first` node."""
        index = self.number(name)
        if index is not None and index <= first:
            index = 0 if index == first else index + 1
        hosts = len(self.hosts)
        if index is not None and not (hosts and index + offset >= hosts):
            self.take("index", index + offset, name)
        elif index is not None:
            self.beyond(name, index, self.origins.get("hosts", ""), count(hosts, "host"))
        elif hosts > 1:
            self.no_index(
                f"the platform gives {hosts} hosts and no index of this one",
                f"{name} is unset",
                "set ENTRYPOINT_NODE_RANK (0 for worker-0)",
            )
        elif hosts:  # without hosts none: the spec may name many, and they can't all be node 0
            self.take("index", 0)

    def beyond(self, name: str, index: int, lists: str, hosts: str, last: str = "host") -> None:
        """Note that this node's index is larger than that of the last host that `lists` names."""
        self.no_index(
            f"{name} is beyond the last {last}",
            f"{name} is {index}, {lists} names {hosts}",
            f"make sure that {lists} and {name} belong to one job, or set ENTRYPOINT_NODE_RANK",
        )

    def take_slots(self, *names: str) -> None:
        """Take this node's accelerators by the first variable that is set. 0 is probed instead."""
        name = self.first(*names)
        self.take("slots", self.number(name) or None, name)

    def take_job(self, origin: str, name: str | None = None) -> None:
        """Take the job's name, by default the variable's value, if a job here can have it."""
        self.take("job", job_name(self.env.get(origin, "") if name is None else name), origin)


def read(platform: ModuleType, facts: Facts) -> Site:
    """Return the Site that this platform's module takes from the facts. Raises its ConfigError."""
    clues = Clues(facts)
    getattr(platform, "read", partial(take_variables, platform))(clues)
    clues.take("earlier", digits(clues.env.get(clues.first(*_RESTARTS), "").strip()))
    return clues.site(platform.__name__.rpartition(".")[2])


def take_variables(row: Any, clues: Clues) -> None:
    """Take what the variables of a platform have, which is no more than that."""
    lists = clues.first(*row.HOSTS)
    masters = names(",".join(clues.env.get(name, "") for name in row.MASTER))
    hosts = sorted(names(clues.env.get(lists, "")), key=lambda host: host not in masters)
    counter = clues.first(*row.COUNT)
    if not hosts and "-" not in row.MASTER:  # all nodes may call in at the master
        nodes = clues.number(counter) or 0
        clues.take("nodes", nodes if nodes > 1 else None, counter)
        clues.take("leader", masters[0] if masters else None, clues.first(*row.MASTER))
    if lists != "-":
        clues.take_hosts(lists, counter, tuple(hosts))
    clues.take_index(clues.first(*row.INDEX), first=clues.number(*row.FIRST) or 0)
    clues.take_slots(*row.SLOTS)
    clues.take_job(*row.JOB)


def names(text: str) -> tuple[str, ...]:
    """Return the hosts of a list, between commas, semicolons or whitespace, without ports and
    brackets."""
    entries = re.split(r"[,;\s]+", text)
    return tuple(_bare(listener(entry)[0]) for entry in entries if entry)


def _bare(host: str) -> str:
    """Return an IPv6 address without the brackets around it; any other host as it is."""
    inner = host[1:-1]
    return inner if host == f"[{inner}]" and ip(inner) else host


def number(text: str, name: str) -> int | None:
    """Return the number in the variable's text; None if it is empty.

    Raises ConfigError if it is no whole number, or larger than in any job.
    """
    text = text.strip()
    if not text:
        return None
    if not (text.isascii() and text.isdigit()):
        raise ConfigError(f"EP207 {name} is not a whole number", repr(text[:60]), f"fix {name}")
    if len(text) > 20 or int(text) > MAX_NODES:  # the limit of slots is lower
        raise ConfigError(
            f"EP207 {name} is too large",
            text[:60],
            f"set it to {MAX_NODES} at most, the nodes of a job",
        )
    return int(text)


def listener(entry: str) -> Listener:
    """Return host and port of an entry. The last part of an IPv6 address without brackets is no
    port."""
    host, _, port = entry.rpartition(":")
    number = digits(port)
    if not host or number is None or ip(entry):
        return entry, None
    inner = host[1:-1]  # inside the brackets around an IPv6 address
    return inner if ":" in inner and ip(inner) else host, number


def is_port(text: str) -> bool:
    """Return whether this is the number of a TCP port."""
    return 1 <= (digits(text) or 0) <= 65535


def ports(listeners: Sequence[Listener]) -> tuple[int, ...]:
    """Return the port of each; nothing if one has none."""
    numbers = tuple(port for _, port in listeners if port is not None)
    return numbers if len(numbers) == len(listeners) else ()


def wrong_ports(listeners: Sequence[Listener], lists: str) -> tuple[str, str, str] | None:
    """Return why the hosts are unknown if a port cannot be one; `lists` names the variables."""
    invalid = [
        f"{host}:{port}" for host, port in listeners if port is not None and not is_port(str(port))
    ]
    if not invalid:
        return None
    return (
        f"a port is a number from 1 to 65535 ({lists})",
        ", ".join(invalid),
        "fix the list, or set ENTRYPOINT_HOSTS",
    )


def label(host: str) -> str:
    """Return the first part of a host's name, which is the name of its pod."""
    return host.split(".")[0]


def numbered(name: str, before: str) -> tuple[str, int] | None:
    """Return start and number of `<start><before><number>`; None if the name is not of this
    form."""
    start, _, number = name.rpartition(before)
    value = digits(number)
    return None if value is None or not start else (start, value)


def by_number(name: str) -> list[str | int]:
    """Return a sort key with worker-2 before worker-10."""
    parts = re.split("([0-9]{1,18})", name)
    return [int(part) if place % 2 else part for place, part in enumerate(parts)]


def job_name(name: str) -> str | None:
    """Return the name if it can be a job's, which is part of paths; otherwise None."""
    return name if re.fullmatch(JOB_NAME, name) else None


def job_of(facts: Facts) -> str:
    """Return the Job in this Pod's host name; empty if the host name has another form, as on the
    host's network."""
    job, index = _cut(label(facts.hostname))
    return job if str(index) == facts.env.get(INDEX, "").strip() else ""


def may_be_jobset(facts: Facts) -> bool:
    """Return whether the host name can be that of a JobSet's Pod. A Job may have such a name,
    too."""
    replicated, number = _cut(job_of(facts))
    jobset, _, name = replicated.partition("-")
    return bool(jobset and name and number <= _MOST)


def _cut(name: str) -> tuple[str, int]:
    """Return a name before its last `-`, and the number after it; empty and -1 if that is none or
    has leading zeros."""
    parts = numbered(name, "-")
    return parts if parts and name == f"{parts[0]}-{parts[1]}" else ("", -1)
