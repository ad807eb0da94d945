"""Reads processes from /proc, signals them, and executes programs.

The keeper imports this: keep it fast.
"""

from __future__ import annotations

import os

if False:  # only for type checkers: importing it is slow
    from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
    from typing import NoReturn

_ENOENT = 2
_KILL = 9
_E2BIG = 7  # too long for execve(2)
_STAT = 4096  # bytes; a process's `stat` has some hundred
CAP_IPC_LOCK = 14  # linux/capability.h: exempt from the limit on locked memory


def stat(pid: int | str, proc: str = "/proc") -> tuple[str, list[str]]:
    """Return a process's name and the fields after it, state, parent, ..., of proc_pid_stat(5).
    Raises OSError."""
    file = os.open(f"{proc}/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC)  # open() takes twice as long
    try:
        text = os.read(file, _STAT).decode(errors="replace")
    finally:
        os.close(file)
    # The name, in parentheses, may contain any character.
    name, _, fields = text.partition("(")[2].rpartition(")")
    return name, fields.split()


def processes() -> Iterator[tuple[int, str, list[str]]]:
    """Yield the pid and the `stat` of every process."""
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                name, fields = stat(entry)
            except OSError:
                continue  # it has just ended
            yield int(entry), name, fields


def below(pid: int) -> list[tuple[int, str, list[str]]]:
    """Return all live processes below `pid`, as `processes` does, in any session or group; parents
    first."""
    try:
        if not children(pid):  # a machine may have thousands of processes
            return []
    except OSError:
        pass  # it has ended, or the kernel does not list children
    below_each: dict[int, list[tuple[int, str, list[str]]]] = {}
    for entry in processes():
        fields = entry[2]
        if fields[0] != "Z" or int(fields[17]) > 1:  # other threads run on, or are being ended
            below_each.setdefault(int(fields[1]), []).append(entry)
    result = list(below_each.get(pid, []))
    for entry in result:  # which grows
        result += below_each.get(entry[0], [])
    return result


def descendants(pid: int) -> list[int]:
    """Return the pids of every live process below `pid`, parents before children."""
    return [child for child, _, _ in below(pid)]


def children(pid: int) -> list[int]:
    """Return the pids of a process's children, also of those that nobody has waited for yet,
    without reading any others.

    One that is forked, or whose sibling is waited for, meanwhile may be missing (proc(5),
    /proc/PID/task/TID/children). Raises OSError if the process has ended, or if the kernel does not
    list children.
    """
    found: dict[int, None] = {}
    tasks = os.listdir(f"/proc/{pid}/task")
    unread = 0
    # A thread that ends leaves its children to the first one, which is therefore read last.
    for task in reversed(tasks):
        try:
            found |= dict.fromkeys(map(int, content(pid, f"task/{task}/children").split()))
        except OSError:  # this thread has ended
            unread += 1
    if unread == len(tasks):
        raise FileNotFoundError(f"the children of process {pid} are not listed")
    return list(found)


def own_children() -> list[int]:
    """Return the pids of this process's children, also of those that nobody has waited for yet."""
    me = os.getpid()
    try:
        return children(me)
    except OSError:  # the kernel does not list them
        return [pid for pid, _, (_, parent, *_) in processes() if int(parent) == me]


def tree(pid: int) -> Iterator[int]:
    """Yield the process and those below it, parents first, as `children` finds them."""
    yield pid
    try:
        for child in children(pid):
            yield from tree(child)
    except OSError:
        return  # it has ended


def state(pid: int) -> tuple[str, int]:
    """Return a process's state and its parent's pid; Z and 0 if there is no such process."""
    try:
        fields = stat(pid)[1]
    except OSError:
        return "Z", 0
    return fields[0], int(fields[1])


def name_of(pid: int) -> str:
    """Return a process's name; "" if it is gone."""
    try:
        return stat(pid)[0]
    except OSError:
        return ""


def content(pid: int, name: str, most: int = 1 << 20) -> bytes:
    """Return the first bytes of a process's `cmdline` or `environ`. Raises OSError."""
    file = os.open(f"/proc/{pid}/{name}", os.O_RDONLY | os.O_CLOEXEC)
    try:
        data = b""
        while len(data) < most and (piece := os.read(file, most - len(data))):
            data += piece
        return data
    finally:
        os.close(file)


def variables(environ: bytes) -> dict[bytes, bytes]:
    """Return the variables of a process's `environ`."""
    pairs = (entry.partition(b"=") for entry in environ.split(b"\0")[:-1])
    return {name: value for name, _, value in pairs}


def has_ended(pid: int) -> bool:
    """Return whether the process has ended, even if its parent has not waited for it yet."""
    return state(pid)[0] in "ZX"


def is_below(pid: int, top: int) -> bool:
    """Return whether this process descends from `top`."""
    return top in line_of(pid, top)


def line_of(pid: int, top: int) -> set[int]:
    """Return a process and those from which it descends, up to `top` or to the first of all."""
    line = {pid}
    while pid and pid != top:
        pid = state(pid)[1]
        line.add(pid)
    return line


def kill(pids: Iterable[int], signum: int) -> None:
    """Signal processes; those already gone are no error."""
    for pid in pids:
        try:
            os.kill(pid, signum)
        except (ProcessLookupError, PermissionError):
            continue


def sweep(spared: Set[int] = frozenset()) -> set[int]:
    """Kill all processes below this one but `spared`, also those forked meanwhile, and return the
    pids."""
    killed: set[int] = set()
    for _ in range(10):
        alive = {*descendants(os.getpid())} - spared
        if not alive:
            break
        kill(alive, _KILL)
        killed |= alive
    return killed


def number(file: str | os.PathLike[str], name: str, base: int = 10) -> int | None:
    """Return the number after this name in a file of the kernel, one name a line; None if it is
    missing."""
    try:
        with open(file, errors="replace") as lines:
            for line in lines:
                key, *values = line.split() or [""]
                if key == name:
                    return int(values[0], base)
    except (OSError, ValueError):
        pass
    return None


def open_files(pid: int) -> Iterator[tuple[str, str]]:
    """Return each open file of a process, as a path in /proc, and what it is."""
    folder = f"/proc/{pid}/fd"
    try:
        names = os.listdir(folder)
    except OSError:
        return
    for name in names:
        try:
            yield f"{folder}/{name}", os.readlink(f"{folder}/{name}")
        except OSError:
            continue  # it was closed


def catches(pid: int, signum: int) -> bool:
    """Return whether a process has a handler for the signal."""
    return bool((number(f"/proc/{pid}/status", "SigCgt:", 16) or 0) >> (signum - 1) & 1)


def has_capability(bit: int, root: str | os.PathLike[str]) -> bool:
    """Return whether this process has a capability, by its number in linux/capability.h."""
    return bool((number(f"{root}/proc/self/status", "CapEff:", 16) or 0) >> bit & 1)


def hold_standard_streams() -> None:
    """Open /dev/null for each closed standard stream (`2>&-`), also for programs that are started.

    Otherwise the next file that is opened would get its number, and be mistaken for the stream.
    """
    while (fd := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(fd, True)
    os.close(fd)


def python_set_locale() -> bool:
    """Return whether Python itself has set LC_CTYPE, as it does in a C locale, also for its
    children (PEP 538)."""
    if os.environ.get("LC_CTYPE") != "C.UTF-8":
        return False
    try:
        with open("/proc/self/environ", "rb") as file:
            return not any(entry.startswith(b"LC_CTYPE=") for entry in file.read().split(b"\0"))
    except OSError:
        return False


def undo_launcher() -> None:
    """Restore variables that the launcher of the toolkit's own Python hid from its loader as
    lD_PRELOAD, ...

    scripts/image/launcher.c explains why. Without that launcher there are no such names.
    """
    for name in [name for name in os.environ if name.startswith("lD_")]:
        os.environ[f"L{name[1:]}"] = os.environ.pop(name)


def script(program: Sequence[str]) -> str:
    """Return the script that this Python command reads; "" if it is another program, or the script
    is not obvious."""
    if os.path.basename(program[0]).startswith("python"):
        for argument in program[1:]:
            if not argument.startswith("-"):
                return argument
            if argument.strip("-uBEIOPsSqvx") or not argument.strip("-"):
                break  # -m, -c, or an option with a value
    return ""


def places(program: str, path: str) -> Iterator[str]:
    """Return the paths that a program of this name can have, by a PATH."""
    return (
        os.path.join(folder, program) for folder in ([""] if "/" in program else path.split(":"))
    )


def too_long(argv: Sequence[str], env: Mapping[str, str]) -> str:
    """Return which variable or argument exceeds the kernel's limit (execve(2), MAX_ARG_STRLEN); ""
    if none does."""
    limit = 32 * os.sysconf("SC_PAGESIZE")
    sizes = {
        f"the variable {name}": len(os.fsencode(f"{name}={value}")) + 1
        for name, value in env.items()
    }
    sizes |= {
        f"argument {number}": len(os.fsencode(argument)) + 1 for number, argument in enumerate(argv)
    }
    longest = max(sizes, key=lambda name: sizes[name], default="")
    if not longest or sizes[longest] <= limit:
        return ""
    return f"{longest} has {sizes[longest]} bytes, and the kernel takes {limit}"


def why_not_started(
    argv: Sequence[str], error: OSError, env: Mapping[str, str], cwd: str = ""
) -> str:
    """Return why a program could not be executed in this directory, with a hint for a script."""
    program = argv[0]
    if error.errno == _E2BIG and (reason := too_long(argv, env)):
        return reason
    # the program, its last candidate on PATH, or the working directory
    name = os.fsdecode(error.filename or program)
    place = "" if name == program or os.path.basename(name) == program else f"{name}: "
    reason = f"{place}{error.strerror}"
    if place and os.path.isdir(name) and not os.access(name, os.X_OK):
        user = os.geteuid()
        return (
            f"{reason} | it is the working directory, and user {user}, group {os.getegid()} may not"
            f" enter it | choose another (docker run -w, workdir), or group 0 for the image's own:"
            f" docker run --user {user}:0"
        )
    file = os.path.abspath(os.path.join(cwd, program))
    if error.errno == _ENOENT and len(program.split()) > 1:
        return f"{reason} | it is one word with spaces | write it as several: {program}"
    if error.errno == _ENOENT and "/" in program and (shell := _interpreter(file)):
        hint = "install it, or name another in the script's first line"
        if shell.endswith("\r"):
            hint = f"the script has Windows line ends: sed -i 's/\\r$//' {program}"
        return f"{reason} | it exists, but its interpreter {shell!r} does not | {hint}"
    if not program.endswith(".py") or not os.path.isfile(file):
        return reason
    is_program = "/" in program and os.access(file, os.X_OK)
    why = "is not executable" if "/" in program else "exists, but is not a program on PATH"
    return reason if is_program else f"{reason} | {file} {why} | write: python {program}"


def _interpreter(file: str) -> str:
    """Return what the first line of a script names as its interpreter; "" if it is no script."""
    try:
        with open(os.open(file, os.O_RDONLY | os.O_NONBLOCK), "rb") as text:
            first = text.readline(256)
    except OSError:
        return ""
    line = first[2:].rstrip(b"\n").lstrip() if first.startswith(b"#!") else b""
    return line.split(b" ")[0].decode(errors="replace")


def execute(argv: Sequence[str], env: Mapping[str, str]) -> NoReturn:
    """Execute a program as os.execvpe does, without its import of `warnings`, which takes 1 ms.
    Raises OSError."""
    error: OSError | None = None
    for place in places(argv[0], env.get("PATH", os.defpath)):
        try:
            os.execve(place, tuple(argv), env)
        except OSError as failed:
            # A file that exists and cannot be executed is more informative than missing ones.
            if error is None or isinstance(error, (FileNotFoundError, NotADirectoryError)):
                error = failed
    assert error is not None
    raise error
