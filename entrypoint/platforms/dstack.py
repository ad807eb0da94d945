"""dstack: tasks on clouds, Kubernetes and one's own machines. Their nodes know each other by IP addresses.

Sources: dstack's documentation, "Environment variables" and "Distributed tasks"; its runner for what it leaves empty:
DSTACK_NODES_IPS has an empty line for a node whose address it does not know. Line i is node i, and the first one is
DSTACK_MASTER_NODE_IP.
"""

from __future__ import annotations

from entrypoint.interfaces import ip
from entrypoint.model import Facts, Site
from entrypoint.platforms import _hosts
from entrypoint.values import replace


def site(facts: Facts) -> Site:
    """The nodes' addresses, this node's rank and its GPUs, as dstack's variables give them.

    Raises ConfigError when a variable is not the number it has to be.
    """
    found = _hosts.site(
        "dstack",
        facts,
        hosts="DSTACK_NODES_IPS",
        count="DSTACK_NODES_NUM",
        index="DSTACK_NODE_RANK",
        slots="DSTACK_GPUS_PER_NODE",
        name="DSTACK_RUN_NAME",
    )
    master = facts.env.get("DSTACK_MASTER_NODE_IP", "").strip()
    if not (found.hosts and master) or _same(found.hosts[0], master):
        return found
    other = (
        "the platform names another master than the first host",
        f"DSTACK_NODES_IPS begins with {found.hosts[0][:60]}, DSTACK_MASTER_NODE_IP is {master[:60]}",
        "set ENTRYPOINT_HOSTS, the master first",
    )
    return replace(found, hosts=(), unknown={**found.unknown, "hosts": other})


def _same(one: str, other: str) -> bool:
    return one == other or (ip(one) is not None and ip(one) == ip(other))  # ::1 has many spellings
