"""Measures for this node: `python -I helper.py`, a process that its entrypoint starts and speaks to by its pipes.

The first line of stdin is the job's token, each further one a question, answered by a line on stdout (messages.py).
When stdin closes, it ends at once, with all that it has started.
"""

from __future__ import annotations

import os
import queue
import sys
import threading
from typing import Any

if __name__ == "__main__":
    sys.path.append(os.path.abspath(f"{__file__}/../../.."))  # an isolated Python does not find our package

from entrypoint.netcheck import measure
from entrypoint.netcheck.link import Unauthenticated
from entrypoint.netcheck.messages import (
    ANSWERS,
    MOST,
    MeasurePair,
    Open,
    Ready,
    Reduce,
    ReducePort,
    ServeReduce,
    Unable,
    pack,
    unpack,
)
from entrypoint.netcheck.sweep import Sweep, has_torch
from entrypoint.system.proc import undo_launcher
from entrypoint.text import one_line
from entrypoint.wire import Invalid

_TEXT = 300  # characters of an error


class Helper:
    """What this node measures, one question after the other."""

    def __init__(self, token: bytes) -> None:
        """Raises OSError if it cannot listen."""
        self._token = token
        self._server = measure.PairServer(token)
        self._sweep: Sweep | None = None

    def answer(self, question: Any) -> Any:
        """Return the answer to a question, Unable if it could not be done."""
        try:
            match question:
                case Open():
                    return Ready(self._server.port, has_torch())
                case MeasurePair():
                    strangers = tuple(self._server.strangers)
                    return measure.measure(question.host, question.port, self._token, question.seconds, strangers)
                case ServeReduce():
                    self._sweep = Sweep(0, question.nodes, "localhost", 0)
                    port = self._sweep.port()
                    return ReducePort(port) if port else self._unable(self._sweep.end(()).why)
                case Reduce():
                    if question.rank or self._sweep is None:
                        self._sweep = Sweep(question.rank, question.nodes, question.host, question.port)
                    return self._sweep.end(tuple(self._server.strangers))
        except Invalid as error:
            return self._unable(f"{question.node} sent an invalid message: {error}")
        except (OSError, Unauthenticated) as error:
            return self._unable((getattr(error, "strerror", None) or str(error) or type(error).__name__).lower())
        raise AssertionError(question)

    def close(self) -> None:
        """End what it has started."""
        if self._sweep is not None:
            self._sweep.kill()

    def _unable(self, why: str) -> Unable:
        return Unable(one_line(why, _TEXT), tuple(self._server.strangers))


def main() -> int:
    """Answer until stdin closes. Returns the exit status."""
    undo_launcher()
    questions: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    helper = Helper(sys.stdin.buffer.readline(MOST).strip())

    def work() -> None:
        while True:
            answer = helper.answer(unpack(questions.get(), *ANSWERS))
            sys.stdout.buffer.write(pack(answer) + b"\n")
            sys.stdout.buffer.flush()

    threading.Thread(target=work, daemon=True).start()
    while (line := sys.stdin.buffer.readline(MOST)).endswith(b"\n"):
        questions.put(line)
    helper.close()
    return 0


if __name__ == "__main__":
    os._exit(main())
