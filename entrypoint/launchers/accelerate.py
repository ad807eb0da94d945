"""Hugging Face Accelerate: every node starts `accelerate launch`, which starts its processes by
torch's launcher.

Source: accelerate/commands/launch.py and state.py of Accelerate 1.15. A program that Accelerate's
own settings (`accelerate config`, --mixed_precision, --use_fsdp, ...) do not affect can use
torchrun instead.
"""

from __future__ import annotations

from entrypoint.base.errors import ConfigError
from entrypoint.base.model import Launch, Topology
from entrypoint.base.tables import table
from entrypoint.launchers import _torch
from entrypoint.launchers._common import equal_slots, master, wait
from entrypoint.spec import JobSpec

# Accelerate's names of options that the launcher sets, and those that it sets in another way than
# torchrun.
_SETTLED = table("""
    num_machines                 | hosts
    num_processes                | hosts and slots
    machine_rank                 | node_rank
    main_process_ip              | hosts
    main_process_port            | port
    max_restarts                 | torch.max_restarts
    rdzv_backend                 | nothing: it is static
    rdzv_conf                    | timeouts.peers
    deepspeed_multinode_launcher | nothing: it is standard
""")


def plan(spec: JobSpec, topology: Topology) -> Launch:
    """Return `accelerate launch` on every node, with the command in its own form.

    Raises SpecError if launcher_args has an option that the launcher sets, ConfigError if
    nodes have different numbers of slots, or for a rendezvous that it does not support.
    """
    ranks = equal_slots("accelerate", topology)
    if spec.torch.rdzv_backend == "c10d":
        raise ConfigError(
            "EP122 accelerate's nodes meet by the static rendezvous",
            f"c10d ({spec.source('torch.rdzv_backend')})",
            "remove it",
        )
    options = (
        "accelerate.commands.accelerate_cli",
        "launch",
        f"--num_machines={len(topology.nodes)}",
        f"--num_processes={ranks}",
        f"--machine_rank={topology.me}",
        f"--main_process_ip={master(topology)}",
        f"--main_process_port={_torch.port(spec)}",
        "--rdzv_backend=static",
        f"--rdzv_conf=timeout={wait(spec)}",
        f"--max_restarts={_torch.restarts(spec)}",
        # Else accelerate has DeepSpeed's own launcher log in to the other nodes.
        "--deepspeed_multinode_launcher=standard",
        f"--log_dir={topology.run_dir}/tmp/torch",
        *spec.launcher_args,
    )
    settled = _torch.SETTLED | _SETTLED
    return _torch.launch(spec, topology, "accelerate", options, settled)
