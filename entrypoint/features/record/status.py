"""Reads the record of the boot in this container, for `entrypoint status`.

No setting is needed where the run directory is in its default place and this user has one record
there, or one of a boot that runs.
"""

from __future__ import annotations

import contextlib
import glob
import os
import select
import time
from pathlib import Path
from typing import Any

from entrypoint.base.errors import NoInputError, RefusedError, UnavailableError, UsageError
from entrypoint.base.text import duration, from_json
from entrypoint.base.wire import Invalid, read, to_json
from entrypoint.features.record import health
from entrypoint.features.record.content import Record, RecordedProcess
from entrypoint.features.record.file import record_of
from entrypoint.system import proc
from entrypoint.system.descriptors import open_regular
from entrypoint.system.files import is_trusted
from entrypoint.system.process import TEMPS

_USUAL = [f"{temp}/entrypoint-*" for temp in TEMPS]  # run directories of jobs that set none
_LATE = 3.0  # seconds that a write may be overdue
_MOMENT = 0.5  # seconds to wait for the record of a boot that has none yet
_LOOK = 0.05  # seconds between two reads meanwhile
_MOST = 64 << 20  # size limit of a record
_STOPPED = {"T": "it is stopped (SIGSTOP, or a debugger)", "t": "a debugger holds it"}
_GONE = "ZX"


class Silent(UnavailableError):
    """The entrypoint may run, and has not written its state in time."""

    phase = "no answer"

    @property
    def state(self) -> dict[str, Any]:
        """Return what is known of the boot, in the form of `ask`."""
        return {"phase": self.phase, "detail": str(self)}


class Starting(Silent):
    """A boot has begun, and has no state yet."""

    phase = "starting"

    def __init__(self, run_dir: object) -> None:
        super().__init__(
            "EP033 a boot has begun here and has no state yet",
            f"it reads its spec, waits for calls, or its hooks run; or it is not at {run_dir}",
            "ask again, or give --run-dir",
        )


def find(run_dir: str | None = None) -> Path:
    """Return the run directory of the boot: this one, if set; that of ENTRYPOINT_RUN_DIR, if it has
    a boot; that of this user's only boot in the usual places that runs; or that of the only one
    there. Root's count if this user has none.

    Raises UsageError if there are several, NoInputError if there is no trace of any, RefusedError
    if all are of other users, Starting if one has just begun.
    """
    if run_dir:
        return Path(run_dir)
    default = os.environ.get("ENTRYPOINT_RUN_DIR")
    if default and any(map(os.path.exists, (default, record_of(default)))):
        return Path(default)
    records = _records()
    for user in dict.fromkeys((os.geteuid(), 0)):
        own = sorted(path for path, owner in records.items() if owner == user)
        running = [path for path in own if _runs(path)]
        if not running and health.states_of(user):
            raise Starting(" or ".join(_USUAL))
        if len(boots := running or own) > 1:
            hint = f"choose one: --run-dir {boots[0]}"
            raise UsageError("EP032 there are several boots here", ", ".join(boots), hint)
        if boots:
            return Path(boots[0])
    if records:
        path, owner = sorted(records.items())[0]
        raise _refused(record_of(path), owner)
    detail = "no entrypoint runs here, and none has left a record in /tmp"
    hint = (
        "ask where the job runs (docker exec, kubectl exec), or give --run-dir; a program alone has"
        " no state"
    )
    raise NoInputError("EP030 there is no boot to ask", detail, hint)


def _records() -> dict[str, int]:
    """Return the run directories in the usual place that have a record, and its owner."""
    owners = {}
    for file in (file for usual in _USUAL for file in glob.glob(record_of(usual))):
        with contextlib.suppress(OSError):
            owners[file.removesuffix(record_of(""))] = os.lstat(file).st_uid
    return owners


def _runs(run_dir: str) -> bool:
    """Return whether the boot of this run directory has not ended, as far as its record says so to
    this user: another user's says nothing."""
    try:
        return _process_state(load(record_of(run_dir)).process) not in _GONE
    except (OSError, Invalid, RefusedError) as error:
        return isinstance(error, RefusedError)


def _refused(file: str, owner: int) -> RefusedError:
    detail = f"{file} is owned by {owner}, this user is {os.geteuid()}"
    hint = f"ask as that user: `docker exec -u {owner}`"
    return RefusedError("EP031 this record belongs to another user", detail, hint)


def load(file: str) -> Record:
    """Return the content of a record file.

    Raises OSError if it cannot be read, RefusedError if another user may have created it, Invalid
    if it is no record.
    """
    try:
        opened = open_regular(file)
    except PermissionError:
        with contextlib.suppress(OSError):
            raise _refused(file, os.lstat(file).st_uid) from None
        raise
    with open(opened, "rb") as content:
        about = os.fstat(opened)
        if not is_trusted(file, about):
            raise _refused(file, about.st_uid)
        data = content.read(_MOST)
    try:
        return read(Record, from_json(data))
    except ValueError as error:
        raise Invalid(str(error)) from None


def ask(run_dir: Path) -> dict[str, Any]:
    """Return the state of a boot as JSON, or its result if it has ended.

    Raises Starting, NoInputError if there was no boot, RefusedError if it is another user's, Silent
    if it has written nothing in time, UnavailableError if it has left no result.
    """
    begun = time.monotonic()
    file = record_of(str(run_dir))
    while True:
        try:
            return _state(file)
        except (FileNotFoundError, NotADirectoryError) as error:
            if not health.states_of(os.geteuid()):
                hint = "see --run-dir, or ENTRYPOINT_RUN_DIR"
                detail = f"{file}: {error.strerror}"
                raise NoInputError("EP030 there is no boot to ask", detail, hint) from None
        except OSError as error:
            detail = f"{file}: {error.strerror or error}"
            raise NoInputError("EP030 this boot cannot be asked", detail, "see --run-dir") from None
        except Invalid as error:
            detail = f"{file}: {error}"
            raise Silent(
                "EP033 the record cannot be read",
                detail,
                "ask with the toolkit's version that wrote it",
            ) from None
        if time.monotonic() - begun > _MOMENT:
            raise Starting(run_dir)
        pause(_LOOK)


def process(run_dir: Path) -> RecordedProcess:
    """Return the entrypoint's process, which `ask` has found there."""
    recorded = load(record_of(str(run_dir))).process
    assert recorded is not None  # it has no result
    return recorded


def pause(seconds: float) -> None:
    """Let time pass before the next read: no event announces a change."""
    select.select([], [], [], seconds)


def _state(file: str) -> dict[str, Any]:
    """Return the state in this record. Raises as `ask` does."""
    record = load(file)
    state = _process_state(record.process)
    if state in _GONE:
        record = load(file)  # it may have written its result at its end
    if record.result:
        return {"phase": "ended", **record.result, "command": record.command}
    if record.process is None:
        raise Invalid("neither a result nor a process")
    what = f"process {record.process.pid}"
    if record.status is None:
        what += " has become the program"
        return {**_of_program(what, state), "command": record.command}
    age = time.monotonic() - record.at
    if age < 0 or state in _GONE:
        before = f"{duration(age)} before, it was: {record.status.phase}"
        raise UnavailableError(
            "EP033 the entrypoint has ended without a result",
            f"{what} is gone; {'the machine was restarted' if age < 0 else before}",
            "it was killed: see the container's log and its memory limit",
        )
    if state in _STOPPED or age > record.pause + _LATE:
        hint = "it gets no processor time, or waits for a disk; or the disk is full"
        raise Silent(
            "EP033 the entrypoint has not written its state",
            f"{what} in {file.removesuffix(record_of(''))}: its record is {duration(age)} old",
            _STOPPED.get(state, hint),
        )
    return {**from_json(to_json(record.status.later(age))), "command": record.command}


def _of_program(what: str, state: str) -> dict[str, Any]:
    """Return the state of a program that has replaced the entrypoint: only its process shows it.

    Raises Silent if it is stopped, UnavailableError if it has ended, NoInputError if it cannot be
    seen.
    """
    if state in _GONE:
        raise UnavailableError(
            "EP033 the program has ended with a status that the entrypoint does not know",
            f"{what}, and is gone",
            "what started it has its status, such as the container engine",
        )
    if state in _STOPPED:
        raise Silent("EP033 the program is stopped", what, _STOPPED[state])
    if state == "?":
        detail = f"{what}, in another pid namespace"
        raise NoInputError("EP030 this boot cannot be asked", detail, "ask in its container")
    return {"phase": "running", "detail": what}


def _process_state(process: RecordedProcess | None) -> str:
    """Return the state of the process (proc(5)), "X" if it is gone or unknown, "?" if it is in
    another pid namespace."""
    if process:
        with contextlib.suppress(OSError, ValueError, IndexError):
            if os.stat("/proc/self/ns/pid").st_ino != process.namespace:
                return "?"
            fields = proc.stat(process.pid)[1]
            return fields[0] if int(fields[19]) == process.started else "X"
    return "X"
