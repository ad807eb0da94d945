"""prctl(2), which Python's own library does not have. Each rank's supervisor imports this: keep it fast."""

from __future__ import annotations

import _ctypes  # importing ctypes, which wraps it, would take each rank 4 ms

PDEATHSIG, DUMPABLE, NAME, CHILD_SUBREAPER = 1, 4, 15, 36  # linux/prctl.h


class _Int(_ctypes._SimpleCData):  # type: ignore[type-arg]
    _type_ = "i"


class _Function(_ctypes.CFuncPtr):
    _flags_ = _ctypes.FUNCFLAG_CDECL
    _restype_ = _Int


_prctl = _Function(_ctypes.dlsym(_ctypes.dlopen(None, 0), "prctl"))  # type: ignore[arg-type]  # None is this process


def prctl(option: int, value: bytes | int) -> None:
    """Set one property of this process. A kernel without this property is no error."""
    _prctl(option, value, 0, 0, 0)
