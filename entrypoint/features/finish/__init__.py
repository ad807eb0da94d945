"""The end of the job on a node: worker-0 posts the result, and the end hooks run. And the progress
of a TrainJob, which goes the same way."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from entrypoint.base.model import Facts, Outcome, Plan, Topology
    from entrypoint.base.text import Log
    from entrypoint.spec import JobSpec
    from entrypoint.system.signals import Signals

EFFECTS = ("end", "post", "progress")
"""Modules with effects; all others of this package are pure."""


class Finish:
    """The end of this node's part. What it needs is imported then."""

    record: Any = None  # has the job's result at the end
    _job: tuple[JobSpec, Topology, Signals] | None = None
    _hooked: tuple[Facts, Plan] | None = None

    def __init__(self, run_hooks: Callable[..., Iterable[Outcome]], log: Log) -> None:
        self._run_hooks = run_hooks
        self._log = log

    def about(self, spec: JobSpec, topology: Topology, signals: Signals) -> None:
        """Set the job, whose end is reported even if nothing starts."""
        self._job = spec, topology, signals

    def begins(self, facts: Facts, plan: Plan) -> None:
        """Have the end hooks run: the start hooks are about to."""
        self._hooked = facts, plan

    def act(self) -> None:
        """Post the result if this is worker-0, then run the end hooks. Raises nothing."""
        result = getattr(self.record, "result", None)
        if self._job is None or result is None:
            return
        spec, topology, signals = self._job
        signals.hold()
        try:
            if spec.notify.url and topology.is_leader:
                from entrypoint.features.finish.end import post

                post(spec.notify.url, result, self._log)
            if self._hooked and (facts := self._hooked[0]).end_hooks:
                from entrypoint.features.finish.end import run_hooks

                plan, grace = self._hooked[1], spec.timeouts.grace
                run_hooks(self._run_hooks, facts, plan, grace, signals, result, self._log)
        except Exception as error:
            from entrypoint.base.errors import internal

            self._log(f"warning: {internal(error).reason}")
