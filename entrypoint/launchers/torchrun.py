"""torchrun (torch.distributed.run): every node starts its own agent, and the agents meet on
worker-0."""

from __future__ import annotations

from collections.abc import Sequence

from entrypoint.base.errors import SpecError
from entrypoint.base.model import File, Launch, Topology, usual
from entrypoint.base.text import count
from entrypoint.base.values import replace
from entrypoint.launchers import _torch
from entrypoint.launchers._common import endpoint, master, problem, wait
from entrypoint.spec import JobSpec

# other names
ALSO = (
    "ddp",
    "pytorch-ddp",
    "torch",
    "torchelastic",
    "torch.distributed.run",
    "lightning",
)


def plan(spec: JobSpec, topology: Topology) -> Launch:
    """Return torch.distributed.run on every node, with the command in its own form.

    Raises SpecError if `nodes` does not match the hosts or the rendezvous.
    """
    least = _least(spec, topology)
    nodes = len(topology.nodes)
    extra, conf = _without_conf(spec.launcher_args)
    options = (
        "torch.distributed.run",
        f"--nnodes={nodes if least is None else f'{least}:{nodes}'}",
        f"--nproc_per_node={topology.this.slots}",
        f"--rdzv_id={topology.job}",
        *_rendezvous(spec, topology, least is not None, conf),
        f"--max_restarts={_torch.restarts(spec)}",
        *extra,
    )
    settled = {**_torch.SETTLED, "max_restarts": "torch.max_restarts"}
    launch = _torch.launch(spec, topology, "torchrun", options, settled=settled)
    if least is None:
        return launch
    # With one store for all, a node that comes later is never told where it is (torch 2.13).
    share = usual("TORCH_DISABLE_SHARE_RDZV_TCP_STORE", "1", "nodes")
    programs = tuple(replace(each, env=(*each.env, share)) for each in launch.programs)
    return replace(launch, programs=programs, min_nodes=least)


def _rendezvous(spec: JobSpec, topology: Topology, is_elastic: bool, conf: str) -> tuple[str, ...]:
    """Return the options with which the nodes meet; `conf` are more values of --rdzv_conf."""
    timeout = wait(spec)
    is_alone = not topology.has_peers
    backend = _torch.backend(spec)
    if is_alone and spec.torch.rdzv_backend == "auto":
        backend = "c10d"  # it needs no fixed port
    if backend == "static":
        values = [f"timeout={timeout}"]
        port = _torch.port(spec)
        options = [f"--master_addr={master(topology)}", f"--master_port={port}"]
        options.append(f"--node_rank={topology.me}")
    else:
        # Left to itself, torch guesses from host names who is the host, waits no more than a minute
        # for it, and tells the others a host name that they may not know.
        values = [f"is_host={int(topology.is_leader)}"]
        values += [f"join_timeout={timeout}", f"read_timeout={timeout}"]
        # The roll call has waited for more nodes than the minimum: torch waits only for those
        # that start a little later.
        last_call = 10 if spec.roll_call == "required" else _torch.last_call(spec)
        values += [f"last_call_timeout={last_call}"] if is_elastic else []
        where = "127.0.0.1" if is_alone else topology.this.where
        port = "0" if is_alone else _torch.port(spec)
        options = [f"--rdzv_endpoint={endpoint(master(topology), port)}", f"--local_addr={where}"]
    values += [conf] if conf else []
    return (f"--rdzv_backend={backend}", *options, f"--rdzv_conf={','.join(values)}")


def _without_conf(options: Sequence[str]) -> tuple[list[str], str]:
    """Return the options without --rdzv_conf, and its values, which follow ours."""
    rest = []
    values = []
    words = iter(options)
    for word in words:
        name, assigned, value = word.partition("=")
        if name in ("--rdzv_conf", "--rdzv-conf"):
            values.append(value if assigned else next(words, ""))
        else:
            rest.append(word)
    return rest, ",".join(values)


def _least(spec: JobSpec, topology: Topology) -> int | None:
    """Return the smallest number of nodes of an elastic job; None for other jobs."""
    if spec.elastic is None:
        return None
    minimum, maximum = map(int, spec.elastic.split(":"))
    hosts = len(topology.nodes)
    detail = spec.elastic
    if maximum != hosts:
        summary = "EP120 the maximum must equal the number of hosts"
        detail = f"{maximum}, with {count(hosts, 'host')} ({topology.origin('hosts')})"
        hint = f"write {min(minimum, hosts)}:{hosts}, or name all hosts"
    elif minimum > maximum:
        summary = "EP120 the minimum is greater than the maximum"
        hint = f"write {maximum}:{minimum}"
    elif spec.torch.rdzv_backend == "static":
        summary = "EP120 a static rendezvous has a fixed number of nodes"
        hint = "set torch.rdzv_backend: c10d, or remove nodes"
    else:
        return minimum
    raise SpecError([problem(spec, "nodes", summary, detail, hint)])


def script(spec: JobSpec, topology: Topology, origin: str) -> File:
    """Return the file that `entrypoint render` writes for this launcher."""
    extra, conf = _without_conf(_torch.public_options(spec))
    return _torch.script(
        replace(spec, launcher_args=tuple(extra)),
        topology,
        "torchrun",
        origin,
        plan,
        () if spec.elastic else ("timeouts.join",),
        conf=conf,
        rdzv_backend=spec.torch.rdzv_backend,
        max_restarts=_torch.restarts(spec),
        last_call=_torch.last_call(spec),
    )
