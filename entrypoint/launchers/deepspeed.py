"""DeepSpeed: every node starts DeepSpeed's launcher of one node, as `deepspeed --no_ssh`, which
starts processes.

With `ssh.client: files` it is `deepspeed --hostfile` instead, on worker-0 alone, which logs in to
the others.
Source: deepspeed/launcher/runner.py, launch.py and multinode_runner.py of DeepSpeed 0.19.8.
"""

from __future__ import annotations

import json

from entrypoint.base.model import EnvVar, Launch, LaunchRanks, Program, Topology
from entrypoint.base.tables import table
from entrypoint.base.values import replace
from entrypoint.launchers import _mpi, _torch
from entrypoint.launchers._common import (
    PORT,
    file,
    master,
    meeting_port,
    rank_script,
    refuse_options,
    split_python,
)
from entrypoint.spec import JobSpec

# Options that the launcher sets, and the sources of their values; then those of the form with ssh.
_SETTLED = table("""
    world_info hostfile          | hosts and slots
    no_ssh no_ssh_check ssh_port | ssh.client, which decides how the nodes are reached
    module no_python             | command
    node_rank                    | node_rank
    master_addr                  | hosts
    master_port                  | port
""")
_BY_SSH = table("""
    include exclude num_nodes num_gpus num_accelerators           | ssh.client: files
    launcher launcher_args force_multi autotuning venv_script     | ssh.client: files
""")
_FORMS = table("""
    script  |
    module  | --module
    program | --no_python --no_local_rank
""")


def plan(spec: JobSpec, topology: Topology) -> Launch:
    """Return deepspeed_launch.py on every node, or `deepspeed` on worker-0, with the command as
    arguments.

    Raises SpecError if launcher_args has an option that the launcher sets.
    """
    by_ssh = spec.ssh.client == "files" and topology.has_peers
    settled = _SETTLED if by_ssh else _SETTLED | _BY_SSH
    refuse_options(spec, settled)
    launch = (_by_ssh if by_ssh else _on_each_node)(spec, topology)
    return replace(launch, takes_args=True, port=meeting_port(spec, topology))


def _on_each_node(spec: JobSpec, topology: Topology) -> Launch:
    script = file("deepspeed/deepspeed_launch.py")
    slots = {node.host: node.slots for node in topology.nodes}
    options = (f"{topology.run_dir}/{script.name}", json.dumps(slots), f"--node_rank={topology.me}")
    return Launch(
        (Program(_line(spec, topology, options)),),
        files=(script, rank_script(topology)),
        ranks=_torch.ranks(spec, topology),
        forwards=True,
    )


def _by_ssh(spec: JobSpec, topology: Topology) -> Launch:
    """Return `deepspeed`, which supervises its processes; on other nodes they are below sshd until
    the job ends."""
    ranks = LaunchRanks(count=topology.world_size)
    if not topology.is_leader:
        return Launch(ranks=ranks, needs_roll_call=True, completion="leader")
    run_dir = topology.run_dir
    options = (
        "-m",
        "deepspeed.launcher.runner",
        f"--hostfile={run_dir}/hostfile",
        "--no_ssh_check",
    )
    pdsh = EnvVar("PDSH_SSH_ARGS_APPEND", f"-F {run_dir}/ssh_config", "ssh.client")
    program = Program(_line(spec, topology, options), (pdsh,))
    return Launch(
        (program,),
        files=(_mpi.hostfile(topology, "{} slots={}", 0o644),),
        ranks=ranks,
        needs_roll_call=True,
        needs_programs=("ssh",),
        completion="leader",
    )


def _line(spec: JobSpec, topology: Topology, options: tuple[str, ...]) -> tuple[str, ...]:
    """Return a launcher of DeepSpeed with its options and the command in its form."""
    python, form, arguments = split_python(spec.command)
    return (
        python,
        *options,
        f"--master_addr={master(topology)}",
        f"--master_port={spec.port or PORT}",
        *spec.launcher_args,
        *_FORMS[form].split(),
        *arguments,
    )
