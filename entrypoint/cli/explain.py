"""`entrypoint explain`: print what an exit status or a message means, how to confirm it, and what
to do."""

from __future__ import annotations

import argparse
import os
import re
import stat
from typing import BinaryIO

from entrypoint.cause import Cause
from entrypoint.cli.parser import Commands, command
from entrypoint.errors import NoInputError, UsageError
from entrypoint.output.log import Logger, answer, show, width
from entrypoint.text import escaped, json_document

_ALL = "`entrypoint explain` lists all"
_HEAD = 1 << 20  # bytes that are read of the begin of a log
_TAIL = 4 << 20  # and of its end
_LONG = 5  # messages that are explained in full; of more, only the first lines are shown


def arguments(commands: Commands, spec: str | None) -> None:
    """Add the command and its options to the command line."""
    text = (
        "explain an exit status or a message: its cause, how to confirm it, and its fix; or say why"
        " the job failed whose log is in FILE (- for stdin), and whether a retry helps; without an"
        " argument, list all"
    )
    explain = command(commands, "explain", "[STATUS | MESSAGE-ID | TEXT ... | FILE | -]", text)
    about = (
        "an exit status, a message's id, a part of its text, a line of a log with an id; or the"
        " file of a log"
    )
    explain.add_argument("about", nargs="*", metavar="STATUS|MESSAGE-ID|TEXT|FILE", help=about)
    explain.add_argument("--json", action="store_true", help="print the judgement on FILE as JSON")
    explain.add_argument(
        "--status", metavar="N", help="the exit status of the job whose log is in FILE"
    )
    explain.add_argument(
        "--signal", metavar="NAME", help="the signal that ended it, such as SIGKILL"
    )


def act(args: argparse.Namespace, log: Logger) -> int:
    """Print the answer. Returns 0. Raises UsageError if there is nothing to explain, NoInputError
    if a log cannot be read."""
    # A line of a log may hold `--`; what follows it belongs to the question, too.
    question = [*args.about, *args.command]
    if _is_log(question, args):
        from entrypoint.causes.phrase import as_json
        from entrypoint.explain import failures

        cause = _judged(question, args, log)
        if args.json:
            answer(json_document(as_json(cause)))
        else:
            show(failures.text(cause, width()))
    else:
        show(text(" ".join(question).strip(), width()))
    return 0


def _is_log(question: list[str], args: argparse.Namespace) -> bool:
    """Return whether the question names a log, rather than a status, an id or a text. Raises
    UsageError if options for logs are given without one."""
    from entrypoint import explain

    options = [
        name for name in ("json", "status", "signal") if getattr(args, name) not in (None, False)
    ]
    word = question[0] if len(question) == 1 else ""
    if word == "-" or (word and os.path.exists(word) and not _is_asked(word)):
        return True
    is_path = re.fullmatch(r"\S*/\S*|\S+\.(?:log|txt|out|err|jsonl?)", word) is not None
    if options and (not word or _is_asked(word)):
        hint = "give the file of a log, or - for stdin: entrypoint explain --json job.log"
        raise UsageError(f"EP136 --{options[0]} needs a log", " ".join(question)[:80], hint)
    if options or not is_path:
        return bool(options)
    return not (explain.named(word) or explain.containing(word) or explain.others_containing(word))


def _is_asked(word: str) -> bool:
    """Return whether a word is an id, or a status that is not also the name of a file."""
    is_status = word.isascii() and word.isdigit() and not os.path.isfile(word)
    return is_status or re.fullmatch("(?i)EP[0-9]{3}", word) is not None


def _judged(question: list[str], args: argparse.Namespace, log: Logger) -> Cause:
    from entrypoint.explain import failures
    from entrypoint.system.causes import add_site

    add_site(log)
    status = _number(args.status)
    signal = _signal(args.signal)
    return failures.explained(failures.lines_of(_log(question[0])), status, signal)


def _number(text: str | None) -> int | None:
    if text is None:
        return None
    if not re.fullmatch(r"-?[0-9]{1,3}", text) or not -64 <= int(text) <= 255:
        hint = "give a number from 0 to 255, or -9 for SIGKILL"
        raise UsageError("EP136 --status needs a status", text[:20], hint)
    return int(text)


def _signal(text: str | None) -> str:
    if text is None:
        return ""
    import signal

    names = {name.name: name.name for name in signal.Signals}
    names |= {name.name.removeprefix("SIG"): name.name for name in signal.Signals}
    names |= {str(name.value): name.name for name in signal.Signals}
    if text.upper() not in names:
        raise UsageError(
            "EP136 --signal needs the name of a signal", text[:20], "such as SIGKILL or SIGSEGV"
        )
    return names[text.upper()]


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
            if stat.S_ISREG(mode):
                end = file.seek(0, os.SEEK_END)
                file.seek(max(len(head), end - _TAIL))
                return head + _joint(file.tell() > len(head)) + file.read(_TAIL)
            return head + _end_of(file)
    except OSError as error:
        raise NoInputError(f"EP111 cannot read {name}", error.strerror or "", hint) from None


def _end_of(file: BinaryIO) -> bytes:
    """Return the end of what a pipe still brings; never more than two pieces are kept."""
    before = b""
    last = b""
    dropped = False
    while piece := file.read(_TAIL):
        dropped = dropped or bool(before)
        before, last = last, piece
    rest = before + last
    return _joint(dropped or len(rest) > _TAIL) + rest[-_TAIL:]


def _joint(is_cut: bool) -> bytes:
    return b"\n" if is_cut else b""


def text(question: str, columns: int) -> str:
    """Return the explanation for a terminal of `columns` columns. Raises UsageError if there is
    none."""
    from entrypoint import explain

    if not question:
        return _all(columns)
    if question.isascii() and question.isdigit():
        return _status(int(question[:20]), columns)
    if question.upper() in explain.messages():
        return f"{explain.messages()[question.upper()].text(columns)}\n"
    if named := explain.named(question):
        return "\n\n".join(entry.text(columns) for entry in named) + "\n"
    entries, others = explain.containing(question), explain.others_containing(question)
    if not entries and not others:
        hint = (
            f"give an id, such as EP500, a status, or a part of a message as it is written; {_ALL}"
        )
        raise UsageError("EP130 there is no such message", question[:80], hint)
    if len(entries) > _LONG:
        parts = ["\n".join(_line(entry.id, entry.says, columns) for entry in entries)]
    else:
        parts = [entry.text(columns) for entry in entries]
    parts += [
        f"{other['says']}\n  cause    {other['cause']}\n  fix      {other['fix']}"
        for other in others
    ]
    return "\n\n".join(parts) + "\n"


def _status(number: int, columns: int) -> str:
    from entrypoint import explain

    if entry := explain.messages().get(f"EP{number}") if number > 255 else None:
        return f"{entry.text(columns)}\n"
    if number > 255:
        raise UsageError(
            "EP130 there is no such exit status",
            str(number)[:20],
            f"give a number from 0 to 255; {_ALL}",
        )
    lines = [explain.of_status(number).text(columns)]
    if entries := explain.ending_with(number):
        rows = "\n".join(_line(entry.id, entry.says, columns) for entry in entries)
        lines.append(f"Messages that end with it:\n{rows}")
    return "\n\n".join(lines) + "\n"


def _all(columns: int) -> str:
    from entrypoint import explain

    parts = [
        "Exit statuses\n"
        + "\n".join(_line(entry.id, entry.says, columns, 6) for entry in explain.statuses())
    ]
    for title, entries in explain.groups():
        parts.append(
            f"{title}\n" + "\n".join(_line(entry.id, entry.says, columns) for entry in entries)
        )
    return "\n\n".join([*parts, "Details: `entrypoint explain EP500`, or `explain 75`."]) + "\n"


def _line(id: str, says: str, columns: int, room: int = 5) -> str:
    return escaped(f"  {id:<{room}}  {says}", columns)
