"""Warnings about settings that have no effect on a job; one node of it gives them."""

from __future__ import annotations

from entrypoint.base.model import Plan
from entrypoint.base.text import count
from entrypoint.spec import JobSpec, logs


def unused(spec: JobSpec, plan: Plan) -> list[str]:
    """Return a warning for each setting that has no effect, or that has another name now."""
    if not plan.topology.is_leader:
        return []
    found = (*spec.renamed, _log_dir(spec, plan), _show(spec, plan), _args(spec, plan))
    return [warning for warning in found if warning]


def _log_dir(spec: JobSpec, plan: Plan) -> str:
    """Return a warning if the user names a directory for logs and nothing writes one; else "".

    A variable gives none: it may be there for other jobs.
    """
    folder = plan.topology.log_dir
    is_asked = spec.source("log_dir").origin in ("flag", "spec")
    if not is_asked or folder in plan.launch.folders or spec.netcheck.when == "before":
        return ""
    where = spec.setting("log_dir")
    hint = "add --log-files ranks for a copy of each rank's output, or remove it"
    return f"EP131 nothing writes logs into {folder} | {where} | {hint}"


def _show(spec: JobSpec, plan: Plan) -> str:
    """Return a warning if `logs.show` names no rank of the job, so that none is printed."""
    show = spec.logs.show
    if show == logs.ALL:
        return ""
    if any(int(part.partition("-")[0]) < plan.ranks for part in show.split(",")):
        return ""
    detail = f"{spec.setting('logs.show')} is {show}; {count(plan.ranks, 'rank')}, from 0"
    return f"EP131 logs.show names no rank of this job | {detail} | name some, or remove it"


def _args(spec: JobSpec, plan: Plan) -> str:
    """Return a warning if the launcher takes none of the options that the user gave."""
    if not spec.launcher_args or plan.launch.takes_args:
        return ""
    where = spec.setting("launcher_args")
    return f"EP131 launcher {plan.launcher} has no options | {where} | remove them"
