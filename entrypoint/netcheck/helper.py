"""Measures for this node: `python -I helper.py`, a process that its entrypoint starts and speaks to
by its pipes.

The first line of stdin is the job's token, each further one a question, answered by a line on
stdout (messages.py). When stdin closes, it ends at once, with all that it has started.
"""

from __future__ import annotations

import os
import queue
import sys
import threading
from typing import Any

if __name__ == "__main__":
    # an isolated Python does not find our package
    sys.path.append(os.path.abspath(f"{__file__}/../../.."))

from entrypoint.netcheck import messages
from entrypoint.netcheck.link import Listener, Unauthenticated
from entrypoint.netcheck.measure import measure, serve
from entrypoint.netcheck.sweep import Sweep
from entrypoint.system.proc import undo_launcher
from entrypoint.text import from_json, one_line
from entrypoint.wire import to_json

_TEXT = 300  # characters of an error


class Helper:
    """What this node measures, one question after the other."""

    def __init__(self, token: bytes) -> None:
        """Raises OSError if it cannot listen."""
        self._token = token
        self._server = Listener(token, serve)
        self._sweep: Sweep | None = None

    def answer(self, question: Any) -> Any:
        """Return the answer to a question, Unable if it could not be done."""
        rejected = tuple(self._server.rejected)
        try:
            match question:
                case messages.Open():
                    return messages.Ready(self._server.port)
                case messages.MeasurePair():
                    return measure(
                        question.host, question.port, self._token, question.seconds, rejected
                    )
                case messages.ServeReduce():
                    self._sweep = Sweep(0, question.nodes, "localhost", 0)
                    port = self._sweep.port()
                    return (
                        messages.Ready(port) if port else messages.Unable(self._sweep.end(()).why)
                    )
                case messages.Reduce():
                    if question.rank or self._sweep is None:
                        self._sweep = Sweep(
                            question.rank, question.nodes, question.host, question.port
                        )
                    return self._sweep.end(rejected)
        except (OSError, Unauthenticated) as error:
            why = (getattr(error, "strerror", None) or str(error) or type(error).__name__).lower()
            return messages.Unable(one_line(why, _TEXT), rejected)
        raise AssertionError(question)

    def close(self) -> None:
        """End what it has started."""
        if self._sweep is not None:
            self._sweep.kill()


def main() -> int:
    """Answer until stdin closes. Returns the exit status."""
    undo_launcher()
    questions: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    helper = Helper(sys.stdin.buffer.readline(messages.MOST).strip())

    def work() -> None:
        while True:
            question = messages.unpacked(from_json(questions.get()), *messages.ANSWERS)
            print(to_json(messages.packed(helper.answer(question))), flush=True)

    threading.Thread(target=work, daemon=True).start()
    while (line := sys.stdin.buffer.readline(messages.MOST)).endswith(b"\n"):
        questions.put(line)
    helper.close()
    return 0


if __name__ == "__main__":
    os._exit(main())
