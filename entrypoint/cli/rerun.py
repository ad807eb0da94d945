"""`entrypoint rerun`: start one rank of the last job of this node again, alone."""

from __future__ import annotations

import argparse
import contextlib
import shlex

from entrypoint.base.errors import NoInputError, UnavailableError
from entrypoint.cli.parser import RUN_DIR, Command
from entrypoint.output.log import Logger

COMMAND = Command(
    "start one rank of this node's last job again, alone, for example in a debugger",
    "--rank N [options] [-- COMMAND ARGUMENT ...]",
    ("--rank N  number of the rank", RUN_DIR),
    is_of_job=False,
    details=""" COMMAND replaces
its own. Where the container has stopped with the job, run this in a copy of it (docker commit).
Exit status: the program's; 66 if the rank has not run here, or its job still runs.""",
    more={"rank": {"required": True}},
)


def act(args: argparse.Namespace, log: Logger) -> int:
    """Become the program. Returns a status only if it could not be started."""
    from entrypoint.base import secret, text
    from entrypoint.features.record import status
    from entrypoint.ranks import command_line
    from entrypoint.system import files, process

    run_dir = status.find(args.run_dir)
    ended = ""
    with contextlib.suppress(NoInputError, UnavailableError):
        ended = f" | the job ended: {status.ask(run_dir).get('reason')}"
    summary = f"EP030 rank {args.rank} cannot be started again"
    stored = files.stored_ranks(str(run_dir))
    if files.is_held(str(run_dir)):
        raise NoInputError(summary, "its job still runs", "see what it does: entrypoint stacks")
    if args.rank not in stored:
        ranks = text.spans(sorted(map(int, stored)))
        raise NoInputError(summary, f"ranks that ran here: {', '.join(ranks) or 'none'}")
    rank = command_line.stored(files.ranks_of(str(run_dir)) / args.rank)
    argv = args.command or rank.command
    if any(secret.HIDDEN in word for word in argv):
        raise NoInputError(summary, "a secret in its command is not stored", "give it after --")
    own = process.environment()
    hidden = {name for name, value in rank.env.items() if secret.HIDDEN in value}
    env = {name: value for name, value in rank.env.items() if name not in hidden}
    env |= {name: own[name] for name in hidden & own.keys()}
    if missing := sorted(hidden - own.keys()):
        log(f"may be secrets, so not stored, and not set here: {', '.join(missing)}")
    line = shlex.join(secret.masked_words(argv))
    log(f"rank {args.rank} of job {rank.job}, attempt {rank.attempt}, again: {line}{ended}")
    outcome = process.replace(argv, env, rank.cwd)
    log(f"{outcome.reason}; exit {outcome.status}")
    return outcome.status
