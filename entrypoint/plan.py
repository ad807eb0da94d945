"""JobSpec + Topology + Members -> Plan, through the chosen launcher."""

from __future__ import annotations

import math
import re
from collections.abc import Container, Mapping
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any, Literal, cast

from entrypoint import __version__, heartbeat, interfaces
from entrypoint.errors import ConfigError
from entrypoint.jobspec import JobSpec
from entrypoint.model import EnvVar, Facts, File, Interface, Launch, Members, NodeReport, Plan, Program, Topology
from entrypoint.registry import load
from entrypoint.render import render

# What only concerns the process it was set for, or must not reach a program at all.
_HIDDEN = {"ENTRYPOINT_SECRET", "ENTRYPOINT_STAGE", "_", "PWD", "OLDPWD", "SHLVL"}
OF_PROGRAM = "program-ranks"  # pipe in the run directory for ranks that a program of the node starts by itself
_SUPERVISOR = str(Path(__file__).resolve().parent / "programs" / "supervisor.py")
NAMES = "libnss_wrapper.so"  # gives ssh a name for a uid that /etc/passwd does not know
_CHOSEN = re.compile(
    r"((OMPI|PRTE)_MCA_)?((btl|oob)_tcp|prte)_if_"
)  # interfaces, in Open MPI's own variables and files
_CLOCKS = 120.0  # seconds that a node's clock may be off before it is worth a word


def choose_launcher(spec: JobSpec, topology: Topology) -> ModuleType:
    """The launcher asked for; else what platform or device ask for; else mpirun for many ranks, and plain for one."""
    default = "mpirun" if topology.world_size > 1 else "plain"
    return load("launchers", spec.launcher or topology.launcher or default)


def scripts(name: str, spec: JobSpec, topology: Topology, members: Members, origin: str) -> tuple[File, ...]:
    """What `entrypoint render` writes for a launcher: nothing, where it has no script that others could run."""
    write = getattr(load("launchers", name), "scripts", None)
    return cast("tuple[File, ...]", write(spec, topology, members, origin)) if write else ()


def assume_members(topology: Topology, facts: Facts) -> Members:
    """What every node would answer if all were like this one: for a dry run, and before the roll call."""
    return Members(
        tuple(
            NodeReport(
                node.rank,
                node.slots,
                __version__,
                facts.mpi,
                node.address or node.host,
                interfaces=interfaces.names(facts.interfaces),
            )
            for node in topology.nodes
        ),
        assumed=len(topology.nodes) > 1,
    )


def with_interface(members: Members, rank: int, interface: Interface | None) -> Members:
    """The members, with the interface over which the roll call came to this node."""
    answers = [replace(each, interface=interface) if each.rank == rank else each for each in members.reports]
    return replace(members, reports=tuple(answers))


def check_members(topology: Topology, members: Members) -> None:
    """Refuse nodes that cannot run one job together.

    Raises ConfigError that names every version and the nodes that have it.
    """
    majors: dict[str, list[str]] = {}
    for node, report in zip(topology.nodes, members.reports, strict=True):
        majors.setdefault(report.mpi.split(".")[0], []).append(f"{node.host} has {report.mpi or 'none'}")
    if len(majors) > 1:
        seen = "; ".join(", ".join(hosts) for hosts in majors.values())
        raise ConfigError("the nodes have different Open MPI majors", seen, "use one image for all nodes")


def no_ipv4(facts: Facts, launch: Launch) -> ConfigError | None:
    """Why mpirun cannot reach other nodes from here: Open MPI 5's daemons crash where there is IPv6 alone."""
    major = facts.mpi.split(".")[0]
    alone = facts.interfaces and all(":" in each.address for each in facts.interfaces)
    if not (alone and launch.reports == "ranks" and launch.needs_roll_call and major.isdigit() and int(major) >= 5):
        return None
    seen = ", ".join(f"{each.name} {each.address}" for each in facts.interfaces)
    do = "give the containers IPv4 addresses, too, or use an image with Open MPI 4"
    return ConfigError(f"Open MPI {facts.mpi} cannot start ranks over IPv6 alone", seen, do)


def clock_warnings(topology: Topology, members: Members) -> list[str]:
    """A line if clocks are minutes apart: the job runs, but its logs, certificates and new-file checks lie."""
    apart = [
        f"{node.host} is {abs(report.clock):.0f}s {'ahead' if report.clock > 0 else 'behind'}"
        for node, report in zip(topology.nodes, members.reports, strict=True)
        if abs(report.clock) > _CLOCKS
    ]
    if not apart:
        return []
    do = f"set the clocks of the machines by NTP; if all others are named, see {topology.leader.host}'s first"
    return [f"warning: clocks differ from {topology.leader.host}'s | {', '.join(apart)} | {do}"]


def settle(
    spec: JobSpec, facts: Facts, topology: Topology, members: Members, leader_env: Mapping[str, str] | None = None
) -> Plan:
    """What this node will do. `leader_env` is the spec's env as worker-0 has it, once the roll call brought it.

    Raises ConfigError when there is nothing to run.
    """
    launcher = choose_launcher(spec, topology)
    name = launcher.__name__.rsplit(".", 1)[-1]
    if not (spec.command and spec.command[0]):
        raise ConfigError(
            "there is no program to run", "no command in the spec, none after --", "add: -- python train.py"
        )
    launch = cast(Launch, launcher.plan(spec, topology, members))
    given = {*facts.env, *(spec.env if leader_env is None else leader_env)}
    if any(map(_CHOSEN.match, (*facts.env, *facts.mpi_params))):
        given.add("MY_MPI_BTL_TCP_IF")
    programs = tuple(replace(program, env=_effective(program.env, given)) for program in launch.programs)
    launch = replace(launch, programs=programs, each_rank=_effective(launch.each_rank, given))
    mode, no_roll_call = _mode(spec, facts, topology, launch)
    env = _effective(_env(spec, topology, members, launch, leader_env), facts.env)
    files = list(launch.files)
    if launch.reports == "ranks":
        files += _wrapper(spec, facts, topology, env)
    if launch.reports == "both":
        files.append(_rank_script(facts, topology))
    if mode == "coordinated":
        files += _ssh_files(spec, facts, topology, members, launch.needs_roll_call)
    return Plan(
        topology=topology,
        launcher=name,
        launch=launch,
        workdir=spec.workdir or facts.cwd,
        env=env,
        files=tuple(files),
        mode=mode,
        members=members,
        no_roll_call=no_roll_call,
    )


def _mode(
    spec: JobSpec, facts: Facts, topology: Topology, launch: Launch
) -> tuple[Literal["exec", "local", "coordinated"], str]:
    """What this node does; and why the nodes hold no roll call, where they could do with one."""
    without = ""
    if len(topology.nodes) > 1:
        if launch.needs_roll_call:
            return "coordinated", ""
        if "sshd" not in facts.programs:
            without = "this image has no sshd"
        elif not (spec.secret or spec.secret_file or spec.ssh.client_key):
            without = "no secret was given"
        else:
            return "coordinated", ""
    return "exec" if launch.becomes_program else "local", without


def check_device(spec: JobSpec, plan: Plan) -> None:
    """Refuse a node without the device that was asked for, or with fewer accelerators than ranks that need one each.

    Raises ConfigError. On a CPU such a job would run for days before anybody wonders.
    """
    topology, device = plan.topology, plan.topology.device
    give = "give the container its devices (docker run --gpus all, --device /dev/davinci0; in Kubernetes a resource)"
    # A parameter server is given none by the platforms either.
    if spec.device and spec.device != "cpu" and not device.count and topology.this.task != "ps":
        what = f"device {spec.device} was asked for and is not in this container ({spec.source('device')})"
        raise ConfigError(what, device.origin, f"{give}, or ask for device cpu")
    slots = topology.this.slots
    # What a rank table says of this node's ranks is compared with its devices once the table is there.
    if 0 < device.count < slots and plan.launch.ranks is not None and not plan.launch.needs_rank_table:
        what = f"{slots} ranks on this node, and fewer accelerators ({topology.origins.get('slots', '')})"
        do = f"{give}, set slots to {device.count}, or ask for device cpu if ranks are to share them"
        raise ConfigError(what, f"{device.count} of device {device.kind}: {device.origin}", do)


def environment(own: Mapping[str, str], extra: tuple[EnvVar, ...]) -> dict[str, str]:
    """The program's environment: this container's own, less what is ours alone, with what the plan adds."""
    result = {name: value for name, value in own.items() if name not in _HIDDEN}
    result.update({var.name: var.value for var in extra})
    return result


def _effective(env: tuple[EnvVar, ...], given: Container[str]) -> tuple[EnvVar, ...]:
    """Without the defaults for which the user has a value."""
    return tuple(var for var in env if not (var.default and var.name in given))


def _env(
    spec: JobSpec, topology: Topology, members: Members, launch: Launch, leader_env: Mapping[str, str] | None
) -> tuple[EnvVar, ...]:
    device = [
        EnvVar(name, value, f"device {topology.device.kind}", True) for name, value in topology.device.env.items()
    ]
    asked = [EnvVar(name, value, str(spec.source(f"env.{name}"))) for name, value in spec.env.items()]
    if leader_env is not None:
        asked = [EnvVar(name, value, "worker-0's spec") for name, value in leader_env.items()]
    ours = EnvVar("ENTRYPOINT_RUN_DIR", topology.run_dir, str(topology.origins.get("run_dir", "")))
    return (*device, *_network(spec, members.reports[topology.me]), *launch.rank_env, *asked, ours)


def _network(spec: JobSpec, own: NodeReport) -> list[EnvVar]:
    """Which interface NCCL and Gloo take: what the user said, else the roll call's where there are several."""
    if asked := spec.mpi.interface:
        origin = str(spec.source("mpi.interface"))
        # Networks are for Open MPI alone; Gloo fails where one of several names is not there.
        taken = {"NCCL_SOCKET_IFNAME": "/" not in asked, "GLOO_SOCKET_IFNAME": not set(asked) & set("/,")}
        return [EnvVar(name, asked, origin, default=True) for name, takes in taken.items() if takes]
    if not (name := interfaces.of_node(own)):
        return []
    values = {"NCCL_SOCKET_IFNAME": f"={name}", "GLOO_SOCKET_IFNAME": name}  # NCCL takes a name for a beginning of one
    return [EnvVar(variable, value, "the roll call", default=True) for variable, value in values.items()]


def _wrapper(spec: JobSpec, facts: Facts, topology: Topology, env: tuple[EnvVar, ...]) -> list[File]:
    values = "".join(f"{name}={value}\0" for name, value in environment(facts.env, env).items())
    run_dir = topology.run_dir
    options = ["--env", f"{run_dir}/rank.env", "--cwd", spec.workdir or facts.cwd, "--colons", "escaped"]
    options += ["--linger", f"{spec.timeouts.grace:g}", "--hold", "yes"]
    supervisor = (*_supervisor(facts, run_dir, "{rank}"), *options)
    text = render("mpirun/rank.sh.j2", {"host": topology.this.host, "supervisor": supervisor})
    return [
        File("rank.env", values, "the environment", mode=0o600, secret=True),
        File("rank.sh", text, "mpirun/rank.sh.j2", mode=0o600),
    ]


def _rank_script(facts: Facts, topology: Topology) -> File:
    run_dir = topology.run_dir
    pipe = ("--pipe", OF_PROGRAM, "--linger", "apart")
    supervisor = (*_supervisor(facts, run_dir, f"{OF_PROGRAM}.{{rank}}"), *pipe)
    text = render("torchrun/rank.sh.j2", {"host": topology.this.host, "supervisor": supervisor})
    return File("rank.sh", text, "torchrun/rank.sh.j2", mode=0o600)


def kept(program: Program, number: int, spec: JobSpec, facts: Facts, topology: Topology) -> tuple[str, ...]:
    """The command line that has `programs/supervisor.py` keep this program, which is the node's `number`th."""
    options = ["--number", str(number), "--linger", f"{spec.timeouts.grace:g}"]
    if program.label:
        options += ["--label", f"[{program.label}] ", "--log", program.log]
    return (*_supervisor(facts, topology.run_dir, str(number)), *options, "--", *program.argv)


def _supervisor(facts: Facts, run_dir: str, number: str) -> tuple[str, ...]:
    files = ("--run-dir", run_dir, "--tail", f"{run_dir}/tail.{number}", "--said", f"{run_dir}/said")
    return (facts.python, "-I", "-S", _SUPERVISOR, *files)


def _ssh_files(spec: JobSpec, facts: Facts, topology: Topology, members: Members, launcher_logs_in: bool) -> list[File]:
    files = [
        File("sshd_config", sshd_config(spec, facts, topology), "ssh/sshd_config.j2", mode=0o600),
        File("host_key", "", "this job's keys", mode=0o600, secret=True),
        File("authorized_keys", "", "this job's keys", mode=0o600),
    ]
    if topology.is_leader and launcher_logs_in:
        peers = [
            {"host": node.host, "address": report.address, "port": node.ssh_port}
            for node, report in zip(topology.nodes, members.reports, strict=True)
        ]
        context = {**_ssh_context(spec, topology, "the roll call"), "peers": peers}
        files += [
            File("ssh_config", render("ssh/ssh_config.j2", context), "ssh/ssh_config.j2", mode=0o600),
            File("client_key", "", "this job's keys", mode=0o600, secret=True),
            File("known_hosts", "", "this job's keys", mode=0o600),
        ]
    if not facts.user:
        files.append(File("passwd", "", "a name for this uid, for sshd and ssh alone", mode=0o600))
        if topology.is_leader and launcher_logs_in:
            library = facts.programs.get(NAMES, NAMES)
            context = {"origin": f"uid {facts.uid}", "library": library, "run_dir": topology.run_dir}
            files.append(File("ssh", render("ssh/ssh.sh.j2", context), "ssh/ssh.sh.j2", mode=0o600))
    return files


def sshd_config(spec: JobSpec, facts: Facts, topology: Topology, origin: str = "the job's spec") -> str:
    """sshd's configuration for this node."""
    # With a shell above it, as this level says, bash leaves the user's ~/.bashrc alone, which may print, or wait. And
    # daemons of nodes that share a machine make and remove each other's files where they have one folder for them.
    session = {"ENTRYPOINT_RUN_DIR": topology.run_dir, "SHLVL": "1", "TMPDIR": topology.run_dir}
    session |= {name: facts.env[name] for name in ("PATH", "LD_LIBRARY_PATH") if facts.env.get(name)}
    return render(
        "ssh/sshd_config.j2",
        {
            **_ssh_context(spec, topology, origin),
            "host": topology.this.host,
            "port": topology.this.ssh_port,
            "listen": topology.this.address,
            "startups": max(256, 2 * len(topology.nodes)),
            "login_grace": 15,
            "session_env": session,
        },
    )


def _ssh_context(spec: JobSpec, topology: Topology, origin: str) -> dict[str, Any]:
    return {
        "origin": origin,
        "port": spec.ssh.port,
        "user": topology.user,
        "run_dir": topology.run_dir,
        "alive_interval": math.ceil(heartbeat.interval(spec.timeouts.lease)),
    }
