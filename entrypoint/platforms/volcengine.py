"""Volcengine (BytePlus) machine learning platform: custom tasks.

Source: its documentation, "List of common environment variables" (MLP_*); public job scripts for MLP_GPU. Hosts of a
role are IP addresses, and MLP_ROLE_INDEX counts among those of one role.

Not promised, and derived here: nodes are numbered chief first, then workers, then parameter servers. Chief and workers
are workers to us, and parameter servers want the launcher tensorflow; to give TensorFlow a chief, set tensorflow.chief.
The other roles (SERVER and SCHEDULER of MXNet and BytePS, EVALUATOR) are in no launcher's job.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from entrypoint.model import Facts, Site
from entrypoint.platforms._hosts import Unknown, cards, counted, job, names, placed
from entrypoint.platforms._listeners import is_port
from entrypoint.platforms._numbers import number
from entrypoint.text import count, some

_ROLES = {"CHIEF": "worker", "WORKER": "worker", "PS": "ps"}  # in the order of node ranks -> the task of each
_OTHERS = ("SERVER", "SCHEDULER", "EVALUATOR")
_DO = "set ENTRYPOINT_NODE_RANK (0 for worker-0)"


def site(facts: Facts) -> Site:
    """The hosts of all roles, this node's place among them and its GPUs, as the platform's variables give them.

    Raises ConfigError when a variable is not the number it has to be.
    """
    env = facts.env
    origins: dict[str, str] = {}
    unknown: Unknown = {}
    role = env.get("MLP_ROLE", "").strip().upper()
    roles = {name: _hosts(env, name, unknown) for name in _ROLES}
    _check_roles(env, roles, unknown)
    if "hosts" in unknown:
        roles = {}
    hosts = tuple(host for listed in roles.values() for host in listed)
    if hosts:
        origins["hosts"] = ", ".join(_list(env, name) for name, listed in roles.items() if listed)
    index = _index(env, role, roles, origins, unknown)
    served = bool(roles.get("PS"))
    if served:
        origins["tensorflow.ps"] = origins["launcher"] = _list(env, "PS")
    return Site(
        platform="volcengine",
        hosts=hosts,
        index=index,
        slots=cards(env, (f"MLP_{role}_GPU", "MLP_GPU"), origins),
        job=job(env, "MLP_TASK_ID", origins),
        hostname=facts.hostname,
        tasks=tuple(_ROLES[name] for name, listed in roles.items() for _ in listed) if served else (),
        ports=tuple(_ports(env, roles, unknown)) if served else (),
        launcher="tensorflow" if served else None,
        origins=origins,
        unknown=unknown,
    )


def _list(env: Mapping[str, str], role: str) -> str:
    """The variable, or variables, with the hosts of a role."""
    whole = f"MLP_{role}_ALL_HOSTS"
    return whole if env.get(whole) or not env.get(f"MLP_{role}_0_HOST") else f"MLP_{role}_*_HOST"


def _hosts(env: Mapping[str, str], role: str, unknown: Unknown) -> tuple[str, ...]:
    """The nodes of a role, in the order of their indices."""
    counter, where = f"MLP_{role}_NUM", _list(env, role)
    nodes = number(env, counter)
    each = [env.get(f"MLP_{role}_{index}_HOST", "") for index in range(nodes or 1)]
    listed = names(env.get(where, "")) or names(",".join(each))
    first = names(each[0])[:1]
    if first and listed[:1] != first:
        seen = f"{where} begins with {listed[0][:60]}, MLP_{role}_0_HOST is {first[0][:60]}"
        unknown["hosts"] = (f"the platform names two first hosts of the role {role}", seen, "set ENTRYPOINT_HOSTS")
        return ()
    return counted(listed, where, nodes, counter, unknown) if listed or nodes else ()


def _check_roles(env: Mapping[str, str], roles: Mapping[str, tuple[str, ...]], unknown: Unknown) -> None:
    """Note what makes these nodes no job of any launcher's."""
    for role in _OTHERS:
        if number(env, f"MLP_{role}_NUM"):
            seen = f"MLP_{role}_NUM is {env[f'MLP_{role}_NUM'].strip()}"
            do = "leave the role out, or set ENTRYPOINT_HOSTS and ENTRYPOINT_NODE_RANK on the nodes that train"
            unknown["hosts"] = (f"no launcher starts a {role}", seen, do)
    if roles["PS"] and not (roles["CHIEF"] or roles["WORKER"]):
        seen = f"{_list(env, 'PS')} names {len(roles['PS'])}, MLP_CHIEF_ALL_HOSTS and MLP_WORKER_ALL_HOSTS are unset"
        unknown.setdefault("hosts", ("parameter servers are named, and no worker", seen, "set ENTRYPOINT_HOSTS"))


def _ports(env: Mapping[str, str], roles: Mapping[str, tuple[str, ...]], unknown: Unknown) -> Iterable[int]:
    """Where the program of each node listens; nothing where one of them has no port."""
    variables = [f"MLP_{role}_{index}_PORT" for role, listed in roles.items() for index in range(len(listed))]
    given = {name: env.get(name, "").strip() for name in variables}
    wrong = [f"{name} is {port[:60]!r}" for name, port in given.items() if port and not is_port(port)]
    if wrong:
        do = "fix it, or set ENTRYPOINT_HOSTS"
        unknown["hosts"] = ("a port is a number from 1 to 65535", some(wrong, 4), do)
    return map(int, given.values()) if all(given.values()) and not wrong else ()


def _index(
    env: Mapping[str, str],
    role: str,
    roles: Mapping[str, tuple[str, ...]],
    origins: dict[str, str],
    unknown: Unknown,
) -> int | None:
    """This node's place among the nodes of all roles; the variable counts within its own."""
    index = number(env, "MLP_ROLE_INDEX")
    if role not in _ROLES:
        seen = f"MLP_ROLE is {role[:60]!r}"
        unknown["node_rank"] = ("this node has no role that a launcher starts", seen, _DO)
        return None
    if "hosts" in unknown:
        seen = f"MLP_ROLE is {role}, MLP_ROLE_INDEX is {env.get('MLP_ROLE_INDEX', '')!r}"
        unknown["node_rank"] = ("the nodes before this one cannot be counted", seen, _DO)
        return None
    own, hosts = roles[role], tuple(host for listed in roles.values() for host in listed)
    if hosts and index is not None and index >= len(own):
        unknown["node_rank"] = (
            f"MLP_ROLE_INDEX is beyond the last {role}",
            f"MLP_ROLE_INDEX is {index}, {_list(env, role)} names {count(len(own), 'host')}",
            f"see that {_list(env, role)} and MLP_ROLE_INDEX are of one job, or set ENTRYPOINT_NODE_RANK",
        )
        return None
    if index is not None:
        index += sum(len(roles[name]) for name in list(_ROLES)[: list(_ROLES).index(role)])
    return placed(index, "MLP_ROLE_INDEX", hosts, _list(env, role), origins, unknown)
