"""A rank's own word on why it fails: the file that its variable `ENTRYPOINT_VERDICT` names.

retry: elsewhere
why: SDC check failed
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from entrypoint.base.cause import RETRIES, Cause
from entrypoint.base.text import one_line

MOST = 4096  # bytes of the file that are read
_WHY = 300  # characters
_BLAMES: Mapping[str, Any] = {"no": "program", "elsewhere": "node"}


def stated(text: str) -> Cause | None:
    """Return the cause that a rank has written; None if the text has another form."""
    lines = [line.partition(":") for line in text.splitlines() if line.strip()]
    words: dict[str, Any] = {name.strip(): value.strip() for name, _, value in lines}
    retry, why = words.pop("retry", ""), words.pop("why", "")
    if words or retry not in RETRIES or not why:
        return None
    blame = _BLAMES.get(retry, "unknown")
    return Cause("own-word", "root", blame, retry, "high", one_line(why, _WHY))
