"""Becomes the program of its words in a process whose kernel refuses pidfd_open, as old seccomp
profiles do."""

import ctypes
import os
import struct
import sys

PIDFD_OPEN = 434  # on every architecture
SET_SECCOMP, SET_NO_NEW_PRIVS, FILTER = 22, 38, 2  # linux/prctl.h, linux/seccomp.h
LOAD, EQUAL, RETURN = 0x20, 0x15, 0x06  # linux/bpf_common.h: a word, jump, and end
ALLOW, EPERM = 0x7FFF0000, 0x00050001


def refuse() -> None:
    lines = [
        (LOAD, 0, 0, 0),
        (EQUAL, 0, 1, PIDFD_OPEN),
        (RETURN, 0, 0, EPERM),
        (RETURN, 0, 0, ALLOW),
    ]
    program = b"".join(struct.pack("HBBI", *line) for line in lines)
    text = ctypes.create_string_buffer(program, len(program))
    whole = ctypes.create_string_buffer(struct.pack("HL", len(lines), ctypes.addressof(text)))
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    assert prctl(SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
    assert prctl(SET_SECCOMP, FILTER, whole, 0, 0) == 0, os.strerror(ctypes.get_errno())
    try:
        os.pidfd_open(os.getpid())
    except PermissionError:
        return
    raise AssertionError("pidfd_open works")


if __name__ == "__main__":
    refuse()
    os.execvp(sys.argv[1], sys.argv[1:])
