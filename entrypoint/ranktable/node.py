"""This node and its rank table: where the table lies, which part of it is ours, and whether our devices agree."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from entrypoint.errors import ConfigError
from entrypoint.interfaces import ip
from entrypoint.model import Facts
from entrypoint.ranktable.table import RankTable, Server
from entrypoint.text import count, some

_FOLDER = "/user/config"  # where ModelArts puts it (develop-modelarts-1416)
_FILE = "jobstart_hccl.json"

# What names this node, the surest first: pods, then machines, then what may be either. MA_* are ModelArts' (its boot
# tool compares MA_CURRENT_INSTANCE_NAME and MA_CURRENT_HOST_IP), XDL_IP is MindCluster's, the others are customary.
_NAMES = ("MA_CURRENT_INSTANCE_NAME", "POD_NAME", "MA_CURRENT_HOST_IP", "XDL_IP", "HOST_IP", "MA_CURRENT_IP", "POD_IP")


def path_from(env: Mapping[str, str], is_dir: Callable[[str], bool]) -> str:
    """The path of the rank table file: RANK_TABLE_FILE_V_1_0, else RANK_TABLE_FILE, else ModelArts' own place.

    A directory means the jobstart_hccl.json in it. Ask anew at each look: a directory may be mounted late.
    """
    if ready := env.get("RANK_TABLE_FILE_V_1_0"):
        return ready
    given = env.get("RANK_TABLE_FILE") or _FOLDER + "/"
    return f"{given.rstrip('/')}/{_FILE}" if given.endswith("/") or is_dir(given) else given


def names(facts: Facts) -> dict[str, str]:
    """What this node may be called in a rank table, by the variable that says so; the surest first."""
    found = {name: facts.env[name] for name in _NAMES if facts.env.get(name)}
    return {**found, "host name": facts.hostname} if facts.hostname else found


def nodes(table: RankTable) -> tuple[Server, ...]:
    """What one node each has: a pod's devices where the table names pods, else a server's. In rank order."""
    found: dict[tuple[str, str], Server] = {}
    for server, card in table.cards:
        key = (server.server_id, card.pod)
        devices = found[key].devices if key in found else ()
        found[key] = Server(server.server_id, (*devices, card), server.more)
    return tuple(found.values())


def own(table: RankTable, called: Mapping[str, str]) -> Server:
    """The devices of the node that is `called` so (see `names`), with `find`'s rules and errors.

    The only server of a table that names no pods needs no name, as in ModelArts' boot tool: a container may not know
    its machine's address.
    """
    there = nodes(table)
    return there[0] if len(there) == 1 and not there[0].pods else find(table, called)


def find(table: RankTable, called: Mapping[str, str]) -> Server:
    """The node that has one of these names; of several names the first that is one node's decides.

    Whole names and whole first labels count, so worker-1 is not worker-10; addresses are compared as addresses.
    Raises ConfigError when no name is one node's.
    """
    there = nodes(table)
    several = ""
    for label, name in called.items():
        found = [server for server in there if any(_same(name, known) for known in _known(server))]
        if len(found) == 1:
            return found[0]
        if found and not several:
            several = f"{label}={name} is said of {len(found)} nodes; "
    looked_for = ", ".join(f"{label}={name}" for label, name in called.items()) or "nothing"
    every = [" ".join((*server.pods, server.server_id)) for server in there]
    raise ConfigError(
        f"EP702 which node of rank table {table.where} is this one?",
        f"{several}looked for {looked_for} among {some(every, 8)}",
        "name it as the table does: its pod in POD_NAME, or its server in HOST_IP",
    )


def logical_ids(server: Server, cards: Sequence[int]) -> tuple[tuple[int, ...], str]:
    """ASCEND_DEVICE_ID of each of the node's devices: its position among the container's `cards`, from 0.

    `cards` are N of each /dev/davinciN. In the table's order where the two are numbered differently. And what is odd
    between the two, or "". Raises ConfigError when the table gives this node more devices than the container has.
    """
    ids = [card.device_id for card in server.devices]
    seen = f"the table has {_numbers(ids)}, the container {_numbers(cards)}"
    if len(ids) > len(cards):
        raise ConfigError(
            f"EP703 the rank table gives this node {count(len(ids), 'device')} and the container has {len(cards)}",
            seen,
            "give the container its devices, or fix ASCEND_RT_VISIBLE_DEVICES",
        )
    if not set(ids) <= set(cards):
        odd = (
            f"EP703 the rank table's devices are numbered otherwise than the container's, taking them in order | {seen}"
        )
        return tuple(range(len(ids))), odd
    idle = len(cards) - len(ids)
    odd = f"EP703 {idle} devices of this container are not in the rank table and stay idle | {seen}" if idle else ""
    return tuple(list(cards).index(device_id) for device_id in ids), odd


def _known(server: Server) -> tuple[str, ...]:
    addresses = (server.more.get("host_ip", ""), server.more.get("container_ip", ""))
    return tuple(name for name in (*server.pods, server.server_id, *addresses) if name)


def _same(one: str, other: str) -> bool:
    addresses = [ip(name) for name in (one, other)]
    if any(addresses):
        return addresses[0] == addresses[1]
    one, other = one.lower(), other.lower()
    return one == other or one.partition(".")[0] == other or one == other.partition(".")[0]


def _numbers(numbers: Sequence[int]) -> str:
    return ",".join(map(str, numbers)) or "none"
