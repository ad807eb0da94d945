"""Python's own habits: the locale that it sets, the script that it reads. The supervisor imports this: keep it fast."""

from __future__ import annotations

import os


def python_set_locale() -> bool:
    """Whether Python itself has set LC_CTYPE, as it does in a C locale, also for its children (PEP 538)."""
    if os.environ.get("LC_CTYPE") != "C.UTF-8":
        return False
    try:
        with open("/proc/self/environ", "rb") as given:
            return not any(entry.startswith(b"LC_CTYPE=") for entry in given.read().split(b"\0"))
    except OSError:
        return False


def script(program: list[str] | tuple[str, ...]) -> str:
    """The script that this Python command reads; "" if it is another program, or the script is not obvious."""
    if os.path.basename(program[0]).startswith("python"):
        for word in program[1:]:
            if not word.startswith("-"):
                return word
            if word.strip("-uBEIOPsSqvx") or not word.strip("-"):
                break  # -m, -c, or an option with a value
    return ""
