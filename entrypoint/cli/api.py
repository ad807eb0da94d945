"""The public Python API, which `entrypoint` itself offers: docs/reference/python.md."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from typing import Any

from entrypoint.base.errors import EntrypointError as EntrypointError
from entrypoint.causes.phrase import as_json
from entrypoint.cli import inputs
from entrypoint.cli.features import diagnosed
from entrypoint.cli.plan_text import plan_json
from entrypoint.plan import located, settle
from entrypoint.spec import JobSpec as JobSpec
from entrypoint.spec import load
from entrypoint.system import facts


def load_spec(path: str | os.PathLike[str] | None, env: Mapping[str, str] | None = None) -> JobSpec:
    """Return the job that a spec file describes, and the variables `ENTRYPOINT_*` of `env`, which
    win; by default those of this process. Without a path, the variables alone.

    Raises EntrypointError with a line for each problem, or if the file cannot be read.
    """
    variables = inputs.environ() if env is None else env
    name = "" if path is None else os.fspath(path)
    text = inputs.decoded(name) if name else None
    return load(text, name, variables, {}, inputs.folders(name))


def plan(spec: JobSpec) -> dict[str, Any]:
    """Return what `entrypoint plan --json` prints: what `run` would do in this container. Secrets
    are hidden.

    Raises EntrypointError if it would be refused; on a computer that is no node of the job, load
    the spec with `ENTRYPOINT_NODE_RANK` in `env`.
    """
    here = facts.of_job(facts.read())()
    spec, topology = located(spec, here)
    document: dict[str, Any] = json.loads(plan_json(spec, settle(spec, here, topology)))
    return document


def explain(
    log: str | bytes, status: int | None = None, signal: str | None = None
) -> dict[str, Any]:
    """Return what `entrypoint explain --json FILE` prints: from the log of any job, why it failed,
    and whether a retry helps. `status` and `signal` (`SIGKILL`) are its end, if known."""
    data = log.encode("utf-8", "surrogateescape") if isinstance(log, str) else log
    return as_json(diagnosed(data, status, signal or "", lambda text: None))


# The import of the package `entrypoint.plan` has set this name to that.
vars(sys.modules["entrypoint"])["plan"] = plan
