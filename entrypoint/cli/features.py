"""The features of `run`, `check` and `netcheck`, put together for the core."""

from __future__ import annotations

from entrypoint.base.model import Inquiry
from entrypoint.extensions import Extensions
from entrypoint.features.health.admission import HealthGate
from entrypoint.features.record.file import RecordFile
from entrypoint.features.record.live import LiveRecord
from entrypoint.output.log import Logger
from entrypoint.spec import JobSpec


def extensions(spec: JobSpec, record: RecordFile, log: Logger) -> Extensions:
    """Return what the core asks of features."""
    return Extensions(LiveRecord(spec, record, log), HealthGate.of, _before_program)


def _before_program(spec: JobSpec) -> Inquiry | None:
    if spec.netcheck.when != "before":
        return None
    from entrypoint.features.netcheck.coordinator import inquiry  # most jobs ask nothing

    return inquiry(spec, "before")
