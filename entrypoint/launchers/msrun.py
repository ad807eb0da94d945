"""MindSpore's msrun: one on every node; the processes meet at the scheduler that worker-0's msrun
starts.

Source: MindSpore's documentation, "msrun launching", and msrun of MindSpore 2.10.
"""

from __future__ import annotations

from pathlib import PurePath

from entrypoint.base.model import Launch, LaunchRanks, Program, Topology
from entrypoint.base.tables import table
from entrypoint.launchers._common import (
    equal_slots,
    file,
    master,
    meeting_port,
    refuse_options,
    wait,
)
from entrypoint.spec import JobSpec

ALSO = ("mindspore",)  # other names

_PORT = 8118
# Options that the launcher sets, and the sources of their values.
_SETTLED = table("""
    worker_num       | hosts and slots
    local_worker_num | slots
    master_addr      | hosts
    master_port      | port
    node_rank        | node_rank
    log_dir          | log_dir
    join             | nothing: the job ends when its processes have
    cluster_time_out | timeouts.peers
""")


def plan(spec: JobSpec, topology: Topology) -> Launch:
    """Return msrun on every node, with the command as arguments.

    Raises SpecError if launcher_args has an option that the launcher sets, ConfigError if
    the nodes have different numbers of slots.
    """
    refuse_options(spec, _SETTLED)
    ranks = equal_slots("msrun", topology)
    logs = f"{topology.log_dir}/{topology.job}-msrun{topology.of_attempt}"
    options = {
        "worker_num": ranks,
        "local_worker_num": topology.this.slots,
        "master_addr": master(topology),
        "master_port": spec.port or _PORT,
        "node_rank": topology.me,
        "log_dir": logs,
        "join": True,
        "cluster_time_out": wait(spec),
    }
    script = file("msrun/msrun.py")
    arguments = [f"--{name}={value}" for name, value in options.items()]
    argv = (
        "python",
        f"{topology.run_dir}/{script.name}",
        *arguments,
        *spec.launcher_args,
        *_program(spec),
    )
    return Launch(
        (Program(argv),),
        files=(script,),
        folders=(topology.log_dir, logs),
        ranks=LaunchRanks(count=ranks),
        takes_signals=False,
        forwards=True,
        takes_args=True,
        port=meeting_port(spec, topology, own=_PORT),
    )


def _program(spec: JobSpec) -> tuple[str, ...]:
    """Return the command for msrun, which starts the `python` of PATH and recognizes only these
    names."""
    first, *others = spec.command
    name = PurePath(first).name
    return (name if name in ("python", "python3") else first, *others)
