"""`entrypoint stacks` asks the running entrypoint through the node socket what the ranks do."""

from __future__ import annotations

import contextlib
import json
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from entrypoint.base.errors import UnavailableError
from entrypoint.base.text import from_json, one_line
from entrypoint.system.nodeclient import connect
from entrypoint.system.nodesocket import UNKNOWN, Connection, NodeSocket

_MOST = 1 << 18  # bytes of an answer
_LONGEST = 1000  # characters of a line
_PATIENCE = 40.0  # seconds until a request is given up: the leader waits for 15 s


class StackRequests:
    """Requests that wait for their answer. `wanted` is called for the first one."""

    def __init__(self, node: NodeSocket, wanted: Callable[[], object]) -> None:
        self._wanted = wanted
        # Without a handler, only so many connections are kept.
        self._waiting: deque[Connection] = deque(maxlen=UNKNOWN)
        node.kinds["stacks"] = self._begin

    def _begin(self, request: Connection, _: Any) -> None:
        self._waiting.append(request)
        if len(self._waiting) == 1:
            self._wanted()

    def answer(self, lines: Sequence[str], why: str = "") -> None:
        """Answer all requests: with the lines, or with why there are none."""
        data = json.dumps({"lines": lines, "why": why})
        for request in self._waiting:
            request.send(f"{data}\n".encode())
        self._waiting.clear()


def ask(run_dir: Path) -> list[str]:
    """Return what the entrypoint of this run directory says of its ranks.

    Raises UnavailableError if it does not answer, or cannot say anything.
    """
    data = b""
    try:
        with contextlib.closing(connect(str(run_dir), '["stacks", null]', _PATIENCE)) as request:
            while data[-1:] != b"\n" and len(data) <= _MOST and (piece := request.recv(_MOST)):
                data += piece
        answer = from_json(data)
        lines, why = answer["lines"], answer["why"]
        if lines and all(isinstance(line, str) for line in lines):
            return [one_line(line, _LONGEST) for line in lines]
    except OSError as error:
        why = f"{run_dir}: {error.strerror or error}"
    except (ValueError, TypeError, LookupError):
        why = "the entrypoint has ended, or is another version"
    hint = "make sure that ranks run: entrypoint status"
    raise UnavailableError("EP038 stacks cannot be read", one_line(str(why), _LONGEST), hint)
