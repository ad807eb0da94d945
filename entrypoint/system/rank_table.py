"""The rank table that the platform writes while the containers start, and this node's part of
it."""

from __future__ import annotations

import os

from entrypoint import ranktable
from entrypoint.base.errors import ConfigError
from entrypoint.base.model import Cards, Facts, Topology
from entrypoint.base.text import Log
from entrypoint.system.files import read

_NO_WRITER = "where nobody writes one, set ENTRYPOINT_ASCEND_RANK_TABLE=none"


def look(facts: Facts, topology: Topology, log: Log) -> Cards:
    """Return this node's cards from the table now. Raises NotReady while it is incomplete,
    otherwise as `wait` does."""
    path = ranktable.path_from(facts.env, os.path.isdir)
    table = ranktable.parse(_read(path), path)
    nodes = ranktable.nodes(table)
    if len(nodes) != len(topology.nodes):
        raise ConfigError(
            f"EP704 rank table {table.where} belongs to another job",
            f"it has {len(nodes)} nodes, this job {len(topology.nodes)}",
            "make sure that the platform has written it again, or fix ENTRYPOINT_HOSTS",
        )
    # A table of form v2.0 names no nodes: theirs are the ranks in the order of the hosts.
    own = nodes[topology.me] if table.text else ranktable.own(table, ranktable.names(facts))
    devices, warning = ranktable.logical_ids(own, topology.device.cards)
    if warning:
        log(warning)
    return Cards(
        table=ranktable.for_hccl(table),
        ranks=tuple(card.rank_id for card in own.devices),
        devices=devices,
        size=table.rank_size,
    )


def _read(path: str) -> str:
    try:
        return read(path, 1.0).decode("utf-8", "replace")
    except FileNotFoundError:
        raise ranktable.NotReady(path, f"it is not there yet; {_NO_WRITER}") from None
    except OSError as error:
        raise ranktable.NotReady(path, (error.strerror or str(error)).lower()) from None
