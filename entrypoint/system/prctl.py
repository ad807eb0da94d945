"""prctl(2), which Python's own library does not have. The keeper imports this: keep it
fast."""

from __future__ import annotations

import _ctypes  # importing ctypes, which wraps it, would take each rank 4 ms

# Options from linux/prctl.h.
PDEATHSIG = 1
DUMPABLE = 4
NAME = 15
CHILD_SUBREAPER = 36


class _Int(_ctypes._SimpleCData):  # type: ignore[type-arg]
    _type_ = "i"


class _Function(_ctypes.CFuncPtr):
    _flags_ = _ctypes.FUNCFLAG_CDECL
    _restype_ = _Int


# None is this process.
_prctl = _Function(_ctypes.dlsym(_ctypes.dlopen(None, 0), "prctl"))  # type: ignore[arg-type]


def prctl(option: int, value: bytes | int) -> None:
    """Set one property of this process. A kernel without this property is no error."""
    _prctl(option, value, 0, 0, 0)
