"""`entrypoint explain`: print what an exit status or a message means, how to confirm it, and what
to do."""

from __future__ import annotations

import argparse
import os
import re
import stat
from collections import deque
from functools import partial

from entrypoint.base.errors import NoInputError, UsageError
from entrypoint.base.text import escaped, json_document
from entrypoint.cli.parser import Command
from entrypoint.output.log import Logger, answer, show, width

_HEAD = 1 << 20  # bytes that are read of the begin of a log
_TAIL = 4 << 20  # and of its end


def _number(text: str) -> int:
    if not re.fullmatch(r"-?[0-9]{1,3}", text) or not -64 <= int(text) <= 255:
        hint = "give a number from 0 to 255, or -9 for SIGKILL"
        raise UsageError("EP136 --status needs a status", text[:20], hint)
    return int(text)


def _signal(text: str) -> str:
    from signal import Signals

    for one in Signals:
        if text.upper() in (one.name, one.name.removeprefix("SIG"), str(one.value)):
            return one.name
    raise UsageError(
        "EP136 --signal needs the name of a signal", text[:20], "such as SIGKILL or SIGSEGV"
    )


COMMAND = Command(
    "explain an exit status or a message: its cause, how to confirm it, and its fix; or, from the"
    " log in FILE (- for stdin), why a job failed and whether a retry helps; without an argument,"
    " list all messages",
    "[STATUS | MESSAGE-ID | TEXT ... | FILE | -]",
    (
        "about STATUS|MESSAGE-ID|TEXT|FILE  an exit status, a message's id, a part of its text or"
        " of an error, the name of a cause, or a line of a log with an id; or a log file",
        "--json  print the diagnosis of FILE as JSON",
        "--status N  the exit status of the job, if FILE does not show it",
        "--signal NAME  the signal that ended the job, such as SIGKILL",
    ),
    is_of_job=False,
    more={
        "about": {"nargs": "*"},
        "status": {"type": _number},
        "signal": {"type": _signal},
    },
)


def act(args: argparse.Namespace, log: Logger) -> int:
    """Print the answer. Returns 0. Raises UsageError if there is nothing to explain, NoInputError
    if a log cannot be read."""
    # A line of a log may hold `--`; what follows it belongs to the question, too.
    question = [*args.about, *args.command]
    if _is_log(question, args):
        from entrypoint.causes.phrase import as_json
        from entrypoint.cli.features import diagnosed
        from entrypoint.features.explain import failures

        cause = diagnosed(_log(question[0]), args.status, args.signal or "", log)
        if args.json:
            answer(json_document(as_json(cause)))
        else:
            show(failures.text(cause, width()))
    else:
        from entrypoint.features.explain import explanation

        show(explanation(" ".join(question).strip(), width()))
    return 0


def _is_log(question: list[str], args: argparse.Namespace) -> bool:
    """Return whether the question names a log, rather than a status, an id or a text. Raises
    UsageError if options for logs are given without one."""
    from entrypoint.features.explain import find

    options = [
        name for name in ("json", "status", "signal") if getattr(args, name) not in (None, False)
    ]
    word = question[0] if len(question) == 1 else ""
    if not word or _is_asked(word):
        if options:
            hint = "give the file of a log, or - for stdin: entrypoint explain --json job.log"
            raise UsageError(f"EP136 --{options[0]} needs a log", " ".join(question)[:80], hint)
        return False
    if options or word == "-" or os.path.exists(word):
        return True
    is_path = re.fullmatch(r"\S*/\S*|\S+\.(?:log|txt|out|err|jsonl?)", word) is not None
    return is_path and find(word) == ([], [])


def _is_asked(word: str) -> bool:
    """Return whether a word is an id, or a status that is not also the name of a file."""
    is_status = word.isascii() and word.isdigit() and not os.path.isfile(word)
    return is_status or re.fullmatch("(?i)EP[0-9]{3}", word) is not None


def _log(path: str) -> bytes:
    """Return the begin and the end of a log: as much of it as says why a job failed. Raises
    NoInputError if it cannot be read."""
    name = "stdin" if path == "-" else escaped(path, 200)
    hint = "give the file of a log, or - for stdin"
    try:
        with open(0 if path == "-" else path, "rb", closefd=path != "-") as file:
            mode = os.fstat(file.fileno()).st_mode
            if path != "-" and not (stat.S_ISREG(mode) or stat.S_ISFIFO(mode)):
                raise OSError(0, "it is not a file")
            head = file.read(_HEAD)
            if stat.S_ISREG(mode):  # one byte more than the end shows that something is left out
                file.seek(max(len(head), file.seek(0, os.SEEK_END) - _TAIL - 1))
            # Of what a pipe still brings, never more than two pieces are kept.
            rest = b"".join(deque(iter(partial(file.read, _TAIL), b""), maxlen=2))
            return head + (b"\n" if len(rest) > _TAIL else b"") + rest[-_TAIL:]
    except OSError as error:
        raise NoInputError(f"EP111 cannot read {name}", error.strerror or "", hint) from None
