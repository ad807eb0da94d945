"""What a rank of these tests does, and what it says of its network."""

from __future__ import annotations

import json
from typing import Any

from tests.containers import IMAGE as GPU
from tests.containers import MPI4, MPI5
from tests.networks.pods import Pods
from tests.rows import ended, said

IMAGES = {"mpirun": MPI4, "mpirun of Open MPI 5": MPI5, "torchrun": GPU}
TOLD = (
    "NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME", "HCCL_SOCKET_IFNAME", "NCCL_SOCKET_FAMILY", "HCCL_SOCKET_FAMILY",
    "OMPI_MCA_btl_tcp_if_include",
)  # fmt: skip

# Two million bytes or more to each other rank; then the interfaces that sent at least one million.
_RANK = """
import json, os, socket
def sent():
    lines = [line.replace(":", " ").split() for line in open("/proc/net/dev").readlines()[2:]]
    return {{words[0]: int(words[9]) for words in lines if words[0] != "lo"}}
{meet}
before = sent()
{exchange}
busy = [name for name, count in sent().items() if count - before[name] > 1000000]
told = {{name: os.environ.get(name, "") for name in {told}}}
line = json.dumps({{"host": socket.gethostname(), "busy": ",".join(busy), **told}})
os.write(1, (line + chr(10)).encode())
{leave}
"""
MPI = _RANK.format(
    told=TOLD,
    meet="from mpi4py import MPI",
    # the others come to the barrier once they have it all, so that none of it waits in a buffer
    exchange=(
        "MPI.COMM_WORLD.alltoall([bytearray(2000000)] * MPI.COMM_WORLD.size);"
        " MPI.COMM_WORLD.barrier()"
    ),
    leave="",  # mpi4py does it
)
GLOO = _RANK.format(
    told=TOLD,
    meet="import torch, torch.distributed as dist; dist.init_process_group('gloo')",
    exchange=(
        "x = torch.ones(2000000); dist.all_reduce(x); assert x[0] == dist.get_world_size();"
        " dist.barrier()"
    ),
    # or a thread of its own ends the rank with SIGABRT now and then
    leave="dist.destroy_process_group()",
)


def start(pods: Pods, launcher: str, asked: str = "auto", **env: str) -> dict[str, str]:
    """The job's containers: host -> id. `asked` is network.interface, where "main's CIDR" stands
    for it."""
    cidr = asked.endswith("'s CIDR")
    env["ENTRYPOINT_NETWORK_INTERFACE"] = pods.cidr(asked.partition("'")[0]) if cidr else asked
    program = GLOO if launcher == "torchrun" else MPI
    env["ENTRYPOINT_LAUNCHER"] = launcher.split()[0]
    return pods.start(IMAGES[launcher], "python", "-c", program, **env)


def ran(containers: dict[str, str]) -> dict[str, dict[str, Any]]:
    """What the rank of each node said, once all have ended well: host -> what."""
    statuses = ended(containers, 100)
    log = said(containers)
    assert statuses == dict.fromkeys(containers, 0), log
    lines = [json.loads(line) for line in log.splitlines() if line.startswith('{"host"')]
    ranks = {line.pop("host"): line for line in lines}
    assert (sorted(ranks), len(lines)) == (sorted(containers), len(containers)), log
    return ranks


def saw(
    launcher: str, busy: str, told: str = "", btl: str = "", nccl: str = "", ipv6: bool = False
) -> dict[str, str]:
    """What a rank says that sent over `busy` and was told of this interface.

    Open MPI was told `btl`; `nccl` is what all of its ranks are told, where a node has no word of
    its own.
    """
    mpirun, family = launcher != "torchrun", "AF_INET6" if ipv6 else ""
    return {
        "busy": busy,
        "NCCL_SOCKET_IFNAME": f"={told}" if told else nccl * mpirun,
        "GLOO_SOCKET_IFNAME": told or busy,  # else it looks up the host's own name
        "HCCL_SOCKET_IFNAME": f"={told}" if told else "",
        "NCCL_SOCKET_FAMILY": family or "AF_INET" * mpirun,  # the documented default of run_mpi.sh
        "HCCL_SOCKET_FAMILY": family,
        "OMPI_MCA_btl_tcp_if_include": btl * mpirun,
    }
