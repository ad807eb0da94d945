"""Waits for the rank table that the platform writes while the containers start."""

from __future__ import annotations

from entrypoint import ranktable
from entrypoint.base.model import Cards, Facts, Topology
from entrypoint.base.text import Log
from entrypoint.output.progress import Waiting
from entrypoint.system.rank_table import look
from entrypoint.system.threads import rest

# seconds between two reads: not every kind of mount sends an event when a file changes
_INTERVAL = 0.5


async def wait(facts: Facts, topology: Topology, limit: float, log: Log) -> Cards:
    """Return this node's cards, once the table is complete: it may be absent, empty, half-written
    or initializing.

    Raises NotReady after `limit` seconds; ConfigError and SpecError for a table that waiting cannot
    fix.
    """
    waiting = Waiting(log, limit)
    try:
        while True:
            try:
                return look(facts, topology, log)
            except ranktable.NotReady as error:
                if waiting.elapsed() >= limit:
                    raise
                waiting.update(f"rank table {error.where}", error.reason)
            await rest(_INTERVAL)
    finally:
        waiting.close()
