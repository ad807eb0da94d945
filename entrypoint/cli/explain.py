"""`entrypoint explain`: print what an exit status or a message means, how to confirm it, and what
to do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from entrypoint.cli.parser import command
from entrypoint.errors import UsageError
from entrypoint.output.log import show, width
from entrypoint.text import escaped

if TYPE_CHECKING:
    import argparse

    from entrypoint.cli.parser import Commands
    from entrypoint.output.log import Logger

_ALL = "`entrypoint explain` lists all"
_LONG = 5  # messages that are explained in full; of more, only the first lines are shown


def arguments(commands: Commands, spec: str | None) -> None:
    """Add the command and its options to the command line."""
    text = (
        "explain an exit status or a message: its cause, how to confirm it, and its fix; without an"
        " argument, list all"
    )
    explain = command(commands, "explain", "[STATUS | MESSAGE-ID | TEXT ...]", text)
    about = "an exit status, a message's id, a part of its text, or a line of a log with an id"
    explain.add_argument("about", nargs="*", metavar="STATUS|MESSAGE-ID|TEXT", help=about)


def act(args: argparse.Namespace, log: Logger) -> int:
    """Print the answer. Returns 0. Raises UsageError if there is nothing to explain."""
    # A line of a log may hold `--`; what follows it belongs to the question, too.
    show(text(" ".join([*args.about, *args.command]).strip(), width()))
    return 0


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
