"""A node's report of itself as the message that answers the roll call, and back."""

from __future__ import annotations

from entrypoint.base.errors import HostError
from entrypoint.base.model import Interface, NodeReport, Outcome
from entrypoint.base.values import replace
from entrypoint.job.failure import UNHEALTHY, is_unhealthy
from entrypoint.job.messages import NodeInfo

# Fields of the message that say something else there than in a report; the others are the same.
_OWN = {"clock", "not_ready", "interface", "unhealthy"}
_SAME = NodeInfo.__annotations__.keys() - _OWN


def node_info(report: NodeReport, clock: float) -> NodeInfo:
    """Return the message with a node's report of itself; `clock`: its wall clock (seconds)."""
    not_ready, interface = report.not_ready, report.interface
    return NodeInfo(
        **{name: getattr(report, name) for name in _SAME},
        clock=clock,
        not_ready=(not_ready.status, not_ready.reason, not_ready.program) if not_ready else None,
        interface=(interface.name, interface.address, interface.network) if interface else None,
        unhealthy=not_ready is not None and is_unhealthy(not_ready),
    )


def node_report(
    rank: int, answer: NodeInfo, where: tuple[str, int], clock: float, trip: float
) -> NodeReport:
    """Return the report of the node that was reached at the address and port `where`. `clock`: the
    leader's wall clock at that moment; `trip`: seconds of a packet there and back."""
    address, port = where
    not_ready = Outcome(*answer.not_ready) if answer.not_ready else None
    if not_ready and answer.unhealthy:
        not_ready = replace(not_ready, status=HostError.status, program=False, cause=UNHEALTHY)
    return NodeReport(
        rank,
        **{name: getattr(answer, name) for name in _SAME},
        address=address,
        clock=answer.clock - clock,
        not_ready=not_ready,
        interface=Interface(*answer.interface) if answer.interface else None,
        round_trip=trip,
        ssh_port=port,
    )
