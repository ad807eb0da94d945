"""JAX: the program once for each slot, with variables for the coordinator, the number of processes
and its own number.

Sources: jax/_src/distributed.py of JAX 0.10.2, which reads JAX_COORDINATOR_ADDRESS and
JAX_LOCAL_DEVICE_IDS itself; Kubeflow Trainer's JAX runtime, for the names of the other two
variables.
"""

from __future__ import annotations

from entrypoint.base.errors import ConfigError
from entrypoint.base.model import EnvVar, EnvVars, Launch, LaunchRanks, Program, Topology, usual
from entrypoint.launchers._common import endpoint, master, meeting_port, refuse_env, with_python
from entrypoint.spec import JobSpec

_PORT = 6070
_SETTLED = {"JAX_NUM_PROCESSES": "hosts and slots", "JAX_PROCESS_ID": "hosts and slots"}


def plan(spec: JobSpec, topology: Topology) -> Launch:
    """Return one process for each slot, with its share of this node's cards; a single slot has all
    of them.

    Raises SpecError if the spec's `env` numbers the processes, ConfigError if cards cannot be
    shared evenly.
    """
    refuse_env(spec, _SETTLED)
    slots = topology.this.slots
    first = topology.first_rank
    size = topology.world_size
    hosts = topology.origin("hosts") if topology.has_peers else "the only node"
    address = endpoint(master(topology), spec.port or _PORT)
    coordinator = usual("JAX_COORDINATOR_ADDRESS", address, hosts)
    programs = tuple(
        Program(
            with_python(spec.command),
            env=(
                coordinator,
                EnvVar("JAX_NUM_PROCESSES", str(size), "hosts and slots"),
                EnvVar("JAX_PROCESS_ID", str(rank), "hosts and slots"),
                *_cards(topology, rank - first),
            ),
            label=f"rank {rank}" if slots > 1 else "",
            rank=rank,
        )
        for rank in range(first, first + slots)
    )
    return Launch(
        programs,
        ranks=LaunchRanks(count=size),
        port=meeting_port(spec, topology, "JAX_COORDINATOR_ADDRESS", own=_PORT),
    )


def _cards(topology: Topology, local: int) -> EnvVars:
    """Return the cards of a process of this node; without them each process would use all cards."""
    cards = topology.device.count
    slots = topology.this.slots
    if not cards:
        return ()
    if cards % slots:
        raise ConfigError(
            "EP123 the cards of this node cannot be shared evenly",
            f"{cards} cards, {slots} processes",
            f"set slots to 1, to {cards}, or to another divisor of it",
        )
    share = cards // slots
    numbers = ",".join(str(card) for card in range(local * share, (local + 1) * share))
    return (usual("JAX_LOCAL_DEVICE_IDS", numbers, f"device {topology.device.kind}"),)
