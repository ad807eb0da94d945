"""Binds a rank to its CPUs. A rank's supervisor imports this only if asked: keep it fast."""

from __future__ import annotations

import os

from entrypoint.system.descriptors import read_regular, write_all

_MOST = 1 << 20  # bytes of the file


def bind(file: str, local: str) -> None:
    """Bind this process, and what it starts, to the CPUs of a rank, within those that it has.

    Line N of `file` has the numbers of the CPUs of rank N of this node; `local` is that number, or
    the variable that has it. A rank without CPUs there stays unbound; if it cannot be bound, that
    is printed.
    """
    try:
        lines = read_regular(file, _MOST).decode().splitlines()
        if not lines:
            return
        rank = int(os.environ.get(local, local)) % len(lines)  # mpi.np may be more than the slots
        if mask := {int(cpu) for cpu in lines[rank].split()}:
            os.sched_setaffinity(0, mask & os.sched_getaffinity(0))
    except (OSError, ValueError) as error:
        write_all(2, f"EP428 not all ranks are bound to CPUs: {error} | {file}\n".encode())
