"""What leader and worker say to each other in their ssh session: one JSON object a line, `kind` first.

leader -> worker   hello(hosts, rank, toolkit,                  the roll call's question
                         launcher, env, lease)
worker -> leader   facts(slots, mpi, toolkit, clock, broken)    its answer
                   refuse(what, seen, do)                       or why this can't be one job
leader -> worker   start()                                      everyone answered
                   ping()        <- pong(quiet)                 still there; seconds since a rank there printed
                   stacks()      <- shown()                     show what your ranks are doing
worker -> leader   rank(event, rank, value, tail, why)          a rank started (pid) or ended (status) there
                   ended(status, what, reason, tail, last)      a program of its own ended; `last`: no other runs
                   failed(status, reason)                       it cannot go on (a signal, sshd died)
                   hurry()                                      a second signal: nobody waits for the grace to end
leader -> worker   stop(grace)   <- stopped()                   end your ranks
                   release(status, reason)  <- leaving()        the job's result; leave with it
"""

from __future__ import annotations

import json
from typing import Any

LIMIT = 64 * 1024 * 1024  # bytes in one line; the spec's env travels in one


def pack(kind: str, **fields: Any) -> bytes:
    """One message as a line."""
    return json.dumps({"kind": kind, **fields}).encode() + b"\n"


def unpack(line: bytes) -> dict[str, Any]:
    """One line as a message; `{"kind": ""}` for what is none, such as words of a login shell's start file."""
    try:
        message = json.loads(line)
    except ValueError:
        return {"kind": "", "text": line.decode(errors="replace").strip()}
    return message if isinstance(message, dict) and "kind" in message else {"kind": "", "text": str(message)}
