"""The script that starts a supervisor. Python would compile supervisor.py at each start if that
were the script."""

from __future__ import annotations

import os
import sys

# an isolated Python does not find our package
sys.path.append(os.path.abspath(f"{__file__}/../../.."))

from entrypoint.ranks.supervisor import main

if __name__ == "__main__":
    # Exit at once: Python's cleanup would cost each rank milliseconds for nothing.
    os._exit(main(sys.argv[1:]))
