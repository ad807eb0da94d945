"""Volcengine (BytePlus) machine learning platform: custom tasks.

Source: its documentation, "List of common environment variables" (MLP_*); public job scripts for
MLP_GPU. Hosts of a role are IP addresses, and MLP_ROLE_INDEX counts among those of one role.

Not documented, and derived here: nodes are numbered chief first, then workers, then parameter
servers. The chief counts as a worker, and parameter servers need the launcher tensorflow; to give
TensorFlow a chief, set tensorflow.chief. No launcher starts the other roles (SERVER and SCHEDULER
of MXNet and BytePS, EVALUATOR).
"""

from __future__ import annotations

from collections.abc import Mapping

from entrypoint.base.text import count, some
from entrypoint.platforms._clues import Clues, is_port, names

# in the order of node ranks -> the task of each
_ROLES = {
    "CHIEF": "worker",
    "WORKER": "worker",
    "PS": "ps",
}
_OTHERS = ("SERVER", "SCHEDULER", "EVALUATOR")
_Roles = Mapping[str, tuple[str, ...]]  # role -> its hosts
LAYER = 0
MARKS = ("MLP_ROLE",)
SECRET = "give ENTRYPOINT_SECRET in the task's Envs"
ROWS = """
`volcengine` | `MLP_ROLE` | `MLP_<ROLE>_ALL_HOSTS` | `MLP_ROLE_INDEX` | `MLP_<ROLE>_GPU`
"""


def read(clues: Clues) -> None:
    """Take the hosts of all roles, this node's place among them and its GPUs, from the platform's
    variables.

    Raises ConfigError if a variable is not the number it has to be.
    """
    role = clues.env.get("MLP_ROLE", "").strip().upper()
    roles = {name: _hosts(clues, name) for name in _ROLES}
    _check_roles(clues, roles)
    if "hosts" in clues.unknown:
        roles = {}
    lists = {name: _list(clues.env, name) for name, hosts in roles.items() if hosts}
    clues.take("hosts", sum(roles.values(), ()), ", ".join(lists.values()))
    _take_index(clues, role, roles)
    clues.take_slots(f"MLP_{role}_GPU", "MLP_GPU")
    clues.take_job("MLP_TASK_ID")
    if "PS" not in lists:
        return
    tasks = tuple(_ROLES[name] for name, hosts in roles.items() for _ in hosts)
    clues.take("launcher", "tensorflow", lists["PS"])
    clues.origins["tensorflow.ps"] = lists["PS"]
    clues.take("tasks", tasks)
    clues.take("ports", _ports(clues, roles))


def _list(env: Mapping[str, str], role: str) -> str:
    """Return the variable, or variables, with the hosts of a role."""
    whole = f"MLP_{role}_ALL_HOSTS"
    return whole if env.get(whole) or not env.get(f"MLP_{role}_0_HOST") else f"MLP_{role}_*_HOST"


def _hosts(clues: Clues, role: str) -> tuple[str, ...]:
    """Return the nodes of a role, in the order of their indices."""
    counter = f"MLP_{role}_NUM"
    variable = _list(clues.env, role)
    nodes = clues.number(counter) or 1
    entries = [clues.env.get(f"MLP_{role}_{index}_HOST", "") for index in range(nodes)]
    listed = names(clues.env.get(variable, "")) or names(",".join(entries))
    return clues.counted(listed, variable, counter)


def _check_roles(clues: Clues, roles: _Roles) -> None:
    """Note why no launcher can start these nodes."""
    for role in _OTHERS:
        if clues.number(f"MLP_{role}_NUM"):
            clues.no_hosts(
                f"no launcher starts a {role}",
                f"MLP_{role}_NUM is {clues.env[f'MLP_{role}_NUM'].strip()}",
                "leave the role out, or set ENTRYPOINT_HOSTS and ENTRYPOINT_NODE_RANK on the"
                " nodes that train",
            )
    if roles["PS"] and not (roles["CHIEF"] or roles["WORKER"]) and "hosts" not in clues.unknown:
        servers = f"{_list(clues.env, 'PS')} names {len(roles['PS'])}"
        clues.no_hosts(
            "parameter servers are named, and no worker",
            f"{servers}, MLP_CHIEF_ALL_HOSTS and MLP_WORKER_ALL_HOSTS are unset",
            "set ENTRYPOINT_HOSTS",
        )


def _ports(clues: Clues, roles: _Roles) -> tuple[int, ...]:
    """Return the ports of the nodes' programs; none if one of them has no port."""
    names = [
        f"MLP_{role}_{index}_PORT" for role, hosts in roles.items() for index in range(len(hosts))
    ]
    ports = {name: clues.env.get(name, "").strip() for name in names}
    invalid = [
        f"{name} is {port[:60]!r}" for name, port in ports.items() if port and not is_port(port)
    ]
    if invalid:
        clues.no_hosts(
            "a port is a number from 1 to 65535",
            some(invalid, 4),
            "fix it, or set ENTRYPOINT_HOSTS",
        )
    return tuple(map(int, ports.values())) if all(ports.values()) and not invalid else ()


def _take_index(clues: Clues, role: str, roles: _Roles) -> None:
    """Take this node's place among the nodes of all roles; the variable counts within its own."""
    name = "MLP_ROLE_INDEX"
    hint = "set ENTRYPOINT_NODE_RANK (0 for worker-0)"
    index = clues.number(name)
    if role not in _ROLES:
        clues.no_index(
            "this node has no role that a launcher starts", f"MLP_ROLE is {role[:60]!r}", hint
        )
    elif not roles:
        clues.no_index(
            "the nodes before this one cannot be counted",
            f"MLP_ROLE is {role}, MLP_ROLE_INDEX is {clues.env.get(name, '')!r}",
            hint,
        )
    elif clues.hosts and index is not None and index >= len(roles[role]):
        hosts = count(len(roles[role]), "host")
        clues.beyond(name, index, _list(clues.env, role), hosts, role)
    else:
        before = list(_ROLES)[: list(_ROLES).index(role)]
        clues.take_index(name, sum(len(roles[name]) for name in before))
