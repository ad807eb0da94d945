"""Asks a launcher's script for the command line that it builds, for `entrypoint plan`."""

from __future__ import annotations

import subprocess

from entrypoint.launchers import _command_line as command_line
from entrypoint.model import EnvVar, Facts, Plan, Program
from entrypoint.plan import environment
from entrypoint.text import one_line

_LIMIT = 10.0  # seconds; it asks Python for the version of a package


def of(program: Program, plan: Plan, facts: Facts) -> tuple[str, str]:
    """Return a launcher's command line without secrets, and why it is unknown; one of them is "".

    Both are "" if no script builds it. The script gets everything that `run` gives it, and starts
    nothing.
    """
    text = next((file.text for file in plan.files if file.name == program.script), "")
    if not text:
        return "", ""
    stage = EnvVar("ENTRYPOINT_STAGE", command_line.STAGE, "")
    env = environment(facts.env, (*plan.env, *program.env, stage))
    argv = ["bash", "-c", text, *program.argv[1:]]
    try:
        done = subprocess.run(
            argv, env=env, cwd=plan.workdir, capture_output=True, check=False, timeout=_LIMIT
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return "", one_line(str(error))
    if done.returncode:
        last = done.stderr.decode(errors="replace").strip().rpartition("\n")[2]
        return "", one_line(last or f"{program.script} ended with {done.returncode}")
    return command_line.shown(done.stdout), ""
