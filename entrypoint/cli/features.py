"""The features of `run`, `check` and `netcheck`, put together for the core.

A copy of the toolkit may lack the folder of a feature.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeAlias

from entrypoint import features
from entrypoint.base.model import Facts, Inquiry, NodeReport, Outcome, Plan
from entrypoint.base.values import replace
from entrypoint.extensions import Extensions, Gate, Observer
from entrypoint.output.log import Logger
from entrypoint.spec import JobSpec

if TYPE_CHECKING:
    from entrypoint.base.cause import Cause
    from entrypoint.base.text import Log
    from entrypoint.features import finish as _finish
    from entrypoint.features.record.file import RecordFile

    Record: TypeAlias = RecordFile | "Nothing"
    Finish: TypeAlias = _finish.Finish | "Nothing"


class Nothing:
    """Stands for the record, its observer, the gate and its admission, and the end: keeps, checks
    and does nothing."""

    record: Any = None

    def _ignore(self, *_: Any) -> None: ...

    about = end = begin = open = saw = close = hand_over = before_program = cancel = _ignore
    begins = act = _ignore

    def phases(self, now: float) -> Any:
        """Return no phases, as the message to the leader."""
        from entrypoint.job.messages import Phases

        return Phases((), 0.0, 0.0, 0.0, 0.0)

    def admission(self, *_: Any) -> Nothing:
        """Return what admits every node."""
        return self

    def report(self, report: NodeReport) -> NodeReport:
        """Return the report as it is."""
        return report

    def hold(self, work: Callable[[], None]) -> None:
        """Do it now."""
        work()


def has(feature: str) -> bool:
    """Return whether this copy of the toolkit has a feature."""
    return os.path.isfile(f"{features.__path__[0]}/{feature}/__init__.py")


def recorded(log: Logger, is_kept: bool = True) -> contextlib.AbstractContextManager[Record]:
    """Return the record of this node, for a `with`, if it is to be kept."""
    if not (is_kept and has("record")):
        return contextlib.nullcontext(Nothing())
    from entrypoint.features.record.file import recorded

    return recorded(log)


@contextlib.contextmanager
def finishing(log: Logger) -> Iterator[Finish]:
    """Yield what acts when the context ends, after the record has. Set its `record`."""
    finish: Finish = Nothing()
    if has("finish"):
        from entrypoint.features import finish as feature

        finish = feature.Finish(_run_hooks, log)
    try:
        yield finish
    finally:
        finish.act()


def _run_hooks(*how: Any) -> Iterator[Outcome]:
    from entrypoint.ranks import hooks  # slow to import

    return hooks.run(*how)


def extensions(spec: JobSpec, record: Record, log: Logger) -> Extensions:
    """Return what the core asks of features."""
    if isinstance(record, Nothing):
        return Extensions(record, _gate, _before_program)
    from entrypoint.features.record.live import LiveRecord

    observer: Observer = LiveRecord(spec, record, log)
    if "KUBEFLOW_TRAINER_SERVER_URL" in os.environ and spec.stall.line and has("finish"):
        from entrypoint.features.finish import progress

        if all(map(os.environ.get, progress.VARIABLES)):
            observer = progress.TrainJobProgress(observer, log)
    return Extensions(observer, _gate, _before_program)


def _gate(spec: JobSpec, facts: Facts, log: Logger) -> Gate:
    """Return the gate that the spec and the site ask for."""
    if has("health"):
        from entrypoint.features.health import asks_cards

        if asks_cards(spec) or os.path.isdir(spec.gate.folder):
            from entrypoint.features.health.gate import NodeGate  # most jobs have none

            return NodeGate(spec, facts, log)
    return Nothing()


def _before_program(spec: JobSpec) -> Inquiry | None:
    if spec.netcheck.when != "before":
        return None
    from entrypoint.features.netcheck.coordinator import inquiry  # most jobs ask nothing

    return inquiry(spec, "before")


def after_failure(outcome: Outcome, spec: JobSpec, facts: Facts, plan: Plan, log: Logger) -> None:
    """Log what this node lacks after a failed boot, as far as probes without programs and network
    can tell."""
    from entrypoint.base.errors import CLASSES

    if outcome.program or outcome.status not in CLASSES or not has("health"):
        return
    from entrypoint.features.health.probe import Inputs
    from entrypoint.features.health.probes import lacking

    # the job's outcome is known, and nothing here may change it
    with contextlib.suppress(Exception):
        for finding in lacking(Inputs(spec, facts, plan, 0.0)):
            log(f"seen here: {finding.what} | {finding.detail} | {finding.fix}")


def diagnosed(text: bytes, status: int | None, signal: str, log: Log) -> Cause:
    """Return why a job failed, from its log. What it quotes of that is without secrets."""
    from entrypoint.base.secret import masked
    from entrypoint.features.explain import failures
    from entrypoint.system.causes import add_site

    add_site(log)
    cause = failures.explained(failures.lines_of(text), status, signal)
    return replace(cause, says=masked(cause.says), lines=tuple(map(masked, cause.lines)))
