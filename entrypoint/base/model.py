"""The frozen values the whole run is made of; no logic beyond their invariants.

Facts -> Site, Device -+
                       +-> Topology -> (roll call) -> Members -> Plan -> Outcome
YAML + env -> JobSpec -+
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal

from entrypoint.base.history import FIRST, History
from entrypoint.base.kept import RanksForm
from entrypoint.base.rankkind import AS_PROGRAMS, RankKind
from entrypoint.base.values import field, frozen

if TYPE_CHECKING:
    from entrypoint.base.cause import Cause, Exclusion, Saved

EnvVars = tuple["EnvVar", ...]
Origin = Literal["flag", "env", "spec", "platform", "default", "the roll call", "call-in"]


@frozen
class Source:
    """The source of a value: its origin, and the flag, variable or file position itself."""

    origin: Origin
    where: str = ""

    def __str__(self) -> str:
        return f"{self.origin} {self.where}".strip()


DEFAULT = Source("default")

# --------------------------------------------------------------------------------------------------
# What this container is


@frozen
class Interface:
    """A network interface that is up and not the loopback one, with one of its addresses."""

    name: str
    address: str
    network: str  # such as 10.0.0.0/24


@frozen
class Installation:
    """A program that is on no PATH or was moved: its place, and what it needs to run from there."""

    folder: str  # of its programs
    libraries: tuple[str, ...] = ()  # folders of libraries, the first wins
    prefix: str = ""  # of a moved Open MPI, which otherwise looks where it was built for


@frozen
class Facts:
    """The facts about this container, read once by `system/facts.py` before anything is decided."""

    env: Mapping[str, str] = field(repr=False)  # it holds secrets
    hostname: str
    cwd: str
    uid: int
    user: str  # name of `uid` in the passwd file, "" where it has no entry
    home: str
    # entries of /dev, where a device's adapter looks for its own
    device_files: tuple[str, ...] = ()
    # name -> absolute path, of those we may start; `sh` only if it is the toolkit's
    programs: Mapping[str, str] = field(default_factory=dict)
    mpi: str = ""  # version of Open MPI, "" where there is none
    # name -> where, of an MPI's program that does not run by PATH alone
    installed: Mapping[str, Installation] = field(default_factory=dict)
    cpus: float | None = None  # that we may use at a time; None where it is not known
    cpu_pool: str = ""  # names these CPUs: others with this name share them; "" where not known
    python: str = "python3"  # the interpreter we run in
    interfaces: tuple[Interface, ...] = ()  # looked at again after the start hooks
    mpi_params: tuple[str, ...] = ()  # names of the parameters that Open MPI's own files set
    # path -> content, of those that platforms write
    files: Mapping[str, str] = field(default_factory=dict, repr=False)
    scripts: tuple[str, ...] = ()  # users' own, which a platform's own boot would run first
    end_hooks: bool = False  # whether there are programs to run at the end
    temp: str = "/tmp"  # the folder for files of a job, which some images do not have


@frozen
class Site:
    """The platform that started us: the hosts, which of them is this one, and each value's origin.

    `hosts` is empty and `index`, `slots` are None where the platform does not say.
    """

    platform: str
    hosts: tuple[str, ...] = ()
    index: int | None = None
    leader: str = ""  # the address of worker-0, where the platform names no hosts
    nodes: int = 0  # how many there are then
    slots: int | None = None
    job: str | None = None
    # field of JobSpec -> variable it came from
    origins: Mapping[str, str] = field(default_factory=dict)
    # Field of JobSpec that the platform should say and does not -> what failed, what was seen, what
    # to do. An error only where the spec does not say it either: what the error asks the user to
    # set must cure it.
    unknown: Mapping[str, tuple[str, str, str]] = field(default_factory=dict)
    # what each host does ("worker", "ps"), where they do not all do the same
    tasks: tuple[str, ...] = ()
    # the first host coordinates the others, which serve it, as TensorFlow's chief
    chief: bool = False
    # where the program of each host listens, where the platform gave it one
    ports: tuple[int, ...] = ()
    launcher: str | None = None  # what starts the ranks, where the platform was told
    log_dir: str | None = None  # where the platform collects logs
    # script that the platform's own boot would run first, in the folder above its own
    pre_start: str | None = None
    ends: int = 0  # when the platform ends the job, in seconds of Unix time; 0 if it is unknown
    earlier: int = 0  # how often it has started the job again


@frozen
class Device:
    """The hardware that the ranks of this node use."""

    kind: str
    count: int  # accelerators in this container; 0 on a CPU node
    origin: str
    # defaults for the ranks; anything the user set wins
    env: Mapping[str, str] = field(default_factory=dict)
    cards: tuple[int, ...] = ()  # number of each accelerator on its machine, where it matters
    # what starts the ranks on this hardware, where it is not like others
    launcher: str | None = None


@frozen
class Access:
    """The settings that give a container cards of one kind, in the words of each system that starts
    containers."""

    resource: str = ""  # what its Kubernetes device plugin calls a card
    # what Docker calls its own driver for such cards, which takes them by their numbers
    driver: str = ""
    # device file of a card where there is no such driver; {} in it is the card's number
    card: str = ""
    visible: str = ""  # variable that narrows the cards of a process, a list of their positions
    files: tuple[str, ...] = ()  # further device files, that every container with such a card needs
    folders: tuple[str, ...] = ()  # of the machine, which such a container reads


# --------------------------------------------------------------------------------------------------
# What follows from both

SSH_PORT = 36666  # the default of `ssh.port`


def of_task(port: int, task: str) -> int:
    """Return the port of a node with this task, where a worker's is `port`: a parameter server may
    have the same machine's network, so its port is the next one."""
    if task == "worker":
        return port
    return port + 1 if port < 65535 else port - 1


def node_name(label: str, host: str) -> str:
    """Return what messages call a node: its label, with its host name if that is another: `worker-3
    (gpu-17)`."""
    return label if label == host else f"{label} ({host})"


@frozen
class Node:
    """One container of the job."""

    rank: int
    host: str  # name in the hostfile
    slots: int
    address: str | None = None  # fixed address where the user gave one; else DNS says
    task: str = "worker"  # what it does: "worker", or "ps" for a parameter server
    index: int = 0  # among the nodes of its task
    port: int | None = None  # where its program listens, where the platform gave it one
    ssh_port: int = SSH_PORT  # where its sshd listens; 0: the job's keys determine it

    @property
    def where(self) -> str:
        """Return where the other nodes reach it: its fixed address, else its name."""
        return self.address or self.host

    @property
    def label(self) -> str:
        """Return what people call it, such as `worker-3`."""
        return f"{self.task}-{self.index}"

    @property
    def name(self) -> str:
        """Return what messages call it: `worker-3 (gpu-17)`."""
        return node_name(self.label, self.host)


@frozen
class NodeReport:
    """A node's report about itself at the roll call."""

    rank: int
    slots: int
    toolkit: str  # version of this package there
    mpi: str = ""  # version of Open MPI there, "" where there is none
    address: str = ""  # where the leader reached it
    clock: float = 0.0  # its wall clock minus the leader's, seconds
    not_ready: Outcome | None = None  # why it cannot take part
    interface: Interface | None = None  # that the roll call came over
    interfaces: tuple[str, ...] = ()  # the names of all
    history: History = FIRST  # of the attempt that it is at, as far as it knows
    # seconds of a packet from the leader and back; 0 where that is not known
    round_trip: float = 0.0
    # first ports that the launcher's programs can have there, the best one first; None: they take
    # any
    ports: tuple[int, ...] | None = None
    holder: str = ""  # who has the planned one, where it is not among them
    ssh_port: int = 0  # where its sshd listens; 0: unknown
    checking: bool = False  # it still checks itself, and reports the end of that
    leader_lost: float = 1e9  # seconds since it has lost a leader in silence
    cpu_pool: str = ""  # as in Facts
    neighbours: tuple[int, ...] = ()  # slots of each other node of the job that shares its CPUs

    @property
    def mpi_major(self) -> str:
        """The first number of the version of Open MPI there."""
        return self.mpi.split(".")[0]


@frozen
class Cards:
    """This node's accelerators, as the platform's rank table describes them."""

    table: str  # the whole table, as HCCL reads it
    ranks: tuple[int, ...]  # of this node's processes
    devices: tuple[int, ...]  # the accelerator of each: its position among the container's, from 0
    size: int  # ranks in all


@frozen
class Members:
    """Everyone's answer, in rank order. `assumed` where it was made up for a dry run."""

    reports: tuple[NodeReport, ...]
    assumed: bool = False
    cards: Cards | None = None  # once the rank table was there, for a launcher that waits for it


@frozen
class Topology:
    """The nodes and processes of the job, seen from node `me`."""

    job: str
    nodes: tuple[Node, ...]
    me: int
    platform: str
    device: Device
    run_dir: str  # this node's own; another node's may lie elsewhere
    user: str  # who ssh logs in as
    log_dir: str = ""  # this node's own
    workdir: str = "/"  # of this node's programs
    python: str = "python3"  # the interpreter that our processes run in
    interpreter: str = "python"  # the one of the job's programs, where they name none
    naming: str = ""  # library that gives ssh a name for this node's uid, where it has none
    # the platform's script for this node, to run after its other start hooks; "" for none
    pre_start: str = ""
    launcher: str | None = None  # what platform or device ask for
    chief: bool = False  # worker-0 is TensorFlow's chief
    job_id: str = ""  # the scheduler's number of this job, where it has one
    ends: int = 0  # as in Site
    history: History = FIRST  # of this boot, among those that `restarts` allows
    spares: int = 0  # how many of the nodes wait at a time, for one that is lost
    members: Members = Members(())  # of an attempt, whose nodes these are; a launcher's view
    origins: Mapping[str, Source] = field(default_factory=dict)

    def __post_init__(self) -> None:
        assert [node.rank for node in self.nodes] == list(range(len(self.nodes)))
        assert 0 <= self.me < len(self.nodes)

    @property
    def hosts(self) -> tuple[str, ...]:
        """The hosts of all nodes, in rank order."""
        return tuple([node.host for node in self.nodes])

    @property
    def of_attempt(self) -> str:
        """Return what the names of this attempt's logs end with: nothing for the first one."""
        return f"-attempt-{number}" if (number := self.history.number) > 1 else ""

    @property
    def leader(self) -> Node:
        return self.nodes[0]

    @property
    def this(self) -> Node:
        return self.nodes[self.me]

    @property
    def report(self) -> NodeReport:
        """Return what this node said at the roll call."""
        return self.members.reports[self.me]

    @property
    def is_leader(self) -> bool:
        return self.me == 0

    @property
    def call_in(self) -> str:
        """Return the address at which the nodes call in; "" if the hosts are named."""
        source = self.origins.get("hosts")
        return source.where if source and source.origin == "call-in" else ""

    @property
    def has_peers(self) -> bool:
        return len(self.nodes) > 1

    def origin(self, field: str) -> str:
        """Return where a field comes from; "" where that is not known."""
        return str(self.origins.get(field, ""))

    def name(self, rank: int) -> str:
        """Return what messages call a node: `worker-3 (gpu-17)`; the only one of a job by its
        host."""
        return self.nodes[rank].name if self.has_peers else self.nodes[rank].host

    @property
    def peers(self) -> tuple[Node, ...]:
        """Every node but this one."""
        return tuple(node for node in self.nodes if node.rank != self.me)

    @property
    def working(self) -> int:
        """Return how many nodes work at a time."""
        return len(self.nodes) - self.spares

    @property
    def world_size(self) -> int:
        """Ranks in all."""
        return sum(node.slots for node in self.nodes[: self.working])

    @property
    def first_rank(self) -> int:
        """Return how many ranks the nodes before this one have."""
        return sum(node.slots for node in self.nodes[: self.me])


@frozen
class File:
    """A file that the run writes into its run directory. The text of a secret one is never
    printed."""

    name: str
    text: str
    origin: str  # the template it was rendered from
    mode: int = 0o600
    secret: bool = False


@frozen
class EnvVar:
    """A variable added to the program's environment; a user's own value wins over a `default`
    one."""

    name: str
    value: str
    origin: str
    default: bool = False
    # pattern of other variables, or parameters in Open MPI's files, that say the same as a default
    chosen_by: str = ""
    corrects: bool = False  # only where the container has a variable of this name


def usual(
    name: str, value: str, origin: str, chosen_by: str = "", corrects: bool = False
) -> EnvVar:
    """Return a variable over which a user's own value wins."""
    return EnvVar(name, value, origin, True, chosen_by, corrects)


@frozen
class Program:
    """One program that this node starts."""

    argv: tuple[str, ...]
    env: EnvVars = ()  # for it alone
    # what people call it, and what begins each line it prints, where a node has several
    label: str = ""
    log: str = ""  # path of a file that gets what it prints, too
    rank: int | None = None  # its number among all ranks, where it is one
    # the file of the run directory that builds the launcher's command line, where one does
    script: str = ""


@frozen
class LaunchRanks:
    """A launcher's way of starting ranks and of treating their output."""

    # Its name in messages about them, and what decides which network they use.
    name: str = ""
    network_hint: str = ""
    kind: RankKind = AS_PROGRAMS
    # that it starts on all nodes, a slot each. None: one for each program of each node
    count: int | None = None
    env: EnvVars = ()  # for the ranks of every node
    crowded_env: EnvVars = ()  # also on a node whose CPUs have more processes
    # of a node that share its CPUs: None for one each slot, 0 if the launcher divides them itself
    processes: int | None = None
    # for each rank its own; the value names the variable that it is taken from
    env_of_each: EnvVars = ()
    agents: bool = False  # it asks here for daemons on other nodes, which their entrypoints start
    # what asks for a daemon is to end when the daemon does, and not once it has started
    agents_stay: bool = False
    # whose way to tag ranks' output where it cuts it (framing.py), where lines are asked for
    tagged: str = ""
    # how ranks are kept that it starts through rank.sh; None where it starts none so
    form: RanksForm | None = None

    @property
    def reported(self) -> int:
        """Return how many ranks the nodes report the start and the end of; 0 where only programs
        are reported."""
        return self.count or 0 if self.kind.report_ends else 0


@frozen
class LaunchPort:
    """The TCP port at which a launcher's programs meet, and those that follow it."""

    first: int  # as the spec has it, in `port`, or the launcher's default
    span: int = 1  # consecutive ports, of which it is the first
    # where programs of this node listen, counted from the first
    here: tuple[int, ...] = ()
    also: tuple[int, ...] = ()  # further ports that they listen on, unless another one is chosen
    everywhere: bool = False  # programs of all nodes listen; else those of worker-0 alone
    # Programs cannot do without it. Else it is only offered to them, and one that the user has set
    # may be taken.
    needed: bool = True


@frozen
class Launch:
    """A launcher's answer: the programs to start on this node, their needs, the way in which ranks
    start, and the processes whose end is the job's."""

    # none: ranks are started from elsewhere, this node waits until released
    programs: tuple[Program, ...] = ()
    files: tuple[File, ...] = ()
    folders: tuple[str, ...] = ()  # to be there before a program starts
    ranks: LaunchRanks = LaunchRanks()
    port: LaunchPort | None = None  # that all nodes have to agree on
    needs_roll_call: bool = False  # many nodes cannot work without one
    needs_programs: tuple[str, ...] = ()  # the launcher's own, which this node must have
    needs_rank_table: bool = False  # starts when the platform has written it
    # what fails where there is IPv6 alone, and what else to do about it
    needs_ipv4: tuple[str, str] | None = None
    # that are enough to start and to go on; others may come and go. None: all
    min_nodes: int | None = None
    # it is the user's program and nothing else: a single node becomes it
    becomes_program: bool = False
    # Whose exit status is the job's: the leader's program, or the first program of any node that
    # fails.
    completion: Literal["leader", "first-failure"] = "first-failure"
    # nodes whose end is the job's; the others only serve them. None: all
    awaited: tuple[int, ...] | None = None
    # the job has succeeded when rank 0 has; what else runs is stopped then
    ends_with_first: bool = False
    # its programs are ranks, and no launcher that SIGUSR1 or SIGUSR2 would end
    takes_signals: bool = True
    # its programs are launchers, which tell the processes that they start of SIGTERM
    forwards: bool = False
    takes_args: bool = False  # it has options of its own, for `launcher_args`
    # the leader's program runs on all nodes, and names the one that failed by its address
    names_nodes: bool = False


@frozen
class Inquiry:
    """An inquiry of a feature: the leader asks the nodes that have answered the roll call (`check`,
    `netcheck`). Both halves come with the plan, since the job imports no feature; their types are
    in job/inquiry.py."""

    name: str  # of the feature, in the task that all nodes must agree on
    # Makes the Dialogue of this plan with these reports of nodes, by rank: what is asked, how
    # answers are read and judged.
    dialogue: Callable[[Plan, Mapping[int, NodeReport]], Any]
    # Makes the Answers of a node with the environment of its programs.
    answers: Callable[[Facts, Plan, Mapping[str, str]], Any]
    # nothing of the job starts; else it starts when its nodes have answered well
    instead: bool = True
    # nodes are asked even if the roll call has failed, or some of them are not ready
    always: bool = False
    is_over: bool = False  # an earlier attempt has had the answers, and nothing is asked any more


@frozen
class Finding:
    """A result of `check` about one thing. `id` names the thing, the same in every release."""

    level: str  # "error": the job would fail; "warning": it may fail, or be slow; "ok"
    id: str
    what: str
    seen: str
    needed: str = ""
    fix: str = ""
    nodes: tuple[str, ...] = ()  # labels of those that it is true of; none: of the job

    @property
    def detail(self) -> str:
        """The second part of a message: the actual value, and what is needed."""
        return f"{self.seen}, needed: {self.needed}" if self.needed else self.seen


@frozen
class Plan:
    """A plan of all that this node will do, made before it does any of it."""

    topology: Topology
    launcher: str
    launch: Launch
    env: EnvVars  # added to the container's variables, for this node's ranks
    files: tuple[File, ...]  # everything written into the run directory
    # We become the program; or we supervise programs, on one node or without a roll call; or the
    # nodes hold one.
    mode: Literal["exec", "local", "coordinated"]
    members: Members
    # the setting by which several nodes hold no roll call, and where it was given
    no_roll_call: str
    # what only the run can know, a sentence each, with what is done about it
    later: tuple[str, ...] = ()
    inquiry: Inquiry | None = None  # before the job's start, or instead of it

    @property
    def workdir(self) -> str:
        return self.topology.workdir

    @property
    def admits_late(self) -> bool:
        """Return whether nodes may come later than the start."""
        return self.launch.min_nodes is not None or self.topology.spares > 0

    @property
    def task(self) -> str:
        """Return what all nodes must agree to do: `mpirun`, `mpirun after netcheck`, `mpirun
        (check)`, `mpirun, spares: 1`."""
        spares = self.topology.spares
        task = f"{self.launcher}, spares: {spares}" if spares else self.launcher
        if self.inquiry is None:
            return task
        return (
            f"{task} ({self.inquiry.name})"
            if self.inquiry.instead
            else f"{task} after {self.inquiry.name}"
        )

    @property
    def roll_call(self) -> Literal["none", "required"]:
        """Return whether the nodes call each other, in a word for people."""
        return "required" if self.mode == "coordinated" else "none"

    @property
    def leads(self) -> bool:
        """Return whether this node decides: it is the first one, or there is no roll call."""
        return self.topology.is_leader or self.mode != "coordinated"

    @property
    def known_nodes(self) -> tuple[int, ...]:
        """The ranks of the nodes whose phases this one knows: a leader's all, a worker's the
        leader's and its own."""
        if self.mode != "coordinated":
            return (self.topology.me,)
        return tuple(range(len(self.topology.nodes))) if self.leads else (0, self.topology.me)

    @property
    def ranks(self) -> int:
        """Return how many ranks the launchers of all nodes start; a program may start more."""
        if self.launch.ranks.count is not None:
            return self.launch.ranks.count
        return len(self.launch.programs) * self.topology.working


@frozen
class Outcome:
    """The end of the job or of one attempt: an exit status and the reason in one sentence."""

    status: int
    reason: str
    # it is a program's own end, whatever a status of ours with that number means
    program: bool = False
    again: bool = False  # only an attempt is over: the job boots again, on every node
    cause: Cause | None = None  # why it failed, as far as that is known
    excluded: tuple[Exclusion, ...] = ()  # nodes that spares have replaced
    saved: Saved | None = None  # what its ranks have saved when they were told to stop
