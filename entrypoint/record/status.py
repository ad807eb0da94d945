"""Asks the entrypoint that boots in this container how it is: what `entrypoint status` prints.

As a health check (health.py) it needs no settings: the kernel lists the sockets of this container with their paths.
Boots of this user come first, then those of the user that PID 1 belongs to.
"""

from __future__ import annotations

import contextlib
import errno
import os
import select
import socket
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from entrypoint.errors import NoInputError, RefusedError, UnavailableError, UsageError
from entrypoint.record import health
from entrypoint.record.nodes import SOCKET
from entrypoint.system import proc
from entrypoint.system.files import is_trusted
from entrypoint.text import from_json

PATIENCE = 3.0  # seconds for an answer, or for the result of a boot that has just ended
_MOMENT = 0.5  # seconds in which a boot that we have not heard of yet may end, or begin
_LOOK = 0.05  # seconds between two looks meanwhile
_MOST = 64 << 20  # bytes of an answer
_RESULT = 64 << 10  # bytes of a result
_STOPPED = {"T": "it is stopped (SIGSTOP, or a debugger)", "t": "a debugger holds it"}


class Silent(UnavailableError):
    """It runs, and does not answer in time."""


class Killed(UnavailableError):
    """It has ended without a result."""


class Starting(UnavailableError):
    """A boot has begun, and has no state to show yet."""

    def __init__(self, run_dir: object = "") -> None:
        seen = "it reads its spec, or its start hooks run" + (f"; or it is not at {run_dir}" if run_dir else "")
        super().__init__("EP033 a boot has begun here, and has no state yet", seen, "ask again, or give --run-dir")


def find(given: str = "", usual: str = "") -> Path:
    """The run directory to ask about: the given one; the usual one, if a boot was there; that of the one boot here; or
    that of the last one that ended.

    Raises UsageError where several boot here, NoInputError where there is no trace of any, RefusedError where only
    other users' are, Starting where one has only begun.
    """
    if given:
        return Path(given)
    if usual and (os.path.exists(usual) or result(Path(usual))):
        return Path(usual)
    users, live = _users(), _live()
    for user in users:
        if found := sorted(path for path, owner in live.items() if owner == user):
            return _one(found)
    if live and os.geteuid() == 0:
        return _one(sorted(live))
    if _has_begun():
        raise Starting
    for user in users:
        if ended := _left(user):
            return ended
    if live:
        path, owner = sorted(live.items())[0]
        raise _refused(Path(path), owner)
    seen = "no entrypoint boots here, and none has left a result in /tmp"
    do = "ask where the job runs (docker exec, kubectl exec), or give --run-dir; a program alone has no state"
    raise NoInputError("EP030 there is no boot to ask", seen, do)


def _one(found: list[str]) -> Path:
    if len(found) > 1:
        raise UsageError("EP032 several entrypoints boot here", ", ".join(found), f"say which: --run-dir {found[0]}")
    return Path(found[0])


def _refused(run_dir: Path, owner: object) -> RefusedError:
    do = f"ask as that user, such as `docker exec -u {owner}`, or as root"
    return RefusedError(
        "EP031 this boot is another user's", f"{run_dir} is owned by {owner}, we are {os.geteuid()}", do
    )


def _live(table: str = "/proc/net/unix") -> dict[str, int]:
    """Run directories whose socket listens in this network namespace, and who owns them."""
    found: dict[str, int] = {}
    with contextlib.suppress(OSError), open(table, encoding="utf-8", errors="surrogateescape") as lines:
        for line in lines:
            path = line.rstrip("\n").split(None, 7)[-1]
            if path.startswith("/") and path.endswith(f"/{SOCKET}"):
                folder = path.removesuffix(f"/{SOCKET}")
                with contextlib.suppress(OSError):  # another container's, which shares only the network
                    found[folder] = os.stat(folder).st_uid
    return found


def _has_begun() -> bool:
    """Whether a boot of this user, or of PID 1's, has no socket yet, or none any more."""
    users = _users()
    return len(health.states()) > sum(owner in users for owner in _live().values())


def _users() -> list[int]:
    """This user, and the one that PID 1 belongs to."""
    users = [os.geteuid()]
    with contextlib.suppress(OSError):
        users.append(os.stat("/proc/1").st_uid)
    return users


def _left(user: int) -> Path | None:
    """The run directory in the usual place that this user's latest boot has left, or its result."""
    found = []
    for each in Path("/tmp").glob(f"entrypoint-{user}-*"):
        run_dir = each.with_name(each.name.removesuffix("-result.json"))
        with contextlib.suppress(OSError):
            about = os.lstat(each if run_dir != each else each / SOCKET)
            if about.st_uid == user:
                found.append((about.st_mtime, run_dir))
    return max(found)[1] if found else None


def ask(run_dir: Path, pid: int = 0) -> tuple[dict[str, Any], int]:
    """Its state, or its result where it has ended; and its process's number, 0 once it has ended.

    `pid`: what an earlier answer gave. Raises Starting, NoInputError where there was no boot, RefusedError where it is
    another user's, Silent where it does not answer within `PATIENCE`, Killed where it has left no result.
    """
    begun = time.monotonic()
    while True:
        try:
            return _talk(run_dir)
        except (FileNotFoundError, NotADirectoryError, ConnectionError) as error:
            gone = error
        except PermissionError:
            owner: object = "another user"
            with contextlib.suppress(OSError):
                owner = os.stat(run_dir).st_uid
            raise _refused(run_dir, owner) from None
        except OSError as error:
            raise NoInputError(
                "EP030 cannot ask here", f"{run_dir}: {error.strerror or error}", "see --run-dir"
            ) from None
        except ValueError as error:
            seen = f"{run_dir}: {error}"
            raise Silent("EP033 the entrypoint's answer is not as expected", seen, "is it another version?") from None
        if ended := result(run_dir):
            return ended, 0
        refused = isinstance(gone, ConnectionRefusedError)  # a boot that ends removes its socket before it closes it
        if not (_is_there(pid) if pid else _has_begun() and not refused):
            break
        # Between two attempts, and until its result is written, there is no socket for a moment.
        if time.monotonic() - begun > (PATIENCE if pid else _MOMENT):
            if pid:
                raise Silent("EP033 the entrypoint does not listen", f"{run_dir}: {gone.strerror}", _state(pid))
            raise Starting(run_dir)
        pause(_LOOK)
    if pid or refused:
        seen = f"process {pid} is gone" if pid else f"{run_dir} is there, and nobody listens"
        do = "it was killed: see the container's log, and its memory limit"
        raise Killed("EP033 the entrypoint has ended without a result", seen, do)
    do = "see --run-dir, or ENTRYPOINT_RUN_DIR"
    raise NoInputError("EP030 there is no boot to ask", f"{run_dir}: {gone.strerror}", do)


def pause(seconds: float) -> None:
    """Let time pass: no event tells that it is worth asking again."""
    select.select([], [], [], seconds)


def _talk(run_dir: Path) -> tuple[dict[str, Any], int]:
    """One question. Raises OSError, Silent, ValueError where the answer is no state."""
    ends = time.monotonic() + PATIENCE
    pid, data = 0, bytearray()
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(PATIENCE)
            if not is_trusted(str(run_dir), os.lstat(run_dir)):  # its answer would be anybody's
                raise PermissionError
            connection.connect(str(run_dir / SOCKET))
            pid = int.from_bytes(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)[:4], "little")
            connection.sendall(b"GET /status HTTP/1.1\r\nHost: here\r\n\r\n")
            while part := connection.recv(1 << 16):
                data += part
                left = ends - time.monotonic()
                if left <= 0 or len(data) > _MOST:
                    raise TimeoutError
                connection.settimeout(left)
    except (TimeoutError, BlockingIOError):
        who = f"process {pid} in {run_dir}" if pid else str(run_dir)
        seen = f"{who}: nothing came within {PATIENCE:g}s"
        raise Silent("EP033 the entrypoint does not answer", seen, _state(pid)) from None
    if not data:  # it ended meanwhile
        raise ConnectionResetError(errno.ECONNRESET, os.strerror(errno.ECONNRESET))
    head, _, body = bytes(data).partition(b"\r\n\r\n")
    if b" 200 " not in head.split(b"\r\n")[0]:
        raise ValueError(head.split(b"\r\n")[0].decode("latin-1"))
    return _checked(from_json(body)), pid


def _checked(state: Any) -> dict[str, Any]:
    """A state whose parts are what they should be. Raises ValueError."""
    kinds: Mapping[str, tuple[type, ...]] = {
        "job": (str,), "node": (str,), "host": (str,), "launcher": (str,), "phase": (str,), "attempt": (int,),
        "up_seconds": (int, float), "nodes": (list,), "outcome": (dict, type(None)), "job_nodes": (int,),
        "roll_call": (str,),
    }  # fmt: skip
    of_node: Mapping[str, tuple[type, ...]] = {
        "node": (str,), "host": (str,), "phase": (str,), "detail": (str,), "since_seconds": (int, float),
        "heartbeat_seconds": (int, float, type(None)), "ranks": (int, type(None)), "ranks_ended": (int,),
        "idle_seconds": (int, float, type(None)),
    }  # fmt: skip
    if not isinstance(state, dict) or not _has(state, kinds) or not all(_has(each, of_node) for each in state["nodes"]):
        raise ValueError("it is no state of a boot")
    return state


def _has(value: Any, kinds: Mapping[str, tuple[type, ...]]) -> bool:
    return isinstance(value, dict) and all(isinstance(value.get(name, ...), kind) for name, kind in kinds.items())


def _state(pid: int) -> str:
    with contextlib.suppress(OSError, ValueError, IndexError):
        return _STOPPED.get(proc.stat(str(pid), "/proc")[1][0], "it gets no processor time, or waits for a disk")
    return "see whether it still runs"


def _is_there(pid: int) -> bool:
    with contextlib.suppress(OSError, ValueError, IndexError):
        return proc.stat(str(pid), "/proc")[1][0] not in "ZX"
    return False


def result(run_dir: Path) -> dict[str, Any] | None:
    """How the boot that had this run directory ended; None where that is not known, or another user says it."""
    with contextlib.suppress(OSError, ValueError):
        name = f"{run_dir}-result.json"
        file = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(file, "rb") as opened:
            if not is_trusted(name, os.fstat(file)):
                return None
            ended = from_json(opened.read(_RESULT))
        fields = dict.fromkeys(("reason", "node", "job", "class"), str) | {"status": int}
        if isinstance(ended, dict) and all(isinstance(ended.get(name), kind) for name, kind in fields.items()):
            fits = type(ended["status"]) is int and 0 <= ended["status"] <= 255
            return {"phase": "ended", **ended} if fits else None
    return None
