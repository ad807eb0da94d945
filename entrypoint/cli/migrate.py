"""`entrypoint migrate`: write the job.yaml that does what a documented script does."""

from __future__ import annotations

import argparse

from entrypoint.cli import inputs
from entrypoint.cli.parser import Commands, command
from entrypoint.output.log import Logger

_LONGEST = 200  # characters of the script that are shown


def arguments(commands: Commands, spec: str | None) -> None:
    """Add the command and its options to the command line."""
    text = "write the job.yaml that does what run_mpi.sh, torchrun.sh or torchlaunch.sh does"
    migrate = command(commands, "migrate", "SCRIPT [--out FILE] [-- ARGUMENT ...]", text)
    migrate.add_argument(
        "script", metavar="SCRIPT", help="script of ModelArts' documents, also an edited one"
    )
    migrate.add_argument(
        "--out",
        default="job.yaml",
        metavar="FILE",
        help="new file, or - for stdout (default: job.yaml)",
    )


def act(args: argparse.Namespace, log: Logger) -> int:
    """Write the file, and list what it does not do. Returns 0."""
    from entrypoint.adopt.document import Setting, create, document
    from entrypoint.adopt.migrate import migrate
    from entrypoint.spec import load
    from entrypoint.text import brief, one_line

    migration = migrate(inputs.text(args.script), args.script, args.command)
    lost = [
        f"line {lost.line}: {one_line(lost.text, _LONGEST)} | {lost.hint}"
        for lost in migration.lost
    ]
    head = [f"Written by `entrypoint migrate {brief(args.script)}`."]
    head += ["What it does not do:", *(f"  {line}" for line in lost)] if lost else []
    settings = [
        Setting(path, value, f"line {migration.lines[path]}")
        for path, value in migration.values.items()
    ]
    secret = "Several nodes need a secret, docs/how-to/secrets.md"
    settings.append(Setting("secret_file", "/run/secrets/entrypoint", secret, True))
    if "command" not in migration.values:
        program = "The program comes after --, or stands here"
        settings.append(Setting("command", ["python", "train.py"], program, True))
    text = document(head, settings)
    load(text, args.out, {}, {})  # a value of the script may be invalid in a spec
    written = create(args.out, text)
    for line in lost:
        log(f"warning: EP135 not carried over: {line}")
    if written:
        log(f"wrote {args.out} | try: entrypoint plan --spec {args.out}")
    return 0
