"""What was asked for and what is there -> Plan: all that this node will do. Nothing here has an
effect."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping
from types import ModuleType
from typing import Literal

from entrypoint.base import heartbeat, interfaces, supervised
from entrypoint.base.errors import ConfigError
from entrypoint.base.model import EnvVar, Facts, File, Launch, Members, NodeReport, Plan, Topology
from entrypoint.base.registry import choose, load, names
from entrypoint.base.render import quote_ssh
from entrypoint.base.text import count
from entrypoint.base.values import replace
from entrypoint.launchers._common import file, planned
from entrypoint.launchers._nested import boot_script
from entrypoint.plan import cpus
from entrypoint.plan.members import assume_members, attempt_env, check_networks, working
from entrypoint.plan.numbering import inherited
from entrypoint.plan.topology import build, no_spares, site_of
from entrypoint.platforms import READ_REASONS
from entrypoint.spec import JobSpec, logs

# What only concerns the process it was set for, or must not reach a program at all.
_HIDDEN = {
    "ENTRYPOINT_SECRET",
    "ENTRYPOINT_STAGE",
    "ENTRYPOINT_IMAGE_START",
    "_",
    "PWD",
    "OLDPWD",
    "SHLVL",
}


def locate(spec: JobSpec, facts: Facts) -> Topology:
    """The first half of `settle`: platform and device, and from them where each process runs.

    Raises ConfigError when the hosts, or this node's place among them, are not known.
    """
    device = choose("devices", spec.device, facts, "cpu").device(facts)
    return build(spec, facts, site_of(spec.platform, facts), device)


def without_boot_script(spec: JobSpec) -> tuple[JobSpec, str]:
    """Return the spec without a boot script, such as torchrun.sh, before its command, and the
    launcher that replaces it; "" if there is none."""
    launcher, command = boot_script(spec.command)
    return (replace(spec, command=tuple(command)), launcher) if launcher else (spec, "")


def settle(
    spec: JobSpec,
    facts: Facts,
    topology: Topology | None = None,
    members: Members | None = None,
    leader_env: Mapping[str, str] | None = None,
    replaced: tuple[tuple[int, int], ...] = (),
) -> Plan:
    """What this node will do.

    `topology` is `locate`'s where it is not given. `members` are assumed to be like this node until
    they have answered. `leader_env` is the spec's env as worker-0 has it, once the roll call
    brought it. `replaced` is as in `team_of`. Raises ConfigError or SpecError when the job
    cannot be planned.
    """
    topology = topology or locate(spec, facts)
    members = members or assume_members(topology, facts, spec.network.asked)
    check_networks(spec, facts, topology, members, replaced)
    launcher = _launcher(spec, topology)
    name = launcher.__name__.rpartition(".")[2]
    places = working(topology, members, replaced)
    launch = _launch(spec, launcher, name, places)
    if topology.spares and launch.needs_rank_table:  # which gives each node a fixed place
        raise no_spares(spec, f"{name} takes each node's ranks from a rank table")
    mode, no_roll_call = _mode(spec, topology, launch, name)
    spec_env = spec.env if leader_env is None else leader_env
    launch = _with_env(launch, facts, spec_env, topology)
    launch = _with_logs(launch, spec, topology)
    share = cpus.share(spec, facts, places, launch, spec_env)
    env = _env(spec, facts, places, launch, leader_env)
    env = _effective((*share, *env), {*inherited(facts.env), *facts.mpi_params})
    files = [*launch.files, *_env_files(launch, facts, env)]
    if mode == "coordinated":
        files += _ssh_files(spec, facts, topology, members)
    return Plan(
        topology=topology,
        launcher=name,
        launch=launch,
        env=env,
        files=tuple(files),
        mode=mode,
        members=members,
        no_roll_call=no_roll_call,
        later=_later(spec, topology, launch, mode, members),
    )


def _with_env(
    launch: Launch, facts: Facts, spec_env: Collection[str], topology: Topology
) -> Launch:
    """Return the launch without the defaults for which the user has a value, and without the
    corrections of what the container does not have; with the home that `_account` gives."""
    users = {*inherited(facts.env), *facts.mpi_params, *spec_env}
    programs = tuple(
        replace(
            program,
            env=tuple(
                var
                for var in _effective(program.env, users)
                if not var.corrects or var.name in facts.env
            ),
        )
        for program in launch.programs
    )
    env = _effective(launch.ranks.env_of_each, users)
    homes = [var.value for var in _account(facts, topology) if var.name == "HOME"]
    return replace(
        launch,
        programs=programs,
        ranks=replace(launch.ranks, env_of_each=env),
        folders=(*launch.folders, *homes),
    )


def _env_files(launch: Launch, facts: Facts, env: tuple[EnvVar, ...]) -> list[File]:
    """Return the file with the environment of this node's ranks, if a daemon starts them."""
    if not launch.ranks.kind.by_daemons:
        return []
    of_each = {var.name for var in launch.ranks.env_of_each}
    variables = environment(facts.env, env).items()
    text = "".join(f"{name}={value}\0" for name, value in variables if name not in of_each)
    return [File(supervised.ENV_FILE, text, "the environment", secret=True)]


def unused_log_dir(spec: JobSpec, plan: Plan) -> str:
    """Return a warning if the user names a directory for logs and nothing writes one; else "".

    A variable gives none: it may be there for other jobs. One node of a job says it.
    """
    topology = plan.topology
    is_asked = spec.source("log_dir").origin in ("flag", "spec")
    is_used = topology.log_dir in plan.launch.folders or spec.netcheck.when == "before"
    if not is_asked or is_used or not topology.is_leader:
        return ""
    where = spec.setting("log_dir")
    hint = "add --log-files ranks for a copy of each rank's output, or remove it"
    return f"EP131 nothing writes logs into {topology.log_dir} | {where} | {hint}"


def unshown(spec: JobSpec, plan: Plan) -> str:
    """Return a warning if `logs.show` names no rank of the job, so that none is printed; else "".
    One node of a job says it."""
    show = spec.logs.show
    if show == logs.ALL or not plan.topology.is_leader:
        return ""
    if any(int(part.partition("-")[0]) < plan.ranks for part in show.split(",")):
        return ""
    detail = f"{spec.setting('logs.show')} is {show}; {count(plan.ranks, 'rank')}, from 0"
    return f"EP131 logs.show names no rank of this job | {detail} | name some, or remove it"


def _with_logs(launch: Launch, spec: JobSpec, topology: Topology) -> Launch:
    """The launch, with what the logs that were asked for need."""
    if spec.logs.files == "ranks":
        launch = replace(launch, folders=(*launch.folders, topology.log_dir))
    # these keep lines apart, too
    labels = any(program.label for program in launch.programs) and not spec.logs.lines
    if launch.programs and (launch.ranks.tagged or (len(launch.programs) > 1 and not labels)):
        options = replace(spec.logs, files="none")
        arguments = logs.options(
            options, topology, through=launch.ranks.tagged or "pipe", mixed=True
        )
        unite = (topology.python, "-I", "-S", supervised.UNITE, *arguments)
        launch = replace(launch, ranks=replace(launch.ranks, unite=unite))
    return launch


def environment(container_env: Mapping[str, str], extra: tuple[EnvVar, ...]) -> dict[str, str]:
    """Return the program's environment: the container's, without the entrypoint's own variables
    and those that number a rank, and with those that the plan adds."""
    result = {n: value for n, value in inherited(container_env).items() if n not in _HIDDEN}
    result.update({var.name: var.value for var in extra})
    return result


def installed(facts: Facts, program: str) -> tuple[EnvVar, ...]:
    """Return the variables with which a program of an MPI that is not on PATH, or was moved, runs,
    as its own script would set them; none if it runs without."""
    place = facts.installed.get(program)
    if place is None:
        return ()
    origin = f"{program} in {place.folder}"
    env = facts.env
    path = env.get("PATH", "").split(":")
    known = [folder for folder in env.get("LD_LIBRARY_PATH", "").split(":") if folder]
    added = [folder for folder in place.libraries if folder not in known]
    found = []
    if place.folder not in path:
        found.append(EnvVar("PATH", ":".join(filter(None, (*path, place.folder))), origin))
    if added:
        found.append(EnvVar("LD_LIBRARY_PATH", ":".join((*added, *known)), origin))
    if place.prefix:
        found.append(EnvVar("OPAL_PREFIX", place.prefix, origin, default=True))
    return tuple(found)


def with_installed(facts: Facts, program: str) -> dict[str, str]:
    """Return the environment in which this program runs."""
    return {**facts.env, **{var.name: var.value for var in installed(facts, program)}}


def with_supervisor(
    launch: Launch, number: int, spec: JobSpec, topology: Topology
) -> tuple[str, ...]:
    """The command line of `ranks/supervise.py` with this launch's program of that number."""
    program = launch.programs[number]
    options = ["--number", str(number), "--linger", f"{spec.timeouts.grace:g}"]
    if program.label:
        options += ["--label", f"[{program.label}] "]
    if program.rank and not launch.becomes_program:
        options += ["--nested", str(program.rank)]
    if launch.becomes_program and topology.me and spec.calls(len(topology.nodes)):
        options += ["--nested", f"node {topology.me}"]
    if launch.forwards:
        options += ["--signals", "group"]
    through = "pipe" if launch.ranks.unite else "ranks" if launch.ranks.kind.in_programs else ""
    if not launch.ranks.kind.have_supervisors:
        options += supervised.steps(spec.stall.line)
    rank = "" if program.rank is None else str(program.rank)
    mixed = bool(through) and topology.this.slots > 1
    options += logs.options(spec.logs, topology, rank, through, program.log, mixed)
    return (*supervised.command(topology, *options), "--", *program.argv)


def rendered(spec: JobSpec, facts: Facts, origin: str) -> list[File]:
    """What `entrypoint render` writes: the script of each launcher that has one, and sshd's
    configuration."""
    topology = locate(spec, facts)
    files = [_sshd_config(spec, facts, topology, origin)]
    for name in names("launchers"):
        if write := getattr(load("launchers", name), "script", None):
            files.append(write(spec, topology, origin))
    return files


def _launcher(spec: JobSpec, topology: Topology) -> ModuleType:
    """The launcher asked for; else what platform or device ask for; else mpirun for many ranks, and
    plain for one."""
    default = "mpirun" if topology.world_size > 1 else "plain"
    return load("launchers", spec.launcher or topology.launcher or default)


def _mode(
    spec: JobSpec, topology: Topology, launch: Launch, launcher: str
) -> tuple[Literal["exec", "local", "coordinated"], str]:
    """Return what this node does; and the setting by which several nodes hold no roll call, where
    one does.

    Raises ConfigError where that setting meets another one that needs the roll call.
    """
    no_roll_call, nodes = "", len(topology.nodes)
    if spec.calls(nodes):
        return "coordinated", ""
    if nodes > 1:
        no_roll_call = f"roll_call: none ({spec.source('roll_call')})"
        if needy := _needs_roll_call(spec, launch, launcher):
            hint = f"remove roll_call, and give all nodes a secret; or do without {needy}"
            raise ConfigError(f"EP313 {needy} needs the roll call", no_roll_call, hint)
    has_supervisor = spec.logs.any or spec.stall.any or spec.timeouts.job is not None
    has_supervisor = has_supervisor or topology.platform in READ_REASONS
    is_program = launch.becomes_program and not has_supervisor and not spec.restarts.most
    return "exec" if is_program else "local", no_roll_call


def _needs_roll_call(spec: JobSpec, launch: Launch, launcher: str) -> str:
    """Return what cannot do without a roll call on several nodes, as its user knows it; "" for
    nothing."""
    needy = {
        f"launcher {launcher}": launch.needs_roll_call,
        "netcheck.when: before": spec.netcheck.when == "before",
        f"restarts: {spec.restarts.most}": spec.restarts.most > 0,
        f"spares: {spec.spares}": spec.spares > 0,
        "success: first": spec.success == "first",
        "ssh.client: files": spec.ssh.client == "files",
    }
    return next((name for name, needs in needy.items() if needs), "")


def _launch(spec: JobSpec, launcher: ModuleType, name: str, topology: Topology) -> Launch:
    """Return what the launcher of this name starts.

    Raises ConfigError if there is no program, or if the launcher cannot do what is asked for,
    SpecError if the program is a launcher itself.
    """
    if not (spec.command and spec.command[0]):
        raise ConfigError(
            "EP115 there is no program to run",
            "no command in the spec, none after --",
            "add: -- python train.py, or the spec that names it: --spec job.yaml",
        )
    launch = planned(spec, topology, name, launcher.plan)
    return launch if spec.success == "all" else _ending_with_first(spec, launch)


def _ending_with_first(spec: JobSpec, launch: Launch) -> Launch:
    """Return the launch of a job that has succeeded when its first rank has.

    Raises ConfigError if nobody knows which one that is.
    """
    is_unknown = launch.completion == "leader" and not launch.ranks.kind.have_supervisors
    if is_unknown or spec.elastic:
        raise ConfigError(
            f"EP120 it is not known which rank is the first ({spec.source('success')})",
            f"success: first, {'the launcher starts ranks by ssh' if is_unknown else 'nodes'}",
            f"remove success, or {'ssh.client' if is_unknown else 'nodes'}",
        )
    return replace(launch, ends_with_first=True)


def _interface_note(spec: JobSpec, report: NodeReport) -> str:
    if spec.network.asked and report.interface:
        name = report.interface.name
        return f"network interface: {name} here; the roll call brings the other nodes' names"
    if len(report.interfaces) > 1 and not spec.network.asked and not spec.mpi.interface:
        return (
            "network interface: from the roll call, the one that it comes over, of"
            f" {', '.join(report.interfaces)}; or set network.interface"
        )
    return ""


def _later(
    spec: JobSpec, topology: Topology, launch: Launch, mode: str, members: Members
) -> tuple[str, ...]:
    """What only the run can know, and what is done about it."""
    calls = mode == "coordinated"
    least = launch.min_nodes
    spare = "a spare takes the place of a lost node when the job boots again"
    if not spec.restarts.most:
        why = "the job never boots again (restarts)"
        spare = f"no spare takes the place of a lost node, since {why}"
    notes = [
        (
            topology.pre_start,
            f"start hook {topology.pre_start}: what it exports is for the ranks of this node",
        ),
        (calls and members.assumed, _interface_note(spec, members.reports[topology.me])),
        (
            calls and spec.netcheck.when == "before",
            "network: measured before the program starts, and the job ends with 75 where it is not"
            " fit",
        ),
        (
            calls and least is not None,
            f"nodes: those that are there, {spec.timeouts.join:g}s (timeouts.join) after {least} of"
            " these are there; the launcher numbers the ranks, anew when nodes come or go",
        ),
        (
            topology.spares,
            f"nodes: {topology.working} of these {len(topology.nodes)} work at a time; {spare}",
        ),
        (
            launch.needs_rank_table and not members.cards,
            "ranks and devices: from the rank table once it is there; those shown are counted node"
            " by node",
        ),
        (
            calls,
            f"run directory: where {topology.run_dir} cannot be used, another one, to tell the"
            " nodes why",
        ),
    ]
    return tuple(note for applies, note in notes if applies and note)


def _effective(env: tuple[EnvVar, ...], names: Collection[str]) -> tuple[EnvVar, ...]:
    """Without the defaults for which the user has a value."""

    def chosen(var: EnvVar) -> bool:
        return var.name in names or bool(
            var.chosen_by and any(re.match(var.chosen_by, name) for name in names)
        )

    return tuple(var for var in env if not (var.default and chosen(var)))


def _env(
    spec: JobSpec,
    facts: Facts,
    topology: Topology,
    launch: Launch,
    leader_env: Mapping[str, str] | None,
) -> tuple[EnvVar, ...]:
    device = [
        EnvVar(name, value, f"device {topology.device.kind}", True)
        for name, value in topology.device.env.items()
    ]
    spec_env = [
        EnvVar(name, value, str(spec.source(f"env.{name}"))) for name, value in spec.env.items()
    ]
    if leader_env is not None:
        spec_env = [EnvVar(name, value, "worker-0's spec") for name, value in leader_env.items()]
    run_dir = EnvVar("ENTRYPOINT_RUN_DIR", topology.run_dir, topology.origin("run_dir"))
    return (
        *_account(facts, topology),
        *device,
        *installed(facts, launch.ranks.name),
        *network(spec, facts, topology.report),
        *launch.ranks.env,
        *spec_env,
        *_own_stacks(spec, facts, spec_env),
        run_dir,
        *attempt_env(spec, topology),
    )


def _account(facts: Facts, topology: Topology) -> list[EnvVar]:
    """Return a name, and a home that it may write to, for a uid without a passwd entry; none if it
    has one. `getpass.getuser()`, which torch's compiler calls, fails without, and so do caches."""
    if facts.user:
        return []
    origin = f"uid {facts.uid} has no passwd entry"
    names = "(LOGNAME|USER|LNAME|USERNAME)$"  # the first that is set counts
    found = [EnvVar("USER", f"uid{facts.uid}", origin, default=True, chosen_by=names)]
    if facts.env.get("HOME", "") in ("", "/"):
        found.append(EnvVar("HOME", f"{topology.run_dir}-home", origin))
    return found


def _own_stacks(spec: JobSpec, facts: Facts, spec_env: list[EnvVar]) -> list[EnvVar]:
    """Return the variable by which each Python of a rank can print its stack on a signal."""
    if not spec.stall.signals:
        return []
    before = {var.name: var.value for var in spec_env}.get(
        "PYTHONPATH", facts.env.get("PYTHONPATH", "")
    )
    path = f"{supervised.OWN_STACKS}:{before}" if before else supervised.OWN_STACKS
    return [EnvVar("PYTHONPATH", path, "stall.stacks")]


def network(spec: JobSpec, facts: Facts, report: NodeReport) -> list[EnvVar]:
    """Return the interface that libraries take: the configured one, otherwise the roll call's if
    there are several. Gloo would listen where this host's own name leads, which may be loopback, so
    it always gets the roll call's."""
    setting = spec.network.asked
    if not setting and (patterns := spec.mpi.interface):
        origin = str(spec.source("mpi.interface"))
        # Networks are for Open MPI alone; Gloo fails where one of several names is not there.
        names = ["NCCL_SOCKET_IFNAME"] if "/" not in patterns else []
        names += ["GLOO_SOCKET_IFNAME"] if not set(patterns) & set("/,") else []
        return [EnvVar(name, patterns, origin, default=True) for name in names]
    origin = str(spec.source("network.interface")) if setting else "the roll call"
    name = report.interface.name if report.interface else ""
    values = {"GLOO_SOCKET_IFNAME": name} if name else {}
    # NCCL and HCCL take a name without `=` for the beginning of one
    if interfaces.of_node(report, setting):
        values |= {"NCCL_SOCKET_IFNAME": f"={name}", "HCCL_SOCKET_IFNAME": f"={name}"}
    addresses = [interface.address for interface in facts.interfaces if interface.name == name]
    if addresses and all(":" in address for address in addresses):
        # Else HCCL, and NCCL under mpirun, look for IPv4 alone.
        values |= {"NCCL_SOCKET_FAMILY": "AF_INET6", "HCCL_SOCKET_FAMILY": "AF_INET6"}
    return [EnvVar(variable, value, origin, default=True) for variable, value in values.items()]


def session_env(facts: Facts, topology: Topology, launcher: str = "") -> dict[str, str]:
    """The environment of what is started for another node: the roll call's session, and the daemon
    of this launcher."""
    # With a shell above it, as this level says, bash leaves the user's ~/.bashrc alone, which may
    # print, or wait. And daemons of nodes that share a machine make and remove each other's files
    # where they have one folder for them.
    env = {
        "ENTRYPOINT_RUN_DIR": topology.run_dir,
        "SHLVL": "1",
        "TMPDIR": f"{topology.run_dir}/tmp",
    }
    container = with_installed(facts, launcher)
    return env | {
        name: container[name]
        for name in ("PATH", "LD_LIBRARY_PATH", "OPAL_PREFIX")
        if container.get(name)
    }


def _ssh_files(spec: JobSpec, facts: Facts, topology: Topology, members: Members) -> list[File]:
    files = [
        _sshd_config(spec, facts, topology),
        File("host_key", "", "this job's keys", secret=True),
        File("authorized_keys", "", "this job's keys"),
    ]
    if topology.naming:
        files.append(File("passwd", "", "a name for this uid, for sshd and ssh alone"))
    if spec.ssh.client == "files" and topology.is_leader:
        files += _client_files(spec, topology, members)
    return files


def _client_files(spec: JobSpec, topology: Topology, members: Members) -> list[File]:
    """What an ssh client needs to log in to the nodes."""
    peers = [
        {"host": node.host, "address": report.address, "port": report.ssh_port or node.ssh_port}
        for node, report in zip(topology.nodes, members.reports, strict=True)
    ]
    context = {
        "origin": "the roll call",
        "run_dir": topology.run_dir,
        "user": topology.user,
        "port": peers[0]["port"],
        "alive_interval": _alive_interval(spec),
        "peers": peers,
        "library": topology.naming,
    }
    return [
        file("ssh/ssh_config.j2", context),
        replace(file("ssh/ssh.sh.j2", context, 0o700), name="ssh"),
        File("client_key", "", "this job's keys", secret=True),
        File("known_hosts", "", "this job's keys"),
    ]


def _alive_interval(spec: JobSpec) -> int:
    """Seconds of silence after which sshd and ssh ask the other side."""
    return math.ceil(heartbeat.interval(spec.timeouts.heartbeat))


_OWN = "`entrypoint run` has made the keys, and starts sshd with this file."
_SAMPLE = (
    "A sample: `entrypoint run` does not read this file; it renders its own at each start, with"
    " keys from the job's secret."
)
_BY_HAND = "ssh-keygen -t ed25519 -N '' -f host_key"


def _sshd_config(spec: JobSpec, facts: Facts, topology: Topology, sample: str = "") -> File:
    """Return sshd's configuration on this node, or a sample of it with this origin."""
    env = session_env(facts, topology)
    if sample:  # the rest is this machine's, or made by `run`, and a sample is for others
        env = {"ENTRYPOINT_RUN_DIR": topology.run_dir}
    context = {
        "origin": sample or "the job's spec",
        "about": _SAMPLE if sample else _OWN,
        "user": topology.user,
        "run_dir": topology.run_dir,
        "host_key": f"a copy of {spec.ssh.host_key}" if spec.ssh.host_key else _BY_HAND,
        "alive_interval": _alive_interval(spec),
        "root_login": "no" if facts.uid else "prohibit-password",
        "startups": max(256, 2 * len(topology.nodes)),
        "login_grace": 15,
        "session_env": env,
        "more": _more_for_sshd(topology, forced=spec.ssh.client == "none" and not sample),
    }
    return file("ssh/sshd_config.j2", context, 0o644 if sample else 0o600)


def _more_for_sshd(topology: Topology, forced: bool) -> str:
    """The lines of sshd's configuration that only some nodes have; `forced`: a session gets the
    roll call's command."""
    this = topology.this
    lines = [f"Port {this.ssh_port}"] if this.ssh_port else []  # or sshd gets it as an argument
    if this.address:
        lines.append(f"ListenAddress {quote_ssh(this.address)}")
    if forced:
        lines.append(
            "# Whatever a session asks for, it gets the roll call's; `entrypoint run` writes it."
        )
        lines.append(f"ForceCommand exec sh {quote_ssh(topology.run_dir + '/attend')}")
    return "\n".join(lines)
