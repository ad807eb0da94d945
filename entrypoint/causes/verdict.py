"""A rank's own word on why it fails: the file that its variable `ENTRYPOINT_VERDICT` names.

retry: elsewhere
why: SDC check failed
"""

from __future__ import annotations

import re
from typing import Any

from entrypoint.base.cause import RETRIES, Cause
from entrypoint.base.text import one_line

MOST = 4096  # bytes of the file that are read
_FORM = rf"retry:[ \t]*({'|'.join(RETRIES)})\s+why:[ \t]*(\S.*)"
_BLAMES: dict[str, Any] = {"no": "program", "elsewhere": "node"}


def stated(text: str) -> Cause | None:
    """Return the cause that a rank has written; None if the text has another form."""
    if not (found := re.fullmatch(_FORM, text.strip())):
        return None
    retry: Any = found[1]
    blame = _BLAMES.get(retry, "unknown")
    return Cause("own-word", "root", blame, retry, "high", one_line(found[2], 300))
