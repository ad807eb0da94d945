"""Ray: its head on worker-0, the others join it, and the program runs on worker-0 once all have
joined.

Sources: Ray's documentation, "Ray Core CLI" (ray start, ray symmetric-run), "Configuring Ray"
(ports) and "Ray token authentication"; Ray 2.60.
"""

from __future__ import annotations

from entrypoint.base.model import (
    EnvVar,
    EnvVars,
    File,
    Launch,
    LaunchPort,
    LaunchRanks,
    Program,
    Topology,
    usual,
)
from entrypoint.base.tables import table
from entrypoint.launchers._common import (
    endpoint,
    file,
    master,
    problem,
    refuse,
    refuse_env,
    refuse_options,
    wait,
    with_python,
)
from entrypoint.spec import JobSpec

_TOKEN = "token"  # the name of the file in system/keys.py
# Servers of every node, in the order of their ports, which follow that of the head.
_SERVERS = (
    "node-manager-port",
    "object-manager-port",
    "runtime-env-agent-port",
    "dashboard-agent-grpc-port",
    "dashboard-agent-listen-port",
    "metrics-export-port",
)
# Options that the launcher sets, and the sources of their values.
_SETTLED = table("""
    head            | hosts
    address         | hosts and port
    port            | port
    node_ip_address | hosts, or network.interface
    num_cpus        | slots
    block           | nothing: Ray stays as long as the job
    include_dashboard dashboard_host dashboard_port | ray.dashboard
""")
_SETTLED |= {name.replace("-", "_"): "port" for name in _SERVERS}
_DASHBOARD = 8265
_PORT = 6379
_LAST = 65535 - len(_SERVERS)


def plan(spec: JobSpec, topology: Topology) -> Launch:
    """Return ray_node.py on every node: `ray start`, and on worker-0 the program, whose end is the
    job's.

    Raises SpecError if launcher_args has an option that the launcher sets, env the address of
    another cluster, or if the six ports after `port` could not be servers'.
    """
    refuse_options(spec, _SETTLED)
    first = spec.port or _PORT
    if not 1024 <= first <= _LAST:
        summary = f"EP100 a whole number from 1024 to {_LAST} is needed"
        refuse([problem(spec, "port", summary, f"{first}", "Ray's servers have the six after it")])
    refuse_env(spec, {"RAY_ADDRESS": "launcher: plain, where a cluster is there already"})
    has_peers = topology.has_peers
    interface = topology.report.interface
    command = with_python(spec.command)
    address = endpoint(master(topology), first)
    own_address = interface.address if interface else topology.this.where
    script = file("ray/ray_node.py")
    values = (
        str(len(topology.nodes)),
        str(wait(spec)),
        address,
        own_address if has_peers else "127.0.0.1",
    )
    options = _options(spec, topology, first, address)
    argv = ("python", f"{topology.run_dir}/{script.name}", *values, *options, "--", *command)
    token = File(_TOKEN, "", "this job's keys", secret=True)
    return Launch(
        (Program(argv, _settings(spec, topology, address)),),
        files=(script, token) if has_peers else (script,),
        needs_roll_call=has_peers,  # a worker's Ray never ends on its own
        # Ray gives each task the threads of the CPUs that it asks for, and counts those of a quota.
        ranks=LaunchRanks(processes=0),
        awaited=(0,),
        forwards=True,
        takes_args=True,
        names_nodes=True,
        port=_port(spec, topology, first) if has_peers else None,
    )


def _port(spec: JobSpec, topology: Topology, first: int) -> LaunchPort:
    """Return the ports of Ray's servers on this node."""
    servers = tuple(range(1, 1 + len(_SERVERS)))
    return LaunchPort(
        first,
        span=len(_SERVERS) + 2,
        here=(0, *servers) if topology.is_leader else servers,
        # Ray fails if a dashboard that is asked for cannot have its port.
        also=(_DASHBOARD,) if topology.is_leader and spec.ray.dashboard == "local" else (),
        everywhere=True,
    )


def _options(spec: JobSpec, topology: Topology, first: int, address: str) -> tuple[str, ...]:
    """Return the options of this node's `ray start`."""
    ports = tuple(f"--{name}={port}" for port, name in enumerate(_SERVERS, start=first + 1))
    # Ray counts cores and cards itself; slots that were counted from cards are no cores.
    cores = (f"--num-cpus={topology.this.slots}",) if spec.slots_of(topology.me) is not None else ()
    common = (*ports, *cores, *spec.launcher_args)
    if not topology.is_leader:
        return (f"--address={address}", *common)
    is_served = spec.ray.dashboard == "local"
    # the last port of the range that the roll call has chosen
    is_chosen = spec.source("port").origin == "the roll call"
    dashboard_port = first + len(_SERVERS) + 1 if is_chosen else _DASHBOARD
    dashboard = (f"--include-dashboard={str(is_served).lower()}", "--dashboard-host=127.0.0.1")
    return (
        "--head",
        f"--port={first}",
        *dashboard,
        f"--dashboard-port={dashboard_port}",
        *common,
    )


def _settings(spec: JobSpec, topology: Topology, address: str) -> EnvVars:
    """Return the variables for Ray and its programs."""
    origin = f"{topology.origin('hosts')} and {spec.source('port')}"
    # Without a token anyone who reaches Ray's ports may run programs here. Ray before 2.52 has
    # none.
    token = usual("RAY_AUTH_TOKEN_PATH", f"{topology.run_dir}/{_TOKEN}", "this job's keys")
    return (
        EnvVar("RAY_ADDRESS", address, origin),
        usual("RAY_AUTH_MODE", "token", "launcher ray"),
        *((token,) if topology.has_peers else ()),
        # SIGTERM to `ray start` comes after the program's end, when nothing has to be drained.
        usual("RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S", "0", "launcher ray"),
        usual("RAY_USAGE_STATS_ENABLED", "0", "launcher ray"),
    )
