"""What the job asks for a network check. Its parts are imported when it begins: workers need none
of them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Literal

from entrypoint.model import Inquiry, NodeReport, Plan
from entrypoint.spec import JobSpec

# what a command prints; or lines in the log, before the job
How = Literal["text", "json", "before"]


def inquiry(spec: JobSpec, how: How) -> Inquiry:
    """Return the network check, instead of the job or before it."""
    return Inquiry("netcheck", partial(_coordinator, spec, how), instead=how != "before")


def _coordinator(spec: JobSpec, how: How, plan: Plan, reports: Mapping[int, NodeReport]) -> Any:
    from entrypoint.netcheck.coordinator import Coordinator

    return Coordinator(spec, how, plan.topology, reports)
