"""The settings of each node of `entrypoint local`: its own address on this machine, a name, and
ports.

Nodes on one machine share resources that containers have on their own. So these settings replace
those of the spec, flags and variables: hosts, node_rank, run_dir, secret_file, platform,
network.interface, the launcher's port, and the address of the metrics.
"""

from __future__ import annotations

from collections.abc import Mapping

from entrypoint.base.errors import UsageError
from entrypoint.base.text import digits
from entrypoint.spec import (
    HostEntry,
    JobSpec,
    Override,
    fields,
    for_launcher,
    names_of,
)

MOST = 64  # nodes: each is a Python and an sshd
PORTS = 10  # consecutive
_PORTS = {"ssh.port": 0, "port": 2}  # a parameter server's are one more, Ray has seven
OWN = (
    "hosts", "node_rank", "run_dir", "secret_file", "platform", "network.interface",
    "metrics.address", *_PORTS,
)  # fmt: skip
"""The fields that this command sets."""
_SECRET = "ENTRYPOINT_SECRET"


def node_count(spec: JobSpec, requested: str | None) -> int:
    """Return the number of nodes: as requested, or the number of the spec's hosts. Raises
    UsageError."""
    text = str(len(spec.hosts)) if requested is None else requested
    if requested is None and not spec.hosts:
        raise UsageError("EP020 number of nodes unknown", "the spec has no hosts", "add --nodes 2")
    number = digits(text)
    if number is None or not 1 <= number <= MOST:
        hint = "write --nodes 3" if number is None else "one machine cannot run more"
        raise UsageError(f"EP020 --nodes is a number from 1 to {MOST}", text, hint)
    return number


def refuse(overrides: Mapping[str, Override]) -> None:
    """Refuse flags for fields that this command sets itself. Raises UsageError."""
    if refused := [flag.where for path, flag in overrides.items() if path in OWN]:
        raise UsageError(
            "EP020 `entrypoint local` sets this itself", ", ".join(refused), "leave it out"
        )


def unheard() -> set[str]:
    """Return all variables of the fields that this command sets, except hosts, which gives the
    number of nodes."""
    return {_SECRET, *(name for path in OWN if path != "hosts" for name in names_of(path))}


def address(node: int) -> str:
    """Return the address of a node: 127.0.0.2 for the first, since other programs use 127.0.0.1."""
    return f"127.0.0.{node + 2}"


def settings(spec: JobSpec, nodes: int, node: int, folder: str, port: int) -> dict[str, str]:
    """Return our variables for one node.

    `folder` is the run's, with the secret in it; `port` is the first of `PORTS` free ones.
    """
    hosts = [_host(spec, host) for host in range(nodes)]
    values = {
        "hosts": ",".join(hosts),
        "node_rank": str(node),
        "run_dir": f"{folder}/worker-{node}",
        "secret_file": f"{folder}/secret",
        "platform": "local",
        "network.interface": "auto",
        "metrics.address": address(node),  # so that `metrics.port` is free on each node
        **{path: str(port + offset) for path, offset in _PORTS.items()},
    }
    if spec.log_dir is None:
        values["log_dir"] = f"{folder}-log"  # logs outlive the run's folder
    of_mpi = for_launcher(spec, spec.launcher or "mpirun")
    if "tcp_if_" not in f"{of_mpi.option('OPENMPI_MCA_ARGS')} {of_mpi.launcher_args}":
        # otherwise MPI, NCCL and Gloo would choose an interface between machines
        values["mpi.interface"] = "lo"
    variables = {field.path: field.env for field in fields()}
    return {variables[path]: value for path, value in values.items()}


def environment(
    env: Mapping[str, str], variables: Mapping[str, str], node: int, folder: str
) -> dict[str, str]:
    """Return a node's complete environment: that of this command, without `unheard()`, and the
    node's variables."""
    replaced = {
        name for field in fields() if field.env in variables for name in names_of(field.path)
    }
    kept = {
        name: value for name, value in env.items() if name not in {*replaced, "ENTRYPOINT_SPEC"}
    }
    # A container's /tmp is removed with it. And Open MPI names a rank's memory by the machine and
    # the rank's number on its node, so two nodes here would share it.
    temporary = f"{folder}/tmp-{node}"
    shared = {f"OMPI_MCA_btl_{kind}_backing_directory": temporary for kind in ("vader", "sm")}
    # Output is shown at once, also if it is no terminal.
    return {
        "PYTHONUNBUFFERED": "1",
        **shared,
        **kept,
        **variables,
        "TMPDIR": temporary,
        "HOSTNAME": f"worker-{node}",
    }


def share(
    variable: str, env: Mapping[str, str], cards: int, nodes: int, node: int
) -> dict[str, str]:
    """Return the variable that limits a node to its share of the `cards` that a process on this
    machine can use.

    Empty if there are fewer cards than nodes: then all nodes use all cards.
    """
    size = cards // nodes
    if nodes == 1 or not (size and variable):
        return {}
    visible = env[variable].split(",") if env.get(variable) else list(map(str, range(cards)))
    return {variable: ",".join(card.strip() for card in visible[node * size : (node + 1) * size])}


def flags(overrides: Mapping[str, Override]) -> list[str]:
    """Return the words of `entrypoint run` for what flags set, and for the program."""
    words = []
    for path, flag in overrides.items():
        values = flag.value if isinstance(flag.value, list) else [flag.value]
        if path == "command":
            words += [flag.where, *values]
        else:
            words += [f"{flag.where}={value}" for value in values]
    return words


def _host(spec: JobSpec, host: int) -> str:
    count = HostEntry.of(spec.hosts[host]).slots if host < len(spec.hosts) else None
    slots = f":{count}" if count is not None else ""
    return f"worker-{host}{slots}={address(host)}"
