"""What a node sees of itself, as it travels to the leader. None, "" and () mean that it is not known there."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from entrypoint.values import dataclass, field, fields, is_dataclass

Read = Callable[[Any], Any]  # a value as it arrived -> the value; raises ValueError

TEXT, ROWS, ENTRIES = 500, 300, 64  # characters of a text; rows of a list; entries of a list in a row
_MOST = 1 << 62


def read(kind: type, value: Any) -> Any:
    """A mapping that came from another node as this kind of observation. Names that it does not know are ignored.

    Raises ValueError that says what is wrong.
    """
    if not isinstance(value, Mapping):
        raise ValueError(f"{kind.__name__.lower()}: no names and values")
    taken = {}
    for each in fields(kind):
        if each.name in value:
            try:
                taken[each.name] = each.metadata["read"](value[each.name])
            except ValueError as error:
                raise ValueError(f"{each.name}: {error}") from None
    return kind(**taken)


def plain(value: Any) -> Any:
    """An observation as names, texts, numbers and lists."""
    if is_dataclass(value):
        return {name: plain(each) for name, each in vars(value).items()}
    return [plain(each) for each in value] if isinstance(value, tuple) else value


def _as_text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError("not a text")
    return "".join(each if each.isprintable() else " " for each in value[:TEXT])


def _as_number(value: Any) -> float | int | None:
    if value is not None and not (type(value) in (int, float) and -_MOST <= value <= _MOST):  # as NaN is not, either
        raise ValueError("not a number")
    return value  # type: ignore[no-any-return]


def _as_truth(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError("neither true nor false")
    return value


def _each(of: Read, most: int) -> Read:
    def check(value: Any) -> tuple[Any, ...]:
        if not isinstance(value, (list, tuple)) or len(value) > most:
            raise ValueError(f"not a list of at most {most}")
        return tuple(map(of, value))

    return check


def _text() -> Any:
    return field(default="", metadata={"read": _as_text})


def _number() -> Any:
    return field(default=None, metadata={"read": _as_number})


def _truth() -> Any:
    return field(default=False, metadata={"read": _as_truth})


def _texts() -> Any:
    return field(default=(), metadata={"read": _each(_as_text, ENTRIES)})


def _rows(kind: type) -> Any:
    return field(default=(), metadata={"read": _each(lambda value: read(kind, value), ROWS)})


@dataclass(frozen=True)
class InstalledProgram:
    """A program of the image."""

    name: str = _text()
    path: str = _text()
    version: str = _text()
    problem: str = _text()  # why it says no version


@dataclass(frozen=True)
class Named:
    """A name and what belongs to it."""

    name: str = _text()
    value: str = _text()


@dataclass(frozen=True)
class Card:
    """An accelerator, as the driver's own tool shows it."""

    index: int | None = _number()
    name: str = _text()
    problem: str = _text()  # what the tool says of its health, where it is not well
    used: int | None = _number()  # MiB of its memory
    processes: tuple[str, ...] = _texts()  # that use it already


@dataclass(frozen=True)
class Disk:
    """A folder that the job writes to."""

    use: str = _text()
    path: str = _text()
    free: int | None = _number()  # bytes
    files: int | None = _number()  # that can still be made; None where the file system sets no limit
    problem: str = _text()


@dataclass(frozen=True)
class Link:
    """An address of a network interface that is up."""

    name: str = _text()
    address: str = _text()
    network: str = _text()
    mtu: int | None = _number()
    speed: int | None = _number()  # Mbit/s


@dataclass(frozen=True)
class Port:
    """A port of an InfiniBand or RoCE device."""

    device: str = _text()
    port: str = _text()
    link: str = _text()  # InfiniBand, or Ethernet for RoCE
    state: str = _text()
    rate: str = _text()


@dataclass(frozen=True)
class Name:
    """A node's name, and the addresses that it has here."""

    host: str = _text()
    addresses: tuple[str, ...] = _texts()
    problem: str = _text()


@dataclass(frozen=True)
class Refusal:
    """Why `run` would end on this node."""

    status: int | None = _number()
    reason: str = _text()


@dataclass(frozen=True)
class Observation:
    """One node. Limits are numbers, -1 for none."""

    system: str = _text()
    kernel: str = _text()
    machine: str = _text()
    packages: str = _text()  # a digest of what is installed: another image has another one
    spec: str = _text()  # its file
    settings: tuple[Named, ...] = _rows(Named)  # what was given, less what may differ between nodes, and no secret
    platform: str = _text()
    evidence: tuple[str, ...] = _texts()  # what of the job came from which variable
    device: str = _text()
    devices: int | None = _number()  # accelerators that a process here can use, by their device files
    device_origin: str = _text()
    programs: tuple[InstalledProgram, ...] = _rows(InstalledProgram)
    libraries: tuple[Named, ...] = _rows(Named)  # what the image's Python says of torch, Horovod and others
    tool: str = _text()  # that was asked for the accelerators
    driver: str = _text()
    driver_cuda: str = _text()  # the newest CUDA that the driver takes
    cann: str = _text()
    cards: tuple[Card, ...] = _rows(Card)
    shm_free: int | None = _number()  # bytes
    shm_total: int | None = _number()
    shm_problem: str = _text()
    memlock: int | None = _number()  # bytes
    may_lock: bool = _truth()  # without regard to that limit
    handles: int | None = _number()  # file handles that a process may have open at most
    pids: int | None = _number()  # processes and threads that may be
    pids_used: int | None = _number()
    cpus: float | None = _number()  # that may be used at a time
    cpu_limit: float | None = _number()  # by the cgroup; None for none
    memory_limit: int | None = _number()  # bytes, of the cgroup
    memory_free: int | None = _number()  # bytes that can still be taken
    disks: tuple[Disk, ...] = _rows(Disk)
    links: tuple[Link, ...] = _rows(Link)
    no_link: bool = _truth()  # there is none but loopback
    ports: tuple[Port, ...] = _rows(Port)
    rdma_files: int | None = _number()  # device files for them in /dev/infiniband
    names: tuple[Name, ...] = _rows(Name)
    own: Name = field(default=Name(), metadata={"read": lambda value: read(Name, value)})  # this container's host name
    reverse: tuple[Named, ...] = _rows(Named)  # addresses of this node and the names that they lead back to
    refused: tuple[Refusal, ...] = _rows(Refusal)
    unseen: tuple[Named, ...] = _rows(Named)  # what could not be looked at, and why
    seconds: float | None = _number()  # that it took

    def library(self, name: str) -> str:
        """What the image's Python says of this library; "" for nothing."""
        return next((each.value for each in self.libraries if each.name == name), "")

    def program(self, name: str) -> InstalledProgram | None:
        """This program of the image."""
        return next((each for each in self.programs if each.name == name), None)
