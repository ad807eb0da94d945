"""What the kernel and a command line tell of processes; becoming one.

Each rank's supervisor imports this: keep it fast.
"""

from __future__ import annotations

import os

if False:  # only for type checkers: importing it is slow
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from typing import NoReturn

CAP_IPC_LOCK = 14  # linux/capability.h: with it the limit on locked memory does not count


def stat(pid: int | str, proc: str = "/proc") -> tuple[str, list[str]]:
    """A process's name, and what follows it in proc_pid_stat(5): state, parent, ... Raises OSError if it is gone."""
    with open(f"{proc}/{pid}/stat", errors="replace") as file:
        # The name, in parentheses, may hold anything.
        name, _, fields = file.read().partition("(")[2].rpartition(")")
    return name, fields.split()


def processes() -> Iterator[tuple[int, str, list[str]]]:
    """The pid and the `stat` of every process."""
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                name, fields = stat(entry)
            except OSError:
                continue  # it has just ended
            yield int(entry), name, fields


def below(pid: int) -> list[tuple[int, str, list[str]]]:
    """Every live process below `pid`, as in `processes`, whatever session or group it is in; parents first."""
    children: dict[int, list[tuple[int, str, list[str]]]] = {}
    for each in processes():
        fields = each[2]
        if fields[0] != "Z" or int(fields[17]) > 1:  # other threads run on, or are being ended
            children.setdefault(int(fields[1]), []).append(each)
    found = list(children.get(pid, []))
    for each in found:  # which grows
        found += children.get(each[0], [])
    return found


def descendants(pid: int) -> list[int]:
    """The pids of every live process below `pid`, parents before children."""
    return [each for each, _, _ in below(pid)]


def tree(pid: int) -> Iterator[int]:
    """The process and those below it, parents first, without a look at any others: for who only looks, since what is
    forked meanwhile may be missing (/proc/PID/task/TID/children, proc(5))."""
    yield pid
    try:
        for task in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{task}/children") as file:
                for child in file.read().split():
                    yield from tree(int(child))
    except OSError:
        return  # it has ended


def state(pid: int) -> tuple[str, int]:
    """A process's state and its parent's pid; Z and 0 if there is no such process."""
    try:
        fields = stat(pid)[1]
    except OSError:
        return "Z", 0
    return fields[0], int(fields[1])


def has_ended(pid: int) -> bool:
    """Whether the process has ended, even if its parent has not waited for it yet."""
    return state(pid)[0] in "ZX"


def is_gone(pid: int) -> bool:
    """Whether the process has ended and its parent has waited for it."""
    return not os.path.exists(f"/proc/{pid}")


def is_below(pid: int, top: int) -> bool:
    """Whether this process descends from `top`."""
    while pid and pid != top:
        pid = state(pid)[1]
    return pid == top


def kill(pids: Iterable[int], signum: int) -> None:
    """Signal processes; those already gone are no error."""
    for pid in pids:
        try:
            os.kill(pid, signum)
        except (ProcessLookupError, PermissionError):
            continue


def number(file: str | os.PathLike[str], name: str, base: int = 10) -> int | None:
    """The number behind this name in a file of the kernel's, one name a line; None where it is not there."""
    try:
        with open(file, errors="replace") as lines:
            for line in lines:
                word, *rest = line.split() or [""]
                if word == name:
                    return int(rest[0], base)
    except (OSError, ValueError):
        pass
    return None


def has_capability(bit: int, root: str | os.PathLike[str] = "/") -> bool:
    """Whether this process has a capability, by its number in linux/capability.h."""
    return bool((number(f"{root}/proc/self/status", "CapEff:", 16) or 0) >> bit & 1)


def hold_standard_streams() -> None:
    """Open /dev/null for each closed standard stream (`2>&-`), also for the programs that are started: else the next
    file that is opened would get its number, and a program that is given two of them would have none."""
    while (fd := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(fd, True)
    os.close(fd)


def python_set_locale() -> bool:
    """Whether Python itself has set LC_CTYPE, as it does in a C locale, also for its children (PEP 538)."""
    if os.environ.get("LC_CTYPE") != "C.UTF-8":
        return False
    try:
        with open("/proc/self/environ", "rb") as given:
            return not any(entry.startswith(b"LC_CTYPE=") for entry in given.read().split(b"\0"))
    except OSError:
        return False


def undo_launcher() -> None:
    """Give back in os.environ what the launcher of the toolkit's own Python kept from its loader: lD_PRELOAD, ...

    scripts/image/launcher.c tells why. Without that launcher there are no such names.
    """
    for name in [name for name in os.environ if name.startswith("lD_")]:
        os.environ[f"L{name[1:]}"] = os.environ.pop(name)


def script(program: Sequence[str]) -> str:
    """The script that this Python command reads; "" if it is another program, or the script is not obvious."""
    if os.path.basename(program[0]).startswith("python"):
        for word in program[1:]:
            if not word.startswith("-"):
                return word
            if word.strip("-uBEIOPsSqvx") or not word.strip("-"):
                break  # -m, -c, or an option with a value
    return ""


def places(program: str, path: str) -> Iterator[str]:
    """Where a program with this name can be, by a PATH."""
    return (os.path.join(folder, program) for folder in ([""] if "/" in program else path.split(":")))


def too_long(argv: Sequence[str], env: Mapping[str, str]) -> str:
    """Which variable or argument is longer than the kernel takes one (execve(2), MAX_ARG_STRLEN); "" where none is."""
    most = 32 * os.sysconf("SC_PAGESIZE")
    sizes = {f"the variable {name}": len(os.fsencode(f"{name}={value}")) + 1 for name, value in env.items()}
    sizes |= {f"argument {number}": len(os.fsencode(word)) + 1 for number, word in enumerate(argv)}
    what = max(sizes, key=lambda each: sizes[each], default="")
    return f"{what} has {sizes[what]} bytes, and the kernel takes {most}" if what and sizes[what] > most else ""


def execute(argv: Sequence[str], env: Mapping[str, str]) -> NoReturn:
    """As os.execvpe, which imports `warnings`: a millisecond for each rank. Raises OSError."""
    error: OSError | None = None
    for place in places(argv[0], env.get("PATH", os.defpath)):
        try:
            os.execve(place, tuple(argv), env)
        except OSError as failed:
            # One that is there and cannot be executed says more than those that are not there.
            if error is None or isinstance(error, (FileNotFoundError, NotADirectoryError)):
                error = failed
    assert error is not None
    raise error
