"""No platform: docker run, compose or a bare machine. Only our own variables are used, and those of
torchrun's that say at which address the nodes meet.

Sources: PyTorch's documentation, "torchrun", and "Distributed communication package", environment
variable initialization. WORLD_SIZE and RANK count nodes here: several processes of one node are
refused before (plan/numbering.py).
"""

from __future__ import annotations

import contextlib
import sys

from entrypoint.base.errors import ConfigError
from entrypoint.platforms._clues import Clues, take_variables

STARTS_ANY_PROGRAM = True
HOSTS = FIRST = SLOTS = JOB = ("-",)
COUNT = ("NNODES", "WORLD_SIZE")
MASTER = ("MASTER_ADDR",)
INDEX = ("NODE_RANK", "RANK")
ROWS = """
`local` | nothing else | none, or they call in at `MASTER_ADDR` | its host name among `hosts`, or
    `NODE_RANK`, `RANK` | the devices | `hosts`, or the number of nodes
"""


def read(clues: Clues) -> None:
    """Take the meeting point, if there is one, the number of nodes, and the index of this one."""
    if clues.env.get("MASTER_ADDR", "").strip():
        with contextlib.suppress(ConfigError):  # they are another program's
            take_variables(sys.modules[__name__], clues)
