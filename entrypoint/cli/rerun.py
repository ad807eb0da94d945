"""`entrypoint rerun`: start one rank of the last job of this node again, alone."""

from __future__ import annotations

import argparse
import contextlib
import os
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
its own. Exit status: the program's; 66 if the rank has not run here, or its job still runs.""",
    more={"rank": {"required": True}},
)


def act(args: argparse.Namespace, log: Logger) -> int:
    """Become the program. Returns a status only if it could not be started."""
    from entrypoint.base import secret, text
    from entrypoint.features.record import status
    from entrypoint.system import descriptors, files, process

    run_dir, ended = status.find(args.run_dir), ""
    with contextlib.suppress(NoInputError, UnavailableError):
        ended = f" | the job ended: {status.ask(run_dir).get('reason')}"
    place, summary = files.ranks_of(str(run_dir)), f"EP030 rank {args.rank} cannot be started again"
    stored = os.listdir(place) if place.is_dir() and files.is_private(place) else []
    if files.is_held(str(run_dir)):
        raise NoInputError(summary, "its job still runs", "see what it does: entrypoint stacks")
    if args.rank not in stored:
        ranks = text.spans(sorted(int(name) for name in stored if name.isdigit()))
        raise NoInputError(summary, f"ranks that ran here: {', '.join(ranks) or 'none'}")
    data = os.fsdecode(descriptors.read_regular(place / args.rank, files.MAX_BYTES))
    job, attempt, cwd, size, *words = data.split("\0")
    argv, env = words[: int(size)], dict(word.split("=", 1) for word in words[int(size) :])
    argv = args.command or argv
    if any(secret.HIDDEN in word for word in argv):
        raise NoInputError(summary, "a secret in its command is not stored", "give it after --")
    own = process.environment()
    missing = sorted(n for n in env if secret.HIDDEN in env[n] and n not in own)
    env = {n: own[n] if secret.HIDDEN in env[n] else env[n] for n in env if n not in missing}
    if missing:
        log(f"may be secrets, so not stored, and not set here: {', '.join(missing)}")
    line = shlex.join(secret.masked_words(argv))
    log(f"rank {args.rank} of job {job}, attempt {attempt}, again: {line}{ended}")
    outcome = process.replace(argv, env, cwd)
    log(f"{outcome.reason}; exit {outcome.status}")
    return outcome.status
