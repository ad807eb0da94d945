"""This node and its rank table: the path of the table, this node's part of it, and its logical
devices."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from entrypoint.base.errors import ConfigError
from entrypoint.base.interfaces import ip
from entrypoint.base.model import Facts
from entrypoint.base.text import count, some
from entrypoint.ranktable.table import RankTable, Server

_FOLDER = "/user/config"  # of ModelArts (develop-modelarts-1416)
_FILE = "jobstart_hccl.json"

# Variables with this node's name, the most reliable first: of pods, of machines, of either. MA_*
# are ModelArts' (its boot tool compares MA_CURRENT_INSTANCE_NAME and MA_CURRENT_HOST_IP), XDL_IP is
# MindCluster's, the others are common.
_NAMES = (
    "MA_CURRENT_INSTANCE_NAME",
    "POD_NAME",
    "MA_CURRENT_HOST_IP",
    "XDL_IP",
    "HOST_IP",
    "MA_CURRENT_IP",
    "POD_IP",
)


def path_from(env: Mapping[str, str], is_dir: Callable[[str], bool]) -> str:
    """Return the path of the rank table file: RANK_TABLE_FILE_V_1_0, else RANK_TABLE_FILE, else
    ModelArts' own path.

    A directory means the jobstart_hccl.json in it. Call it before each read: a directory may be
    mounted late.
    """
    if complete := env.get("RANK_TABLE_FILE_V_1_0"):
        return complete
    path = env.get("RANK_TABLE_FILE") or _FOLDER + "/"
    return f"{path.rstrip('/')}/{_FILE}" if path.endswith("/") or is_dir(path) else path


def names(facts: Facts) -> dict[str, str]:
    """Return the names that this node may have in a rank table, by their variables; the most
    reliable first."""
    by_variable = {name: facts.env[name] for name in _NAMES if facts.env.get(name)}
    return {**by_variable, "host name": facts.hostname} if facts.hostname else by_variable


def nodes(table: RankTable) -> tuple[Server, ...]:
    """Return the devices of each node, those of a pod if the table names pods, else of a server, in
    rank order."""
    servers: dict[tuple[str, str], Server] = {}
    for server, card in table.cards:
        key = (server.server_id, card.pod)
        devices = servers[key].devices if key in servers else ()
        servers[key] = Server(server.server_id, (*devices, card), server.more)
    return tuple(servers.values())


def own(table: RankTable, node_names: Mapping[str, str]) -> Server:
    """Return the devices of the node with one of these names (see `names`), with `find`'s rules and
    errors.

    The only server of a table without pods needs no name, as in ModelArts' boot tool: a container
    may not know its machine's address.
    """
    servers = nodes(table)
    return servers[0] if len(servers) == 1 and not servers[0].pods else find(table, node_names)


def find(table: RankTable, node_names: Mapping[str, str]) -> Server:
    """Return the node that has one of these names; the first name that belongs to one node decides.

    Whole names and whole first labels are compared, so worker-1 is not worker-10; addresses are
    compared as addresses. Raises ConfigError if no name belongs to one node.
    """
    servers = nodes(table)
    ambiguous = ""
    for label, name in node_names.items():
        matches = [
            server
            for server in servers
            if any(_same(name, other) for other in _server_names(server))
        ]
        if len(matches) == 1:
            return matches[0]
        if matches and not ambiguous:
            ambiguous = f"{label}={name} is said of {len(matches)} nodes; "
    searched = ", ".join(f"{label}={name}" for label, name in node_names.items()) or "nothing"
    candidates = [" ".join((*server.pods, server.server_id)) for server in servers]
    raise ConfigError(
        f"EP702 this node is not identified in rank table {table.where}",
        f"{ambiguous}looked for {searched} among {some(candidates, 8)}",
        "name it as the table does: its pod in POD_NAME, or its server in HOST_IP",
    )


def logical_ids(server: Server, cards: Sequence[int]) -> tuple[tuple[int, ...], str]:
    """Return ASCEND_DEVICE_ID of each of the node's devices: its position among the container's
    `cards`, from 0.

    `cards` are N of each /dev/davinciN. If table and container number them differently, the table's
    order is used. Also returns a warning about differences, or "". Raises ConfigError if the table
    has more devices for this node.
    """
    ids = [card.device_id for card in server.devices]
    detail = f"the table has {_numbers(ids)}, the container {_numbers(cards)}"
    if len(ids) > len(cards):
        raise ConfigError(
            f"EP703 the rank table gives this node {count(len(ids), 'device')} and the container"
            f" has {len(cards)}",
            detail,
            "give the container its devices, or fix ASCEND_RT_VISIBLE_DEVICES",
        )
    if not set(ids) <= set(cards):
        summary = (
            "EP703 the rank table's devices are numbered otherwise than the container's, taking"
            " them in order"
        )
        return tuple(range(len(ids))), f"{summary} | {detail}"
    idle = len(cards) - len(ids)
    summary = f"EP703 {idle} devices of this container are not in the rank table and stay idle"
    warning = f"{summary} | {detail}" if idle else ""
    return tuple(list(cards).index(device_id) for device_id in ids), warning


def _server_names(server: Server) -> tuple[str, ...]:
    addresses = (server.more.get("host_ip", ""), server.more.get("container_ip", ""))
    return tuple(name for name in (*server.pods, server.server_id, *addresses) if name)


def _same(one: str, other: str) -> bool:
    addresses = [ip(name) for name in (one, other)]
    if any(addresses):
        return addresses[0] == addresses[1]
    one = one.lower()
    other = other.lower()
    return one == other or one.partition(".")[0] == other or one == other.partition(".")[0]


def _numbers(numbers: Sequence[int]) -> str:
    return ",".join(map(str, numbers)) or "none"
