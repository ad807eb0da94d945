"""What Python does by itself, and the script that it is to read. The supervisor imports this: nothing slow here."""

from __future__ import annotations

import os


def python_set_locale() -> bool:
    """Whether LC_CTYPE was not given: in a C locale Python sets it for itself and all that it starts (PEP 538)."""
    if os.environ.get("LC_CTYPE") != "C.UTF-8":
        return False
    try:
        with open("/proc/self/environ", "rb") as given:
            return not any(entry.startswith(b"LC_CTYPE=") for entry in given.read().split(b"\0"))
    except OSError:
        return False


def script(program: list[str] | tuple[str, ...]) -> str:
    """The script that this Python is to read, "" where it is another program or that is not plain to see."""
    if os.path.basename(program[0]).startswith("python"):
        for word in program[1:]:
            if not word.startswith("-"):
                return word
            if word.strip("-uBEIOPsSqvx") or not word.strip("-"):
                break  # -m, -c, or an option with a value
    return ""
