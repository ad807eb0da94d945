"""What a node sees of itself, as it travels to the leader. None, "" and () mean that it is not
known there."""

from __future__ import annotations

from typing import Annotated, TypeVar

from entrypoint.base.values import dataclass
from entrypoint.base.wire import Length, Range
from entrypoint.system.smi import Card

_MOST = 1 << 62
_T = TypeVar("_T")

String = Annotated[str, Length(500)]
Strings = Annotated[tuple[String, ...], Length(64)]
Number = Annotated[int, Range(-_MOST, _MOST)] | None
Decimal = Annotated[float, Range(-_MOST, _MOST)] | None
Rows = Annotated[tuple[_T, ...], Length(300)]


@dataclass(frozen=True)
class InstalledProgram:
    """A program of the image."""

    name: String = ""
    path: String = ""
    version: String = ""
    problem: String = ""  # why it says no version


@dataclass(frozen=True)
class Named:
    """A name and what belongs to it."""

    name: String = ""
    value: String = ""


@dataclass(frozen=True)
class Disk:
    """A folder that the job writes to."""

    use: String = ""
    path: String = ""
    free: Number = None  # bytes
    files: Number = None  # that can still be made; None where the file system sets no limit
    problem: String = ""


@dataclass(frozen=True)
class Link:
    """An address of a network interface that is up."""

    name: String = ""
    address: String = ""
    network: String = ""
    mtu: Number = None
    speed: Number = None  # Mbit/s


@dataclass(frozen=True)
class Port:
    """A port of an InfiniBand or RoCE device."""

    device: String = ""
    port: String = ""
    link: String = ""  # InfiniBand, or Ethernet for RoCE
    state: String = ""
    rate: String = ""


@dataclass(frozen=True)
class Name:
    """A node's name, and the addresses that it has here."""

    host: String = ""
    addresses: Strings = ()
    problem: String = ""


@dataclass(frozen=True)
class Refusal:
    """Why `run` would end on this node."""

    status: Number = None
    reason: String = ""


@dataclass(frozen=True)
class Observation:
    """One node. Limits are numbers, -1 for none."""

    system: String = ""
    kernel: String = ""
    machine: String = ""
    packages: String = ""  # a digest of what is installed: another image has another one
    spec: String = ""  # its file
    settings: Rows[Named] = ()  # what was given, less what may differ between nodes, and no secret
    platform: String = ""
    evidence: Strings = ()  # what of the job came from which variable
    device: String = ""
    # accelerators that a process here can use, by their device files
    devices: Number = None
    device_origin: String = ""
    programs: Rows[InstalledProgram] = ()
    libraries: Rows[Named] = ()  # what the image's Python says of torch, Horovod and others
    tool: String = ""  # that was asked for the accelerators
    driver: String = ""
    driver_cuda: String = ""  # the newest CUDA that the driver takes
    cann: String = ""
    cards: Rows[Card] = ()
    shm_free: Number = None  # bytes
    shm_total: Number = None
    shm_problem: String = ""
    memlock: Number = None  # bytes
    may_lock: bool = False  # without regard to that limit
    handles: Number = None  # file handles that a process may have open at most
    pids: Number = None  # processes and threads that may be
    pids_used: Number = None
    cpus: Decimal = None  # that may be used at a time
    cpu_limit: Decimal = None  # by the cgroup; None for none
    memory_limit: Number = None  # bytes, of the cgroup
    memory_free: Number = None  # bytes that can still be taken
    disks: Rows[Disk] = ()
    links: Rows[Link] = ()
    no_link: bool = False  # there is none but loopback
    ports: Rows[Port] = ()
    rdma_files: Number = None  # device files for them in /dev/infiniband
    names: Rows[Name] = ()
    own: Name = Name()  # this container's host name
    reverse: Rows[Named] = ()  # addresses of this node and the names that they lead back to
    refused: Rows[Refusal] = ()
    unseen: Rows[Named] = ()  # what could not be looked at, and why
    seconds: Decimal = None  # that it took

    def library(self, name: str) -> str:
        """What the image's Python says of this library; "" for nothing."""
        return next((row.value for row in self.libraries if row.name == name), "")

    def version(self, name: str) -> str:
        """The version of this program of the image; "" for none."""
        return next((row.version for row in self.programs if row.name == name), "")
