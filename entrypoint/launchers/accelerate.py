"""Hugging Face Accelerate: every node starts `accelerate launch`, which starts its processes by
torch's launcher.

Source: accelerate/commands/launch.py and state.py of Accelerate 1.15. A program that Accelerate's
  own settings
(`accelerate config`, --mixed_precision, --use_fsdp, ...) do not affect can use torchrun instead.
"""

from __future__ import annotations

from entrypoint.errors import ConfigError
from entrypoint.launchers import _torch
from entrypoint.launchers._place import equal_slots
from entrypoint.model import Launch, Members, Topology
from entrypoint.spec import JobSpec

# Accelerate's names of options that the script sets, and options that it sets in another way than
# torchrun.sh.
_RESERVED = {
    "num_machines": ("NNODES", "hosts"),
    "num_processes": ("NPROC_PER_NODE", "hosts and slots"),
    "machine_rank": ("NODE_RANK", "node_rank"),
    "main_process_ip": ("MASTER_ADDR", "hosts"),
    "main_process_port": ("MASTER_PORT", "torch.port"),
    "max_restarts": ("MAX_RESTARTS", "torch.max_restarts"),
    "rdzv_backend": ("nothing: it is static", "nothing: it is static"),
    "rdzv_conf": ("RDZV_TIMEOUT", "timeouts.peers"),
    "deepspeed_multinode_launcher": ("nothing: it is standard", "nothing: it is standard"),
}


def plan(spec: JobSpec, topology: Topology, members: Members) -> Launch:
    """Return accelerate.sh on every node, with the command as arguments.

    Raises SpecError if accelerate.extra_args has an option that the script sets, ConfigError if
    nodes have different numbers of slots, or for a rendezvous that it does not support.
    """
    equal_slots("accelerate", topology, members)
    if spec.torch.rdzv_backend == "c10d":
        where = str(spec.source("torch.rdzv_backend"))
        raise ConfigError(
            "EP122 accelerate's nodes meet by the static rendezvous", f"c10d ({where})", "remove it"
        )
    settings = _torch.unless_in_env(spec, "torch.max_restarts")
    return _torch.launch(
        spec, topology, "accelerate", settings, "accelerate.extra_args", _torch.RESERVED | _RESERVED
    )
