"""JobSpec + Site + Device -> Topology: which nodes there are, which one is this, and how many ranks
run on each."""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

from entrypoint.base.errors import ConfigError
from entrypoint.base.history import History
from entrypoint.base.interfaces import ip
from entrypoint.base.model import (
    DEFAULT,
    SSH_PORT,
    Device,
    Facts,
    Node,
    Site,
    Source,
    Topology,
    of_task,
)
from entrypoint.base.registry import choose
from entrypoint.base.text import count, some
from entrypoint.base.values import replace
from entrypoint.plan import numbering
from entrypoint.plan.callin import meeting
from entrypoint.platforms._clues import read
from entrypoint.spec import (
    MAX_NODES,
    MAX_SLOTS,
    HostEntry,
    JobSpec,
    check_host,
    plain_path,
)

NAMES = "libnss_wrapper.so"  # gives ssh a name for a uid that /etc/passwd does not know
# What mpirun starts may put a unix socket into TMPDIR, which is `tmp` here; its path may hold 107
# bytes (unix(7)).
_RUN_DIR_BYTES = 86
_JOB_IDS = ("SLURM_HET_JOB_ID", "SLURM_PACK_JOB_ID", "SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID")


def locate(spec: JobSpec, facts: Facts) -> Topology:
    """The first half of `settle`: platform and device, and from them where each process runs.

    Raises ConfigError when the hosts, or this node's place among them, are not known.
    """
    device = choose("devices", spec.device, facts, "cpu").device(facts)
    return build(spec, facts, site_of(spec.platform, facts), device)


def site_of(platform: str | None, facts: Facts) -> Site:
    """Return the site of this platform, or of the one that is recognised.

    Without hosts it is one node, unless variables describe several: then the hosts are unknown.
    Raises ConfigError as the platform's module does, or if this is one of several starts on this
    node. With the platform `local` by choice, no variable counts.
    """
    if platform == "local":
        return Site("local")
    site = read(choose("platforms", platform, facts, "local"), facts)
    numbering.refuse_several_starts(facts)
    if site.hosts or "hosts" in site.unknown:
        return site
    reason = numbering.reason(facts)
    return replace(site, unknown={**site.unknown, "hosts": reason}) if reason else site


def starts_any_program(facts: Facts) -> bool:
    """Return whether the recognised platform starts programs of every kind."""
    return getattr(choose("platforms", None, facts, "local"), "STARTS_ANY_PROGRAM", False)


def build(spec: JobSpec, facts: Facts, site: Site, device: Device) -> Topology:
    """Return where every process of the job runs, seen from this node. A value of the spec wins
    over the platform's.

    Raises ConfigError when the hosts, or the index of this node among many, are unknown, or a host
    name can't be one.
    """
    hosts, me, origins = _placed(spec, facts, site)
    hosts_source = origins["hosts"]
    assert hosts_source
    slots, origins["slots"] = _slots(spec, site, device)
    if hosts[me].slots is not None:
        origins["slots"] = hosts_source
    tasks, origins["tensorflow.ps"] = _tasks(spec, site, len(hosts))
    job_id = _job_id(facts)
    ssh_ports = [_ssh_port(spec, task, job_id) for task in tasks]
    run_dir, origins["run_dir"] = _run_dir(spec, facts, tasks[me])
    nodes = _nodes(hosts, slots, tasks, () if spec.hosts else site.ports, ssh_ports)
    _check_addresses(nodes, hosts_source)
    job, origins["name"] = _job(spec, site)
    log_dir, origins["log_dir"] = _log_dir(spec, site, run_dir)
    launcher, origins["launcher"] = _launcher(site, device)
    chief, origins["tensorflow.chief"] = _chief(spec, site)
    return Topology(
        job=job,
        nodes=nodes,
        me=me,
        platform=site.platform,
        device=device,
        run_dir=run_dir,
        log_dir=log_dir,
        workdir=spec.workdir or facts.cwd,
        python=facts.python,
        interpreter=_interpreter(spec, facts),
        naming="" if facts.user else facts.programs.get(NAMES, NAMES),
        pre_start=_pre_start(spec, site),
        launcher=launcher,
        chief=chief,
        job_id=job_id,
        ends=_ends(spec, site),
        history=History(earlier=site.earlier),
        spares=_spares(spec, tasks),
        user=login(facts),
        origins={field: source for field, source in origins.items() if source},
    )


def _placed(
    spec: JobSpec, facts: Facts, site: Site
) -> tuple[list[HostEntry], int, dict[str, Source | None]]:
    """Return the hosts, this node's place among them, and the origins of both."""
    meets = meeting(spec, facts, site)
    if meets is None:
        hosts, source = _hosts(spec, facts, site)
    else:
        hosts, source, index = meets
        spec = replace(spec, hosts=())
        if spec.node_rank is None and site.index is None:  # any but the first, until it has called
            return hosts, 1 if index is None else index, {"hosts": source}
    me, origin = _node_rank(spec, facts, site, hosts, source)
    return hosts, me, {"hosts": source, "node_rank": origin}


def _interpreter(spec: JobSpec, facts: Facts) -> str:
    """Return the Python of programs that name none: PYTHON, else the one on PATH."""
    is_3_alone = "python3" in facts.programs and "python" not in facts.programs
    default = "python3" if is_3_alone else "python"
    return spec.env.get("PYTHON") or facts.env.get("PYTHON") or default


def _nodes(
    hosts: Sequence[HostEntry],
    slots: int,
    tasks: Sequence[str],
    ports: Sequence[int],
    ssh_ports: Sequence[int],
) -> tuple[Node, ...]:
    """Return the nodes in rank order, counted within each task."""
    places: defaultdict[str, Iterator[int]] = defaultdict(itertools.count)
    return tuple(
        Node(
            rank=rank,
            host=host.name,
            slots=slots if host.slots is None else int(host.slots),
            address=host.address,
            task=task,
            index=next(places[task]),
            port=ports[rank] if ports else None,
            ssh_port=ssh_ports[rank],
        )
        for rank, (host, task) in enumerate(zip(hosts, tasks, strict=True))
    )


def login(facts: Facts) -> str:
    """Return who ssh logs in as; made up where the uid has no name, since ssh takes no number."""
    return facts.user or f"uid-{facts.uid}"


def _from(site: Site, field: str) -> Source:
    return Source("platform", site.origins.get(field, site.platform))


def _unknown(id: str, site: Site, field: str) -> ConfigError:
    """A message with this id, in the words of the platform, which does not know the field."""
    summary, detail, hint = site.unknown[field]
    return ConfigError(f"{id} {summary}", detail, hint)


def _hosts(spec: JobSpec, facts: Facts, site: Site) -> tuple[list[HostEntry], Source]:
    is_alone = spec.count == 1
    if spec.hosts:
        hosts, source = [HostEntry.of(entry) for entry in spec.hosts], spec.source("hosts")
    elif "hosts" in site.unknown and not is_alone:
        raise _unknown("EP201", site, "hosts")
    elif site.hosts:
        hosts, source = _named(site.hosts), _from(site, "hosts")
    else:
        name = facts.hostname or "localhost"
        hosts, source = [HostEntry(name)], Source("default", "this container's host name")
    if spec.count and len(hosts) != spec.count + spec.spares:
        raise ConfigError(
            f"EP120 nodes is {spec.count}, and the hosts are others ({spec.source('nodes')})",
            f"{count(len(hosts), 'host')} ({source}), spares is {spec.spares}",
            "remove nodes, or name as many hosts",
        )
    _check_hosts(hosts, source)
    return hosts, source


def _check_hosts(hosts: list[HostEntry], source: Source) -> None:
    """Raise ConfigError if there are too many, or one has no valid name or is named twice."""
    if len(hosts) > MAX_NODES:
        raise ConfigError(
            f"EP204 too many hosts ({source})", f"{len(hosts)}", f"a job has {MAX_NODES} at most"
        )
    bad = [f"{host.name[:80]} ({wrong})" for host in hosts if (wrong := check_host(host.name))]
    if bad:
        raise ConfigError(
            f"EP205 {len(bad)} of {len(hosts)} host names are invalid ({source})",
            ", ".join(bad),
            _advice(hosts, bad),
        )
    names = Counter(host.name.lower() for host in hosts)  # DNS knows no case
    twice = sorted(name for name, number in names.items() if number > 1)
    if twice:
        raise ConfigError(
            f"EP206 a host is named twice ({source})", ", ".join(twice), "name each node once"
        )


def _named(hosts: tuple[str, ...]) -> list[HostEntry]:
    """The hosts of a platform. An IPv6 address is no name: hostfiles and ssh write something else
    after a `:`. Nor is the address that a worker and a parameter server share."""
    uses = Counter(hosts)
    return [
        (
            HostEntry(f"node-{rank}", address=host)
            if (":" in host or uses[host] > 1) and "%" not in host and ip(host)
            else HostEntry(host.removesuffix("."))
        )
        for rank, host in enumerate(hosts)
    ]


def _advice(hosts: list[HostEntry], bad: list[str]) -> str:
    """Return what to do about names that cannot be one, by what is wrong with the first."""
    if "DNS allows" in bad[0]:
        return "shorten the job's name"
    pairs = ",".join(
        f"worker-{rank}={host.address or 'ADDRESS'}" for rank, host in enumerate(hosts[:2])
    )
    others = ",..." if len(hosts) > 2 else ""
    return f"give every node a name and its address: ENTRYPOINT_HOSTS={pairs}{others}"


def _check_addresses(nodes: tuple[Node, ...], origin: Source) -> None:
    """Nodes of one task have one ssh port, so that two of them at one address would be one."""
    host_at: dict[tuple[str, str], str] = {}
    for node in nodes:
        address = node.where
        first_host = host_at.setdefault(
            (node.task, str(ip(address) or address.lower())), node.host
        )  # ::1 has many spellings
        if first_host != node.host:
            raise ConfigError(
                f"EP206 two hosts have one address ({origin})",
                f"{first_host} and {node.host} are both {address}",
                "give each node an address of its own",
            )


def _node_rank(
    spec: JobSpec, facts: Facts, site: Site, hosts: Sequence[HostEntry], hosts_source: Source
) -> tuple[int, Source | None]:
    names = [host.name for host in hosts]
    if spec.node_rank is not None:
        rank, source = spec.node_rank, spec.source("node_rank")
    elif spec.count == 1:
        return 0, spec.source("nodes")
    elif site.index is not None and not (spec.hosts and site.platform == "local"):
        rank, source = site.index, _from(site, "node_rank")
    elif "node_rank" in site.unknown and (len(names) > 1 or not spec.hosts):
        raise _unknown("EP202", site, "node_rank")
    elif len(names) == 1:
        return 0, None
    else:
        rank = _own_name(facts.hostname, names)
        source = Source("default", f"host name {facts.hostname}")
    if rank >= len(names):
        raise ConfigError(
            f"EP203 node_rank is beyond the last node ({source})",
            f"{rank}, with {count(len(names), 'host')} ({hosts_source})",
            "count from 0, or name all hosts",
        )
    return rank, source


def _own_name(hostname: str, names: list[str]) -> int:
    """Return the place of this container's host name among the names. DNS knows no case."""
    # The whole name, else whole first labels: worker-1 must not be taken for worker-10.
    own = hostname.lower()
    label = own.split(".")[0]
    ranks = [rank for rank, name in enumerate(names) if name.lower() == own]
    ranks = ranks or [
        rank for rank, name in enumerate(names) if label and name.lower().split(".")[0] == label
    ]
    if len(ranks) != 1:
        is_one = "matches several" if ranks else "is not one"
        raise ConfigError(
            f"EP202 node index unknown: {len(names)} nodes are given and no index",
            f"host name {hostname!r} {is_one} of {some(names, 4)}",
            "set ENTRYPOINT_NODE_RANK (0 for worker-0), or give the container one of these host"
            " names",
        )
    return ranks[0]


def _slots(spec: JobSpec, site: Site, device: Device) -> tuple[int, Source]:
    if spec.slots is not None:
        return spec.slots, spec.source("slots")
    if site.slots is None:
        return max(device.count, 1), Source("default", device.origin)
    source = _from(site, "slots")
    if site.slots > MAX_SLOTS:
        hint = f"a node has {MAX_SLOTS} at most; ENTRYPOINT_SLOTS wins over the platform"
        raise ConfigError(f"EP126 too many slots ({source})", str(site.slots), hint)
    return site.slots, source


def _tasks(spec: JobSpec, site: Site, nodes: int) -> tuple[tuple[str, ...], Source | None]:
    """Return what each node does: workers, then parameter servers."""
    servers = spec.tensorflow.ps if nodes > 1 else 0  # one node runs the program alone
    if servers >= nodes:
        raise ConfigError(
            "EP209 no worker is left",
            f"tensorflow.ps is {servers}, with {nodes} hosts",
            "name the workers first, then the parameter servers",
        )
    if servers or spec.hosts or not site.tasks:
        return ("worker",) * (nodes - servers) + ("ps",) * servers, None
    return site.tasks, _from(site, "hosts")


def _spares(spec: JobSpec, tasks: Sequence[str]) -> int:
    if not spec.spares:
        return 0
    fixed = {
        f"nodes: {spec.elastic} already lets the job run on fewer": bool(spec.elastic),
        "parameter servers have nodes of their own": {*tasks} != {"worker"},
        "mpi.hostfile names the nodes of the first attempt": bool(spec.mpi.hostfile),
    }
    if reason := next((reason for reason, holds in fixed.items() if holds), ""):
        raise no_spares(spec, reason)
    if spec.spares >= len(tasks):
        raise ConfigError(
            f"EP211 every node would be a spare ({spec.source('spares')})",
            f"spares is {spec.spares}, with {count(len(tasks), 'host')}",
            "name the spares in hosts, too, after the nodes that work",
        )
    return spec.spares


def no_spares(spec: JobSpec, reason: str) -> ConfigError:
    """Return the error of a job in which no node can take another one's place."""
    return ConfigError(
        f"EP211 this job cannot have spares ({spec.source('spares')})", reason, "remove spares"
    )


def _chief(spec: JobSpec, site: Site) -> tuple[bool, Source | None]:
    """Return whether worker-0 is TensorFlow's chief. The platform's is one among the platform's own
    hosts alone."""
    if (
        site.chief
        and spec.source("tensorflow.chief") == DEFAULT
        and not (spec.hosts or spec.tensorflow.ps)
    ):
        return True, _from(site, "hosts")
    return spec.tensorflow.chief != "none", None


def _launcher(site: Site, device: Device) -> tuple[str | None, Source | None]:
    """Return what platform or device ask for, where the spec says nothing."""
    if site.launcher:
        return site.launcher, _from(site, "launcher")
    return device.launcher, Source("default", f"device {device.kind}") if device.launcher else None


def _log_dir(spec: JobSpec, site: Site, run_dir: str) -> tuple[str, Source]:
    if spec.log_dir is None and site.log_dir:
        return plain_path(site.log_dir), _from(site, "log_dir")
    source = spec.source("log_dir")
    if spec.log_dir and f"{spec.log_dir}/".startswith(f"{run_dir}/"):
        raise ConfigError(
            f"EP124 log_dir is in the run directory ({source})",
            f"{spec.log_dir} is in {run_dir}, which is removed with the job",
            "set log_dir to another directory",
        )
    return spec.log_dir or f"{run_dir}-log", source


def _ends(spec: JobSpec, site: Site) -> int:
    """Return when the platform ends the job, as in Site. Raises ConfigError if that is to be the
    job's deadline and is not known."""
    if spec.timeouts.job == "scheduler" and not site.ends:
        where = f"timeouts.job: scheduler ({spec.source('timeouts.job')})"
        raise ConfigError(
            "EP212 the platform does not tell the job's time limit",
            f"{where}; platform {site.platform}, SLURM_JOB_END_TIME is unset",
            "set timeouts.job to seconds",
        )
    return site.ends


def _pre_start(spec: JobSpec, site: Site) -> str:
    if spec.pre_start == "skip":
        return ""
    if "pre_start" in site.unknown:
        raise _unknown("EP210", site, "pre_start")
    return site.pre_start or ""


def _job(spec: JobSpec, site: Site) -> tuple[str, Source]:
    if spec.source("name") == DEFAULT and site.job:
        return site.job, _from(site, "name")
    return spec.name, spec.source("name")


def _job_id(facts: Facts) -> str:
    """Return the number that the scheduler has for this job, the same on all nodes; "" if it has
    none.

    Components of a heterogeneous job of Slurm have numbers of their own, and a common one.
    """
    job = next((facts.env[name] for name in _JOB_IDS if facts.env.get(name)), "")
    return ".".join(filter(None, (job, facts.env.get("SLURM_STEP_ID", "") if job else "")))[:100]


def _ssh_port(spec: JobSpec, task: str, job_id: str) -> int:
    """Return the port of a node's sshd, or 0 if it follows from the job's keys.

    Each task has its own: a platform may put a worker and a parameter server on one machine, with
    its one address.
    """
    if spec.ssh.port == "auto" or (job_id and spec.source("ssh.port") == DEFAULT):
        return 0
    return of_task(spec.ssh.port, task)


def _run_dir(spec: JobSpec, facts: Facts, task: str) -> tuple[str, Source]:
    port = SSH_PORT if spec.ssh.port == "auto" else spec.ssh.port
    run_dir = spec.run_dir or f"{facts.temp}/entrypoint-{facts.uid}-{of_task(port, task)}"
    if len(run_dir.encode()) > _RUN_DIR_BYTES:
        raise ConfigError(
            "EP125 run_dir is too long for a socket in it",
            f"{len(run_dir.encode())} bytes: {run_dir[:100]}",
            f"give one of at most {_RUN_DIR_BYTES} bytes",
        )
    return run_dir, spec.source("run_dir")
