"""Gives a program the variables whose names no shell can hold, and becomes it.

Run as a file, alone and isolated, by rank.sh: `python odd.py FILE PROGRAM ARGUMENT...`. FILE has NAME=VALUE entries,
each ended by NUL. On a command line, as `env` would have them, everybody could read the values.
"""

import os
import sys


def main(file: str, argv: list[str]) -> int:
    """Returns only when the program cannot be started: 127 where it is not there, else 126."""
    with open(file, "rb") as entries:
        for entry in entries.read().split(b"\0")[:-1]:
            name, _, value = entry.partition(b"=")
            os.environb[name] = value
    try:
        os.execvp(argv[0], argv)
    except OSError as error:
        print(f"rank: cannot start {argv[0]}: {error.strerror}", file=sys.stderr)
        return 127 if isinstance(error, FileNotFoundError) else 126


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
