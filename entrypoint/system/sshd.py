"""This node's sshd: started, tested with a connection, and watched until the end."""

from __future__ import annotations

import asyncio
import contextlib
import os
import pwd
from collections import deque
from collections.abc import Callable
from pathlib import Path

from entrypoint.base.errors import CantCreateError, ConfigError, HostError
from entrypoint.base.model import Facts
from entrypoint.base.secret import is_secret
from entrypoint.base.values import dataclass
from entrypoint.system import account, children, proc
from entrypoint.system.signals import USERS, ignoring
from entrypoint.system.threads import rest

_BUSY = 0.2  # seconds until the next attempt if sshd refuses the test connection
_UP = 20.0  # seconds sshd may take until it listens; it takes 0.05
_ROOT_NEEDS = {"SETGID": 6, "SETUID": 7, "SYS_CHROOT": 18}  # linux/capability.h


def _make_run_folder() -> None:
    # sshd run by root needs this empty directory, which a tmpfs on /run hides.
    try:
        Path("/run/sshd").mkdir(mode=0o755, parents=True, exist_ok=True)
    except OSError as error:
        raise CantCreateError(
            "EP410 cannot make /run/sshd, which sshd run by root needs",
            str(error),
            "mount a tmpfs at /run, or run as another user",
        ) from None


@dataclass
class Sshd:
    """The running sshd of this node."""

    process: asyncio.subprocess.Process
    log: asyncio.StreamReader
    port: int
    logged: Callable[[str], None]  # gets each line of the log
    _probe = ""  # the test connection, as the log names it
    _wanted = True

    def __post_init__(self) -> None:
        self._last: deque[str] = deque(maxlen=3)  # lines of its log
        self._listening = asyncio.get_running_loop().create_future()
        self._reader = asyncio.create_task(self._read())

    @classmethod
    async def start(
        cls,
        facts: Facts,
        config: Path,
        port: int,
        address: str | None,
        logged: Callable[[str], None],
    ) -> Sshd:
        """Start it and prove that it answers; `logged` gets each line of its log.

        Raises ConfigError if the image has no sshd or it will not let this user in, HostError with
        the last lines of sshd's log if it does not start.
        """
        program = check(facts)
        environment = _environment(facts, config.parent)
        if facts.uid == 0:
            _make_run_folder()
        # Not asyncio's pipe, with which sshd would count as alive while one of its sessions holds
        # the pipe.
        read_end, write_end = os.pipe()
        # Slurm sends user signals to every process: sshd and the daemons below it must ignore them;
        # ranks reset that.
        with ignoring(USERS):
            argv = (program, "-D", "-e", "-f", str(config), "-p", str(port))
            null = asyncio.subprocess.DEVNULL
            started = await children.start(
                argv, environment, stdin=null, stdout=null, stderr=write_end
            )
        os.close(write_end)
        sshd = cls(started, await _reader(read_end), port, logged)
        proven = False
        try:
            await asyncio.wait_for(sshd._prove(address or "127.0.0.1"), _UP)
            proven = True
        except asyncio.TimeoutError:
            detail = f"nothing on port {port} after {_UP:.0f}s"
            raise sshd._failure("sshd does not answer", detail) from None
        finally:
            if not proven:
                with contextlib.suppress(ProcessLookupError):
                    started.kill()
                await sshd.ended()
        return sshd

    async def _prove(self, address: str) -> None:
        """Wait until it listens, and answers at this address."""
        ended = asyncio.create_task(self.process.wait())
        await asyncio.wait({ended, self._listening}, return_when=asyncio.FIRST_COMPLETED)
        if ended.done():
            await self._reader
            raise self._failure("sshd did not start", f"it exited with {self.process.returncode}")
        ended.cancel()
        while not (banner := await self._banner(address)):
            # Other connections occupy all of its slots; no event announces a free one.
            await rest(_BUSY)
        if not banner.startswith(b"SSH-2.0-"):
            raise self._failure(
                f"port {self.port} is answered by something else", repr(banner[:40])
            )

    async def _banner(self, address: str) -> bytes:
        """Return the first line that sshd sends; nothing if it refuses the connection."""
        writer = None
        try:
            reader, writer = await asyncio.open_connection(address, self.port)
            self._probe = f" port {writer.get_extra_info('sockname')[1]}"
            return await reader.readline()
        except (OSError, ValueError):
            return b""
        finally:
            if writer is not None:
                writer.close()

    async def _read(self) -> None:
        while line := await self.log.readline():
            text = line.decode(errors="replace").strip()
            self._last.append(text)
            if not self._probe or self._probe not in text:
                self.logged(text)
            if text.startswith("Server listening on") and not self._listening.done():
                self._listening.set_result(None)

    def _failure(self, summary: str, detail: str) -> HostError:
        detail = ": ".join(filter(None, (detail, "; ".join(self._last))))
        return HostError(f"EP433 {summary}", detail, f"is port {self.port} free? See ssh.port")

    async def watch(self, died: Callable[[str], None]) -> None:
        """Call `died` with a message if sshd ends before `stop`."""
        status = await self.process.wait()
        if self._wanted:
            died(str(self._failure("sshd died", f"it exited with {status}")))

    def stop(self) -> None:
        """Stop the listener; `sweep` ends its sessions later."""
        self._wanted = False
        with contextlib.suppress(ProcessLookupError):
            self.process.terminate()

    async def ended(self) -> None:
        """Return when it has ended and its log is read."""
        await self.process.wait()
        self._reader.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._reader


def check(facts: Facts) -> str:
    """Return sshd's path.

    Raises ConfigError if the image has none, or it will not let this user in, or root lacks what
    sshd needs.
    """
    program = facts.programs.get("sshd")
    if program is None:
        raise ConfigError(
            "EP430 this image has no sshd",
            "not on PATH, not in /usr/sbin",
            "install openssh-server",
        )
    account.check(facts)
    if facts.uid == 0 and (missing := root_lacks()):
        raise ConfigError(
            "EP432 sshd run by root cannot work in this container",
            missing,
            "run as another user (the images' own is 1000:100; with Apptainer, without --fakeroot),"
            " or give root what is missing",
        )
    return program


def root_lacks(root: Path = Path("/")) -> str:
    """Return what root lacks in this container, so that its sshd would drop every connection; ""
    for nothing."""
    needs = {name: proc.has_capability(bit, root) for name, bit in _ROOT_NEEDS.items()}
    if missing := [name for name, has in needs.items() if not has]:
        return f"no {', '.join(missing)}"
    # For each connection, sshd becomes its own user and sets that one's groups: user_namespaces(7).
    own = root / "proc/self"
    with contextlib.suppress(OSError, KeyError, ValueError):
        if (own / "setgroups").read_text().strip() == "deny":
            return "its user namespace does not let it set groups (/proc/self/setgroups is deny)"
        user = pwd.getpwnam("sshd")
        for name, number in (("uid", user.pw_uid), ("gid", user.pw_gid)):
            lines = (own / f"{name}_map").read_text().splitlines()
            ranges = [[*map(int, line.split())] for line in lines]
            if not any(first <= number < first + most for first, _, most in ranges):
                return f"its user namespace has no {name} {number}, which is sshd's own"
    return ""


def _environment(facts: Facts, run_dir: Path) -> dict[str, str]:
    """Return sshd's own environment. Its sessions get another one, so its memory and /proc need to
    show no secret."""
    public = {name: value for name, value in os.environ.items() if not is_secret(name)}
    return public | account.variables(facts, run_dir)


async def _reader(fd: int) -> asyncio.StreamReader:
    """Return a stream of the reading end of a pipe; the stream ends with the last writer."""
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(fd, "rb", buffering=0)
    )
    return reader
