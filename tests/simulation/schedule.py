"""One schedule of a simulated job: its nodes, their programs, and what goes wrong when. A seed
makes one."""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random

from tests.simulation.gates import AWAITED, Gate, draw_gates

# seconds, in every simulated job
GRACE = 10.0
HEARTBEAT = 5.0
PEERS = 40.0
LAUNCH = 30.0
JOIN = 10.0
LIMIT = 6.0
MEASURES = 20.0  # seconds for the rounds of a network check
PORTS = (6060, 20007, 20011)  # the planned one of torch, and two that can replace it
NEVER = 1e6  # seconds: later than any simulated job may last

# What can happen to a node, and how it is said in a timeline.
KINDS = {
    "kill": "its container is killed",
    "vanish": "its machine is gone without a word",
    "reboot": "its machine is gone without a word, and comes again",
    "cut": "its network is cut for good",
    "blink": "its session breaks, and the network is there",
    "freeze": "it stands still",
    "stop": "SIGTERM",
    "twice": "SIGTERM, and again",
    "user": "SIGUSR1",
    "fail": "a program of it fails",
    "fault": "its sshd dies",
    "lie": "it sends nonsense",
    "forge": "it speaks for the other nodes",
    "daemon": "mpirun's daemon is killed there",
    "stranger": "another leader with the same keys calls it",
}
# the network of a node is cut for so many seconds
SEVER = "sever"
# all sshd processes of a worker are killed; its entrypoint and its ranks are not
DEAF = "deaf"
# the network of a node is cut for good, and it is started again elsewhere
MOVED = "moved"
WORDS = {
    **KINDS,
    MOVED: "it is cut off, and starts elsewhere",
    SEVER: "its network is cut for a while",
    DEAF: "all of its sshd die",
}
# SIGTERM, so many seconds after the end of the node's first attempt that is tried again
BETWEEN = "between"


@dataclass(frozen=True)
class Fault:
    """Something that happens to a node at a time (seconds from the start)."""

    at: float
    kind: str
    node: int
    # how long it lasts; after a kill or SIGTERM, when the container starts again (0: never)
    seconds: float = 0.0
    status: int = 1  # of the program that fails


@dataclass(frozen=True)
class Schedule:
    """All that is decided before a simulated job begins."""

    nodes: int = 2
    launcher: str = "mpirun"
    # a launcher of an elastic job that comes when the others have ended waits; else it fails
    waits: bool = False
    least: int = 0  # nodes that are enough for an elastic job; 0: all are needed
    restarts: int = 0
    starts: tuple[float, ...] = (0.0, 0.0)  # when each container starts
    duration: float = 10.0  # seconds that programs run
    # seconds that a program of each node takes to end after SIGTERM
    save: tuple[float, ...] = (0.0, 0.0)
    latency: float = 0.01  # seconds of a message on its way
    # the worker whose messages take so long, and those of the others a tenth; None: all
    far: int | None = None
    empty: int | None = None  # a node that mpirun starts no rank on
    status: int = 0  # of every program, where nothing goes wrong
    other_version: int | None = None  # a node with another toolkit
    not_ready: int | None = None  # a node that says in its report that it cannot take part
    # a node whose check found nothing, and whose session then has no room
    unwritable: int | None = None
    passes: float = 0.0  # seconds that mpirun then takes to pass on what ranks have printed
    mpirun: str = ""  # "stays" when every rank has ended, or "fails" before it has started one
    faults: tuple[Fault, ...] = ()
    seed: int = 0
    # a `check` instead of a job: seconds that a node takes to look at itself
    look: float | None = None
    hangs: int | None = None  # a node that never ends to look at itself, or to measure
    # a network check before the job: seconds that a node takes for each question
    measure: float | None = None
    slow: int | None = None  # a node whose network misses the limit
    nonsense: int | None = None  # a worker whose answers to the leader's questions are none
    # a node whose programs run in a process group of their own, as under timeout(1)
    apart: int | None = None
    # a worker that ends takes its sshd with it, and what that has not passed on yet
    swept: bool = False
    # what its node finds out about a program that fails by itself: a name in programs.CAUSES, ""
    # for nothing; and the seconds that it takes for that
    cause: str = ""
    diagnosis: float = 0.0
    restarts_on: str = "infrastructure"
    # attempts in a row without progress that end the job; in which of its attempts, one after the
    # other and then again from the first, it makes progress; the node that sees it, and whether it
    # sees it only at the end
    without_progress: int = 0
    progress: tuple[bool, ...] = (False,)
    saver: int = 0
    saves_late: bool = False
    # nodes that wait, for one that is lost; at first the last ones
    spares: int = 0
    # a node on which every program fails by a fault of its device
    sick: int | None = None
    # ports at which programs can meet on each node, None for any; empty: nobody is asked
    ports: tuple[tuple[int, ...] | None, ...] = ()
    stalls: bool = False  # whether the job watches the steps of its ranks
    # the node whose rank hangs soon after its start, so that the others wait for it
    stuck: int | None = None
    liar: int | None = None  # a worker that then speaks for the ranks of all nodes
    asked: tuple[float, ...] = ()  # when a user of worker-0 asks what the ranks do
    gates: tuple[Gate, ...] = ()  # of each node; empty: there are none
    # seconds that the other ranks run longer than the first, whose success is the job's
    after_first: float | None = None
    deadline: float | None = None  # seconds from the start of a container to that of the job
    join: float = JOIN  # seconds for nodes that the job can do without

    @property
    def goes_on(self) -> bool:
        """Whether there may be another attempt, so that a worker that gets SIGTERM leaves."""
        return bool(self.restarts or self.least) and self.look is None

    @property
    def unhealthy(self) -> int | None:
        """The first node that does not pass its gate, if there is one."""
        return min(self.all_unhealthy, default=None)

    @property
    def all_unhealthy(self) -> set[int]:
        """The nodes that do not pass their gates."""
        return {rank for rank, gate in enumerate(self.gates) if not gate.healthy}

    @property
    def has_port(self) -> bool:
        """Whether a port is free on all nodes."""
        offers = [{*offer} for offer in self.ports if offer is not None]
        return not offers or bool(set.intersection(*offers))

    def makes_progress(self, attempt: int) -> bool:
        """Whether a checkpoint is written in this attempt, counted from 1."""
        return bool(self.without_progress) and self.progress[(attempt - 1) % len(self.progress)]

    def of(self, *kinds: str) -> list[Fault]:
        """The faults of these kinds."""
        return [fault for fault in self.faults if fault.kind in kinds]


def draw(random: Random, nodes: int | None = None, seed: int = 0) -> Schedule:
    """A schedule as this source of randomness chooses it."""
    schedule = _spared(Random(f"spares {seed}"), _draw(random, nodes, seed))
    schedule = _returning(Random(f"returns {seed}"), schedule)
    schedule = _gated(Random(f"gates {seed}"), schedule)
    schedule = _stalled(Random(f"stall {seed}"), schedule)
    schedule = _crashing(Random(f"crashes {seed}"), schedule)
    schedule = _limited(Random(f"limits {seed}"), schedule)
    schedule = _suspended(Random(f"suspended {seed}"), schedule)
    schedule = _succeeded(Random(f"again {seed}"), schedule)
    schedule = _leaving(Random(f"leaves {seed}"), schedule)
    source = Random(f"ports {seed}")
    if source.random() > 0.1 or schedule.spares:
        return schedule
    free = source.choice(PORTS)  # on all nodes
    offers = [
        tuple(port for port in PORTS if port == free or source.random() < 0.7)
        for _ in range(schedule.nodes)
    ]
    # In an elastic job, only worker-0 needs it: no launcher of such jobs listens elsewhere.
    others = [None] * (schedule.nodes - 1) if schedule.least else offers[1:]
    return replace(schedule, ports=(offers[0], *others))


def _gated(random: Random, schedule: Schedule) -> Schedule:
    """The same job, at times with a gate on each node. A node of it may not pass if nothing else is
    unusual about the nodes."""
    if schedule.look is not None or random.random() > 0.2:
        return schedule
    gates = draw_gates(random, schedule.nodes)
    if schedule.sick is not None and random.random() < 0.5:  # no spare can take its place
        working = schedule.nodes - schedule.spares
        gates = tuple(Gate(0.2, healthy=rank < working) for rank in range(schedule.nodes))
    odd = {schedule.other_version, schedule.not_ready, schedule.unwritable, schedule.nonsense}
    if schedule.spares and schedule.sick is None and random.random() < 0.15:
        late = random.randrange(1, schedule.nodes)
        gates = tuple(
            Gate(AWAITED + 2.0, healthy=False) if rank == late else Gate(0.5)
            for rank in range(schedule.nodes)
        )
        schedule = replace(schedule, faults=())
    if odd != {None} or schedule.least or schedule.measure is not None:
        gates = tuple(replace(gate, healthy=True) for gate in gates)
    return replace(schedule, gates=gates)


def _draw(random: Random, nodes: int | None, seed: int) -> Schedule:
    size = nodes or random.choice((2, 2, 2, 3, 3, 4, 5, 8, 16))
    late = random.random()
    starts = [random.uniform(0, 2) if late < 0.8 else random.uniform(0, 30) for _ in range(size)]
    if late > 0.97:
        starts[random.randrange(size)] = NEVER  # a node that never comes
    duration = random.choice((0.0, 1.0, 8.0, 20.0))
    begun = max(start for start in starts if start < NEVER) + 1.0
    span = begun + duration + GRACE
    number = random.choice((0, 1, 1, 1, 1, 1, 2, 2, 3)) if size < 100 else 1
    schedule = Schedule(
        nodes=size,
        launcher=random.choice(("mpirun", "mpirun", "torchrun")),
        restarts=random.choice((0, 0, 0, 1, 2)),
        starts=tuple(starts),
        duration=duration,
        save=tuple(random.choice((0.0, 0.5, 5.0, GRACE - 1, GRACE + 5)) for _ in range(size)),
        latency=random.choice((0.001, 0.02, 0.3)),
        status=random.choice((0, 0, 0, 0, 0, 0, 0, 75)),
        mpirun=random.choice(("stays", "fails")) if random.random() < 0.03 else "",
        other_version=random.randrange(1, size) if random.random() < 0.02 else None,
        not_ready=random.randrange(size) if random.random() < 0.03 else None,
        faults=tuple(
            sorted(
                (_fault(random, size, begun, span) for _ in range(number)), key=lambda each: each.at
            )
        ),
        seed=seed,
    )
    if random.random() < 0.05:
        hangs = random.randrange(size) if random.random() < 0.3 else None
        look = random.choice((0.1, 3.0, LIMIT))
        schedule = replace(schedule, restarts=0, status=0, mpirun="", look=look, hangs=hangs)
    elif size in (3, 4, 5) and schedule.launcher == "torchrun" and random.random() < 0.5:
        schedule = _elastic(random, schedule)
    if schedule.look is None and random.random() < 0.1:
        schedule = _measured(random, schedule, begun)
    schedule = replace(
        schedule, swept=random.random() < 0.5, passes=random.choice((0.0, 0.0, 0.0, 4.0))
    )
    schedule = replace(schedule, apart=random.randrange(size) if random.random() < 0.2 else None)
    if random.random() < 0.05 and not schedule.least:
        return _stopped_between(random, schedule, begun)
    if random.random() < 0.03:
        return replace(schedule, unwritable=random.randrange(size))
    if (
        random.random() < 0.02
        and schedule.launcher == "mpirun"
        and not schedule.mpirun
        and schedule.look is None
    ):
        return replace(schedule, empty=random.randrange(size))
    if random.random() < 0.02 and size > 2:
        return _restarted_early(random, schedule)
    return _diagnosed(Random(f"diagnosis {seed}"), schedule, begun)


def _stalled(random: Random, schedule: Schedule) -> Schedule:
    """The same job, or one that watches its steps, most often with a rank that hangs."""
    unusual = schedule.least or schedule.look is not None or schedule.measure is not None
    unusual = unusual or schedule.mpirun or schedule.empty is not None or schedule.cause
    unusual = unusual or schedule.spares or schedule.gates
    if unusual or random.random() > 0.07:
        return schedule
    faults = tuple(fault for fault in schedule.faults[:1] if random.random() < 0.6)
    stuck = random.randrange(schedule.nodes) if random.random() < 0.7 else None
    if random.random() < 0.3:  # its last report is then nearly as old as a stall
        at = max(start for start in schedule.starts if start < NEVER) + random.uniform(3, 15)
        faults = (Fault(at, "freeze", random.randrange(schedule.nodes), HEARTBEAT - 0.5),)
    begun = max(start for start in schedule.starts if start < NEVER)
    asked = tuple(begun + random.uniform(-1, 40) for _ in range(random.choice((0, 1, 2, 3))))
    liar = None
    if schedule.launcher == "mpirun" and random.random() < 0.15:
        liar = random.randrange(1, schedule.nodes)
        faults = ()
    schedule = replace(schedule, stalls=True, stuck=stuck, liar=liar, asked=asked)
    return replace(schedule, status=0, duration=20.0, faults=faults)


def _spared(random: Random, schedule: Schedule) -> Schedule:
    """The same job, or one that has spares, and often loses a node or has a sick one."""
    odd = schedule.look is not None or schedule.least or schedule.empty is not None
    odd = odd or schedule.mpirun or schedule.cause
    if odd or schedule.nodes < 3 or random.random() > 0.3:
        return schedule
    spares = random.choice((1, 1, 2, 3)) if schedule.nodes > 4 else 1
    working = schedule.nodes - spares
    schedule = replace(schedule, spares=spares, restarts=random.choice((1, 2, 3, 5)))
    if schedule.measure is not None:
        return schedule
    chance = random.random()
    if chance < 0.2 and working > 1:
        faults = schedule.faults if random.random() < 0.3 else ()
        sick = random.randrange(1, working)
        return replace(schedule, sick=sick, status=0, cause="device", duration=8.0, faults=faults)
    if chance < 0.6:
        begun = max((start for start in schedule.starts if start < NEVER), default=0.0) + 1.0
        losses = tuple(
            Fault(
                begun + random.uniform(0, 40),
                random.choice(("kill", "vanish", "reboot", "cut")),
                random.randrange(1, schedule.nodes),
                random.choice((0.0, 0.0, 1.0, 20.0)),
            )
            for _ in range(random.choice((1, 1, 2)))
        )
        faults = tuple(sorted(losses, key=lambda fault: fault.at))
        return replace(schedule, faults=faults, duration=20.0, status=0)
    if chance < 0.7 and max(schedule.starts) < NEVER:  # a spare comes back as the job ends
        at = max(schedule.starts) + 3.0
        back = Fault(at, "kill", random.randrange(working, schedule.nodes), random.uniform(4, 7))
        return replace(schedule, faults=(back,), duration=8.0, status=0, latency=0.3)
    return schedule


def _returning(random: Random, schedule: Schedule) -> Schedule:
    """The same job with spares, or one of which a node is away again and again, for a while or with
    another spec: one that waits as a spare, that works, or that comes late."""
    odd = schedule.measure is not None or schedule.sick is not None
    if not schedule.spares or odd or random.random() > 0.4:
        return schedule
    working = schedule.nodes - schedule.spares
    starts = [start % 5 for start in schedule.starts]
    node = random.choice((schedule.nodes - 1, random.randrange(1, working) if working > 1 else 1))
    kinds = (SEVER, SEVER, "freeze", "blink", "kill", "lie")
    at, faults = max(starts) + 1.0, []
    for _ in range(random.choice((1, 2, 3))):
        seconds = random.choice((1.0, HEARTBEAT - 0.5, HEARTBEAT + 2, 3 * HEARTBEAT, 30.0))
        faults.append(Fault(at + random.uniform(0, 15), random.choice(kinds), node, seconds))
        at = faults[-1].at + seconds
    is_late = random.random() < 0.2 and node >= working
    if is_late:
        starts[node] = max(starts) + JOIN + random.uniform(2, 10)
    return replace(
        schedule,
        starts=tuple(starts),
        restarts=8,
        status=0,
        duration=20.0,
        faults=tuple(faults),
        other_version=node if is_late and random.random() < 0.5 else None,
        not_ready=None,
        unwritable=None,
    )


def _diagnosed(random: Random, schedule: Schedule, begun: float) -> Schedule:
    """The same job, or one of which a program fails for a cause that its node finds out, often
    later than the other nodes, and often while something else happens."""
    odd = schedule.look is not None or schedule.least or schedule.mpirun or schedule.measure
    if odd or random.random() > 0.2:
        return schedule
    at = begun + random.uniform(0.5, max(1.0, schedule.duration))
    seconds = random.choice((0.0, 0.1, 0.3))
    failure = Fault(
        at, "fail", random.randrange(schedule.nodes), seconds, random.choice((1, 7, 75))
    )
    others = schedule.faults[:1] if random.random() < 0.5 else ()
    return replace(
        schedule,
        status=0,
        duration=20.0,
        faults=tuple(sorted((*others, failure), key=lambda fault: fault.at)),
        cause=random.choice(("device", "network", "mistake", "guess")),
        diagnosis=random.choice((0.0, 0.4, 3.0, 5.0, 9.0)),
        restarts_on=random.choice(("infrastructure", "infrastructure", "any", "lost-nodes")),
    )


def _crashing(random: Random, schedule: Schedule) -> Schedule:
    """The same job, whose programs fail in each attempt, often while a node is replaced; at times
    by a fault of its device, which costs a job with spares one node after the other."""
    if random.random() > 0.07 or schedule.least or schedule.nodes > 100:
        return schedule
    starts = tuple(start % 5 for start in schedule.starts)
    duration = random.choice((1.0, 3.0))
    faults: tuple[Fault, ...] = ()
    if random.random() < 0.6:
        at = max(starts) + random.uniform(0, 6 * (duration + 1.5))
        node = random.choice((0, random.randrange(schedule.nodes)))
        faults = (Fault(at, random.choice(("kill", "reboot")), node, random.choice((1.0, 5.0))),)
    if schedule.spares and random.random() < 0.5:
        losses = (random.uniform(0, 20) for _ in range(random.choice((1, 2))))
        worker = random.randrange(1, schedule.nodes)
        faults += tuple(Fault(at, "kill", worker, random.choice((0.0, 1.0, 5.0))) for at in losses)
    return Schedule(
        nodes=schedule.nodes,
        launcher=schedule.launcher,
        restarts=random.choice((2, 4, 8)),
        starts=starts,
        duration=duration,
        save=schedule.save,
        latency=schedule.latency,
        status=random.choice((1, 7, 75)),
        faults=tuple(sorted(faults, key=lambda fault: fault.at)),
        seed=schedule.seed,
        spares=schedule.spares,
        stalls=random.random() < 0.4,
        cause="device" if random.random() < 0.2 else "",
        restarts_on="any",
        without_progress=random.choice((1, 2, 2, 3)),
        progress=tuple(random.random() < 0.4 for _ in range(4)),
        saver=random.randrange(schedule.nodes - schedule.spares),
        saves_late=random.random() < 0.5,
        gates=schedule.gates if all(gate.healthy for gate in schedule.gates) else (),
    )


def _succeeded(random: Random, schedule: Schedule) -> Schedule:
    """The same job, or one whose worker-0 is killed at any moment and comes back, or whose worker
    loses its sshd, while ranks use their grace; often the job can do without them."""
    if random.random() > 0.1 or schedule.nodes > 100:
        return schedule
    nodes = random.choice((3, 3, 4, 5))
    kind = random.choice(("spares", "spares", "elastic", "fixed"))
    begun = 3.0 if kind == "elastic" else 1.0
    leader = Fault(
        random.uniform(0, begun + 14),
        random.choice(("kill", "kill", "reboot", MOVED)),
        0,
        random.choice((0.01, 1.0, 1.0, 5.0, 20.0, 60.0)),
    )
    worker = Fault(
        begun + random.uniform(0, 14),
        random.choice((DEAF, DEAF, DEAF, "kill", "cut", "blink", SEVER, MOVED)),
        random.randrange(1, nodes),
        random.choice((0.0, 1.0, 5.0, 3 * HEARTBEAT)),
    )
    faults = random.choice(((leader,), (worker,), (leader, worker)))
    return Schedule(
        nodes=nodes,
        launcher="torchrun" if kind == "elastic" else schedule.launcher,
        least=nodes - 1 if kind == "elastic" else 0,
        waits=schedule.waits,
        restarts=random.choice((1, 3)),
        starts=tuple(random.uniform(0, 0.5) for _ in range(nodes)),
        duration=20.0,
        save=tuple(random.choice((0.0, 5.0, GRACE - 1, GRACE + 5)) for _ in range(nodes)),
        latency=schedule.latency,
        faults=tuple(sorted(faults, key=lambda fault: fault.at)),
        seed=schedule.seed,
        spares=1 if kind == "spares" else 0,
        swept=schedule.swept,
        join=random.choice((0.5, 2.0, JOIN)),
    )


def _leaving(random: Random, schedule: Schedule) -> Schedule:
    """The same job, or one whose workers leave at any moment, some of which come back; often while
    something else happens; or that is told to stop on all nodes, one after the other."""
    if random.random() > 0.1 or schedule.nodes > 100:
        return schedule
    nodes = random.choice((2, 3, 3, 4, 5))
    kind = random.choice(("spares", "elastic", "fixed")) if nodes > 2 else "fixed"
    faults = []
    for _ in range(random.choice((1, 1, 2, 3))):
        back = random.choice((0.0, 1.0, 5.0)) if kind != "fixed" else random.choice((0.1, 1.0, 5.0))
        at, node = random.uniform(0, 28), random.randrange(1, nodes)
        faults.append(Fault(at, random.choice(("stop", "stop", "stop", "twice")), node, back))
    more = random.random()
    if more < 0.3:
        faults = [Fault(faults[0].at + random.uniform(0, 2), "stop", node) for node in range(nodes)]
    elif more < 0.6:
        near = faults[0].at + random.choice((0.0, random.uniform(-2, 6)))
        other = random.choice(("kill", "kill", "reboot", SEVER, "freeze", "blink", "fail", DEAF))
        seconds = random.choice((1.0, HEARTBEAT + 1, 3 * HEARTBEAT))
        faults.append(Fault(max(0.0, near), other, random.randrange(nodes), seconds, 7))
    return Schedule(
        nodes=nodes,
        launcher="torchrun" if kind == "elastic" else schedule.launcher,
        least=random.randrange(1, nodes) if kind == "elastic" else 0,
        waits=schedule.waits,
        restarts=random.choice((0, 1, 3)) if kind == "elastic" else random.choice((1, 3)),
        starts=tuple(random.uniform(0, 0.5) for _ in range(nodes)),
        duration=20.0,
        save=tuple(random.choice((0.0, 0.0, 5.0, GRACE - 1)) for _ in range(nodes)),
        latency=schedule.latency,
        faults=tuple(sorted(faults, key=lambda fault: fault.at)),
        seed=schedule.seed,
        spares=1 if kind == "spares" else 0,
        swept=schedule.swept,
        join=random.choice((0.5, 2.0, JOIN)),
        gates=schedule.gates if len(schedule.gates) == nodes and not schedule.all_unhealthy else (),
    )


def _limited(random: Random, schedule: Schedule) -> Schedule:
    """The same job, or one with a deadline, or one that has succeeded when its first rank has."""
    odd = schedule.least or schedule.look is not None or schedule.stuck is not None
    if odd or random.random() > 0.1:
        return schedule
    last = max(start for start in schedule.starts if start < NEVER)
    if random.random() < 0.5:
        deadline = random.uniform(0.0, last + schedule.duration + GRACE)
        faults = schedule.faults if random.random() < 0.4 else ()
        return replace(schedule, deadline=deadline, faults=faults)
    if schedule.empty is not None or schedule.mpirun or schedule.without_progress:
        return schedule
    schedule = replace(schedule, after_first=random.choice((0.1, 5.0, 60.0)))
    if schedule.spares or schedule.cause or random.random() < 0.7:
        return schedule
    # Another one fails while the first ends.
    at = last + 1.0 + schedule.duration + random.uniform(-0.5, 0.5)
    failure = Fault(at, "fail", random.randrange(1, schedule.nodes), status=7)
    return replace(schedule, faults=(failure,), latency=0.3, status=0)


def _suspended(random: Random, schedule: Schedule) -> Schedule:
    """The same job, or one whose leader, or a worker, or both, are suspended at any moment from just
    before its end is known: for about as long as the others wait, or for longer."""
    if random.random() > 0.06 or schedule.nodes > 100:
        return schedule
    ends = random.choice(("fail", "stop", "stop", "all", "first"))
    at, node = 5.0, random.randrange(schedule.nodes)
    faults = [Fault(at, ends, node, status=6)] if ends in ("fail", "stop") else []
    frozen = random.choice(((0,), (0,), (0, node), (node,)))
    when = random.choice((random.uniform(at - 1, at + 10), random.uniform(at - 0.1, at + 0.4)))
    seconds = random.choice((HEARTBEAT + 0.5, HEARTBEAT + 1.5, 3 * HEARTBEAT))
    faults += [Fault(when, "freeze", each, seconds) for each in sorted({*frozen})]
    return Schedule(
        nodes=schedule.nodes,
        launcher=schedule.launcher,
        restarts=random.choice((0, 2)),
        starts=(0.0,) * schedule.nodes,
        duration=20.0 if faults[0].kind != "freeze" else 4.0,
        save=tuple(random.choice((0.0, 2.0, 8.0)) for _ in range(schedule.nodes)),
        latency=schedule.latency,
        faults=tuple(sorted(faults, key=lambda fault: fault.at)),
        seed=schedule.seed,
        spares=random.choice((0, 1)) if schedule.nodes > 2 else 0,
        after_first=60.0 if ends == "first" else None,
    )


def _measured(random: Random, schedule: Schedule, begun: float) -> Schedule:
    """The same job, whose network is measured before it; often something happens just then."""
    node, last = random.randrange(1, schedule.nodes), random.random()
    measure = random.choice((0.0, 0.3, 2.0))
    faults = schedule.faults
    if random.random() < 0.5:
        spread = (JOIN if schedule.least else 0.0) + 4 * measure + 2.0
        faults = tuple(replace(each, at=begun - 1 + random.uniform(0, spread)) for each in faults)
    return replace(
        schedule,
        measure=measure,
        slow=node if last < 0.1 else None,
        nonsense=node if 0.1 <= last < 0.2 else None,
        hangs=random.randrange(schedule.nodes) if 0.2 <= last < 0.3 else None,
        faults=tuple(sorted(faults, key=lambda each: each.at)),
    )


def _restarted_early(random: Random, schedule: Schedule) -> Schedule:
    """The same job, of which one worker starts again while the roll call waits for the last one."""
    starts = [start % 5 for start in schedule.starts[:-1]]
    node, at = random.randrange(1, schedule.nodes - 1), random.uniform(6, 12)
    restart = Fault(at, random.choice(("kill", "reboot")), node, random.choice((1.0, 5.0)))
    return replace(
        schedule, starts=(*starts, at + 15), least=0, mpirun="", look=None, hangs=None, slow=None, nonsense=None,
        other_version=None,
        not_ready=None, far=None, waits=False, faults=(restart,),
    )  # fmt: skip


def _stopped_between(random: Random, schedule: Schedule, begun: float) -> Schedule:
    """The same job, whose first attempt fails by a node, and which is stopped before the second one
    starts."""
    node = random.randrange(1, schedule.nodes)
    loss = Fault(
        begun + random.uniform(1, 5),
        random.choice(("kill", "daemon")),
        node,
        random.choice((0.0, 1.0, 20.0)),
    )
    nodes = (
        {0, node}
        if random.random() < 0.3
        else {random.choice((0, random.randrange(schedule.nodes)))}
    )
    stops = [
        Fault(NEVER, BETWEEN, each, random.choice((0.0, 0.1, 0.25, 0.5, 2.0)))
        for each in sorted(nodes)
    ]
    if random.random() < 0.3:  # while the attempt ends
        stops = [Fault(loss.at + random.uniform(0, 5), "stop", 0)]
    return replace(
        schedule, launcher="mpirun", restarts=2, status=0, mpirun="", look=None, hangs=None, slow=None, nonsense=None,
        other_version=None,
        not_ready=None, unwritable=None, passes=0.0, duration=20.0, faults=(loss, *stops),
    )  # fmt: skip


def _elastic(random: Random, schedule: Schedule) -> Schedule:
    """The same job, of which one node is not needed, and comes at any time until the programs end,
    often just then."""
    starts = [start % 30 for start in schedule.starts[:-1]]
    ends = max(starts) + 1.0 + JOIN + schedule.duration
    late = random.choice((random.uniform(0, ends), ends + random.uniform(-1, 0.5)))
    waits, least = random.random() < 0.5, schedule.nodes - 1
    far = random.choice((None, least))  # the one that comes late
    if far and random.random() < 0.5:  # it meets the others when they are about to end
        late, schedule = ends - random.uniform(0.5, 2.5), replace(schedule, latency=0.3)
    return replace(schedule, least=least, restarts=0, starts=(*starts, late), waits=waits, far=far)


def _fault(random: Random, size: int, begun: float, span: float) -> Fault:
    kind = random.choice(list(KINDS))
    # At any moment, and often where two things meet: around the start, and around the end.
    at = random.choice(
        (
            random.uniform(0, span),
            begun + random.uniform(-1, 1),
            span - GRACE + random.uniform(-1, 2),
        )
    )
    node = random.choice((0, random.randrange(size), random.randrange(size)))
    if kind in ("lie", "forge", "stranger", "daemon"):
        node = random.randrange(1, size)
    seconds = {
        "kill": random.choice((0.0, 0.0, 1.0, 5.0)),
        "reboot": random.choice((1.0, 5.0)),
        "freeze": random.choice((1.0, HEARTBEAT - 1, HEARTBEAT + 0.5, 3 * HEARTBEAT)),
        "fail": random.choice((0.0, 0.1, 0.3)),
        "twice": random.choice((0.01, 1.0, 4.0)),
    }.get(kind, 0.0)
    return Fault(max(0.0, at), kind, node, seconds, random.choice((1, 3, 7, 75, 137, 143)))
