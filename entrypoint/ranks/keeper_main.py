"""The keeper's program: `python -I -S keeper_main.py FD`, with the socket to the entrypoint."""

from __future__ import annotations

import os
import sys
from os.path import dirname


def main(fd: int) -> None:
    """Keep programs and ranks until the entrypoint ends."""
    sys.path.insert(0, dirname(dirname(dirname(os.path.realpath(__file__)))))
    from entrypoint.ranks.keeper import run

    try:
        run(fd)
    except Exception as error:
        from entrypoint.base.errors import internal

        defect = internal(error).reason.encode("utf-8", "backslashreplace")
        os.write(2, b"[entrypoint] keeper: %b\n" % defect)
    finally:
        os._exit(1)


if __name__ == "__main__":
    main(int(sys.argv[1]))
