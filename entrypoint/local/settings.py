"""What each node of `entrypoint local` is started with: an address of its own on this machine, a name, and ports.

Nodes that share a machine also share what containers have of their own. So these settings replace what the spec, flags
and variables say: hosts, node_rank, run_dir, secret_file, platform and network.interface, and each engine's port.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from entrypoint.errors import UsageError
from entrypoint.spec import HostEntry, JobSpec, fields

MOST = 64  # nodes: each is a Python and an sshd
PORTS = 14  # that follow each other
HOSTS = "hosts"  # the files in the run's folder with the names, where they resolve late: hosts-0, hosts-1, ...
_PORTS = {
    "ssh.port": 0,
    "torch.port": 1,
    "jax.port": 2,
    "mindspore.port": 3,
    "tensorflow.port": 4,
    "ray.port": 6,
}
OWN = ("hosts", "node_rank", "run_dir", "secret_file", "platform", "network.interface", *_PORTS)
"""The fields that this command settles."""
_SECRET = "ENTRYPOINT_SECRET"


def node_count(spec: JobSpec, asked: int | None) -> int:
    """How many nodes there are: as asked, else as many as the spec has hosts. Raises UsageError."""
    nodes = asked if asked is not None else len(spec.hosts)
    if asked is None and not nodes:
        raise UsageError("EP020 how many nodes should there be?", "the spec has no hosts", "add --nodes 2")
    if not 1 <= nodes <= MOST:
        raise UsageError(f"EP020 --nodes is a number from 1 to {MOST}", str(nodes), "one machine holds no more")
    return nodes


def refuse(given: Iterable[str]) -> None:
    """Refuse flags for what this command settles itself, by the names of their fields. Raises UsageError."""
    taken = {field.path: field.flags[-1] for field in fields() if field.path in OWN and field.flags}
    if wrong := [taken[path] for path in given if path in taken]:
        raise UsageError("EP020 `entrypoint local` settles this itself", ", ".join(wrong), "leave it out")


def unheard() -> set[str]:
    """Variables that say what is ours to say, under any name. Those for hosts still tell how many there are."""
    own = {path for path in OWN if path != "hosts"}
    return {_SECRET, *(name for field in fields() if field.path in own for name in (field.env, *field.aliases))}


def address(node: int) -> str:
    """Where a node listens: 127.0.0.2 for the first, since all else on this machine has 127.0.0.1."""
    return f"127.0.0.{node + 2}"


def settings(spec: JobSpec, nodes: int, node: int, folder: str, port: int, by_name: bool) -> dict[str, str]:
    """Our variables for one node.

    `folder` is the run's, with the secret in it; `port` is the first of `PORTS` free ones. `by_name`: nodes have names
    alone, which they have to ask for.
    """
    hosts = [_host(spec, each, node, by_name) for each in range(nodes)]
    values = {
        "hosts": ",".join(hosts),
        "node_rank": str(node),
        "run_dir": f"{folder}/worker-{node}",
        "secret_file": f"{folder}/secret",
        "platform": "local",
        "network.interface": "auto",
        **{path: str(port + offset) for path, offset in _PORTS.items()},
    }
    if spec.log_dir is None:
        values["log_dir"] = f"{folder}-log"  # what it is to hold outlives the run's folder
    options = f"{spec.mpi.mca_args or ''} {spec.mpi.extra_args or ''}"
    if "tcp_if_" not in options:
        values["mpi.interface"] = "lo"  # MPI, NCCL and Gloo would look for the way between machines
    variables = {field.path: field.env for field in fields()}
    return {variables[path]: value for path, value in values.items()}


def environment(own: Mapping[str, str], ours: Mapping[str, str], node: int, folder: str) -> dict[str, str]:
    """A node's whole environment, from this command's own, without `unheard()`."""
    taken = {name for field in fields() if field.env in ours for name in (field.env, *field.aliases)}
    kept = {name: value for name, value in own.items() if name not in {*taken, "ENTRYPOINT_SPEC"}}
    # A container's /tmp goes with it. And Open MPI names a rank's memory by the machine and the rank's number on its
    # node: two nodes here would share it.
    temporary = f"{folder}/tmp-{node}"
    shared = {f"OMPI_MCA_btl_{kind}_backing_directory": temporary for kind in ("vader", "sm")}
    # What is printed is seen at once, also where the program's output is no terminal.
    return {"PYTHONUNBUFFERED": "1", **shared, **kept, **ours, "TMPDIR": temporary, "HOSTNAME": f"worker-{node}"}


def share(variable: str, own: Mapping[str, str], cards: int, nodes: int, node: int) -> dict[str, str]:
    """The variable by which a node sees its share of this machine's accelerators, of which a process sees `cards`.

    Nothing where there is none for each node: then all see all.
    """
    each = cards // nodes
    if nodes == 1 or not (each and variable):
        return {}
    seen = own[variable].split(",") if own.get(variable) else [str(number) for number in range(cards)]
    return {variable: ",".join(card.strip() for card in seen[node * each : (node + 1) * each])}


def with_names(env: Mapping[str, str], library: str, folder: str, node: int) -> dict[str, str]:
    """The environment in which a node, and all that it starts, looks names up in a file, and only then elsewhere."""
    preload = ":".join(filter(None, (env.get("LD_PRELOAD"), library)))
    # This network may know a worker-1 of its own; nobody knows a worker-1.invalid (RFC 6761).
    return {**env, "LD_PRELOAD": preload, "NSS_WRAPPER_HOSTS": f"{folder}/{HOSTS}-{node}", "LOCALDOMAIN": "invalid"}


def names(nodes: Iterable[int]) -> str:
    """These nodes' names and addresses, in the form of hosts(5).

    In both families, since libnss_wrapper writes no IPv4 address as IPv6 where a program asks for it, as torch does.
    """
    return "".join(f"{address(node)} worker-{node}\n::ffff:{address(node)} worker-{node}\n" for node in nodes)


def flags(given: Mapping[str, str | None], env: Sequence[str] | None) -> list[str]:
    """The flags of `entrypoint run` that say the same as these fields and --env."""
    names = {field.path: field.flags[-1] for field in fields() if field.flags}
    words = [f"{names[path]}={value}" for path, value in given.items() if value is not None]
    return [*words, *(f"--env={each}" for each in env or ())]


def _host(spec: JobSpec, host: int, me: int, by_name: bool) -> str:
    own = HostEntry.of(spec.hosts[host]).slots if host < len(spec.hosts) else None
    slots = f":{own}" if own is not None else ""
    if not by_name:
        return f"worker-{host}{slots}={address(host)}"
    # A node listens at its own address alone, as the others do at theirs, and finds it by its name.
    return f"worker-{host}{slots}" + (f"=worker-{host}" if host == me else "")
