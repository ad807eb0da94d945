"""Schedules whose end is known: what outside testing found (row of issue 10), and what an elastic
job does.

A job of these begins at about 0.7 s, and its programs end at about 10.9 s.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tests.simulation.gates import AWAITED, PROBLEM, Gate
from tests.simulation.invariants import check
from tests.simulation.schedule import BETWEEN, HEARTBEAT, NEVER, PEERS, SEVER, Fault, Schedule
from tests.simulation.world import World


@dataclass(frozen=True)
class Named:
    """A schedule, and how its nodes end: their statuses (None: killed, and gone), by when, and what
    the leader says."""

    schedule: Schedule
    statuses: tuple[int | None, ...]
    by: float = 100.0  # seconds
    reason: str = ""
    attempts: int = 1


def _job(nodes: int, *faults: Fault, **how: Any) -> Schedule:
    return Schedule(nodes=nodes, starts=how.pop("starts", (0.0,) * nodes), save=how.pop("save", (0.0,) * nodes),
                    faults=faults, **how)  # fmt: skip


def _elastic(*faults: Fault, **how: Any) -> Schedule:
    return _job(3, *faults, launcher="torchrun", least=2, **how)


_PHASES = {
    "phases: one node alone": Named(_job(1), (0,)),
    "phases: SIGTERM while one node alone writes its files": Named(
        _job(1, Fault(0.0, "stop", 0)), (143,), by=1
    ),
    "phases: SIGTERM while the leader derives its keys": Named(
        _job(2, Fault(0.02, "stop", 0)), (143, 69), by=PEERS + 20
    ),
    "phases: SIGTERM while the leader's sshd starts": Named(
        _job(2, Fault(0.07, "stop", 0)), (143, 69), by=PEERS + 20
    ),
    "phases: a check whose leader fails at its keys": Named(
        _job(2, Fault(0.02, "fault", 0), look=1.0), (71, 69), by=PEERS + 20
    ),
    "phases: a check whose leader fails at its sshd": Named(
        _job(2, Fault(0.07, "fault", 0), look=1.0), (71, 69), by=PEERS + 20
    ),
    "phases: mpirun starts no rank on the leader": Named(_job(2, empty=0), (0, 0), by=30),
    "phases: mpirun starts no rank on a worker": Named(_job(2, empty=1), (0, 0), by=30),
}
_CRASHES = {
    "status": 3,
    "duration": 1.0,
    "restarts": 50,
    "restarts_on": "any",
    "without_progress": 3,
}
_RESTARTS = {
    "30: crashes without progress end at the third attempt": Named(
        _job(3, **_CRASHES), (79, 79, 79), by=20, reason="EP640 no progress in", attempts=3
    ),
    "30: crashes with progress go on up to the most": Named(
        _job(2, **{**_CRASHES, "restarts": 8}, progress=(False, True), saver=1),
        (3, 3),
        attempts=9,
    ),
    "30: a replaced leader does not begin to count anew": Named(
        _job(3, Fault(5.5, "kill", 0, seconds=1.0), **_CRASHES), (79, 79, 79), attempts=3
    ),
    "30: progress that only a worker has seen when the leader is lost": Named(
        _job(
            3,
            Fault(2.0, "kill", 0, seconds=1.0),
            **{**_CRASHES, "without_progress": 1, "duration": 8.0},
            progress=(True, False),
            saver=2,
            saves_late=True,
        ),
        (79, 79, 79),
        # one boot of the second leader
        attempts=1,
    ),
    "30: who has seen the progress tells a new leader, and is lost": Named(
        _job(
            4,
            Fault(3.0, "kill", 0, seconds=1.0),
            Fault(6.5, "kill", 2, seconds=5.0),
            **{**_CRASHES, "without_progress": 2, "duration": 3.0, "restarts": 4},
            spares=1,
            save=(0.0, 6.0, 1.0, 0.0),
            progress=(True, False),
            saver=2,
            saves_late=True,
        ),
        (3, 3, 3, 3),
        attempts=4,
    ),
}
_SICK = {"spares": 1, "sick": 1, "cause": "device", "duration": 8.0, "restarts": 5}
_SPARES = {
    **{
        f"spares: one that waits is away again and again: {kind}": Named(
            _job(
                3,
                *(Fault(4.0 + 12 * turn, kind, 2, seconds=8.0) for turn in range(3)),
                spares=1,
                restarts=3,
                duration=40.0,
            ),
            (0, 0, 0),
            by=43,
        )
        for kind in ("freeze", SEVER, "blink", "kill", "reboot", "lie")
    },
    **{
        f"spares: a node that was replaced is away again and again: {kind}": Named(
            _job(
                3,
                Fault(4.0, "kill", 1, seconds=1.0),
                *(Fault(14.0 + 12 * turn, kind, 1, seconds=8.0) for turn in range(2)),
                spares=1,
                restarts=3,
                duration=40.0,
            ),
            (0, 0, 0),
            by=50,
            attempts=2,
        )
        for kind in ("freeze", SEVER, "blink", "kill", "lie")
    },
    "spares: one that comes late has another version": Named(
        _job(3, starts=(0.0, 0.0, 15.0), spares=1, restarts=3, duration=20.0, other_version=2),
        (0, 0, 78),
        by=35,
    ),
    "spares: one that comes back as the job ends": Named(
        _job(3, Fault(9.0, "kill", 2, seconds=3.6), spares=1, restarts=1, latency=0.3),
        (0, 0, 0),
        by=20,
    ),
    "spares: a node that was to blame twice does not work where the spare cannot": Named(
        _job(3, gates=(Gate(), Gate(), Gate(healthy=False)), **_SICK),
        (71, 71, 71),
        by=40,
        attempts=3,
        reason=f"{PROBLEM} on worker-2 (node-2)",
    ),
    "spares: the leader stands still again and again": Named(
        _job(
            4,
            *(Fault(at, "freeze", 0, seconds=3 * HEARTBEAT) for at in (5.0, 30.0, 55.0)),
            spares=1,
            restarts=5,
            duration=20.0,
        ),
        (0, 0, 0, 0),
        attempts=4,
    ),
    "spares: one that comes as the time of the roll call ends does not work yet": Named(
        _job(3, Fault(11.0, "kill", 1, seconds=5.0), starts=(0.0, 0.0, 26.0), spares=1, restarts=1),
        (0, 0, 0),
        by=45,
        attempts=2,
    ),
    "spares: two nodes are lost in turn, and come back each time": Named(
        _job(
            3,
            *(Fault(5.0 + 6 * turn, "kill", 1 + turn % 2, seconds=1.0) for turn in range(6)),
            spares=1,
            restarts=8,
        ),
        (0, 0, 0),
        attempts=7,
    ),
    "spares: the time of the roll call ends in the gate of a node that came late": Named(
        _job(
            4,
            Fault(12.0, "kill", 1, seconds=36.0),
            Fault(12.05, "kill", 2),
            spares=1,
            restarts=3,
            gates=(Gate(), Gate(8.0), Gate(), Gate()),
        ),
        (0, 0, None, 0),
        by=70,
        attempts=2,
    ),
    "spares: the network of a spare is slow": Named(
        _job(3, spares=1, restarts=2, measure=0.5, slow=2), (0, 0, 0), by=20
    ),
    "spares: the network of one node is slow": Named(
        _job(4, spares=1, restarts=1, measure=0.5, slow=1), (0, 0, 0, 0), by=25, attempts=2
    ),
    "spares: one is lost while the network of the others is measured": Named(
        _job(4, Fault(2.0, "kill", 3), spares=1, measure=2.0), (0, 0, 0, None), by=30
    ),
    "spares: one that waits is lost in its gate, for which nobody waits": Named(
        _job(3, Fault(3.0, "kill", 2), spares=1, gates=(Gate(), Gate(), Gate(6.0))),
        (0, 0, None),
        by=13,
    ),
    "spares: a node that is cut off may still save, and the start waits for that": Named(
        _job(3, Fault(5.0, "cut", 1), spares=1, restarts=1, save=(0.0, 8.0, 0.0)),
        (0, 69, 0),
        by=60,
        attempts=2,
    ),
    "spares: SIGTERM between two attempts does not wait for a node that is lost": Named(
        _job(4, Fault(5.0, "kill", 1), Fault(0, BETWEEN, 2, seconds=0.1), spares=1, restarts=1),
        (143, None, 143, 143),
        by=8,
        attempts=2,
    ),
    "spares: worker-0 is not healthy, and a spare never comes": Named(
        _job(3, spares=1, starts=(0.0, 0.0, NEVER), gates=(Gate(3, False), Gate(), Gate())),
        (71, 71, None),
        by=PEERS + 10,
        reason=f"{PROBLEM} on worker-0 (node-0)",
    ),
    "spares: a node in its gate is lost, and the others have waited for it alone": Named(
        _job(
            4,
            Fault(5.0, "kill", 1, seconds=1.0),
            Fault(17.0, "kill", 2),
            spares=2,
            restarts=3,
            gates=(Gate(), Gate(), Gate(15.0), Gate()),
        ),
        (0, 0, None, 0),
        by=31,
        attempts=2,
    ),
}
_STALLS = {
    "stalls: users ask while stacks are read for another": Named(
        _job(2, latency=0.5, stalls=True, duration=50.0, asked=(5.0, 5.1, 5.2)), (0, 0)
    ),
}
_LIES = "worker-1 (node-1) is lost: it sent an invalid message: "
NAMED = {
    **_PHASES,
    **_RESTARTS,
    **_SPARES,
    **_STALLS,
    "5: a worker's own failure after the roll call": Named(
        _job(2, Fault(5, "fault", 1)), (71, 71), by=10, reason="worker-1 (node-1): sshd ended"
    ),
    "6: SIGTERM while an attempt ends, with restarts left": Named(
        _job(3, Fault(5, "kill", 2), Fault(6, "stop", 0), save=(5.0, 5.0, 0.0), restarts=3),
        (143, 143, None),
        by=15,
    ),
    "7: a program's own 75, with restarts left": Named(_job(2, status=75, restarts=2), (75, 75)),
    "9 and 15e: the leader is killed while all stop": Named(
        _job(2, Fault(5, "stop", 1), Fault(6, "kill", 0), save=(8.0, 8.0)), (None, 75), by=18
    ),
    "10: a second SIGTERM at a worker": Named(
        _job(2, Fault(5, "twice", 1, seconds=1.0), save=(9.5, 9.5)), (143, 143), by=10
    ),
    "25.12: a rank fails, and mpirun has much to pass on": Named(
        _job(2, Fault(5, "fail", 1, status=7), passes=20.0), (7, 7), by=30
    ),
    "issue 25, row 10: SIGTERM, and ranks in a process group of their own": Named(
        _job(2, Fault(5, "stop", 0), save=(2.0, 2.0), apart=1), (143, 143), by=9
    ),
    "12: SIGUSR1": Named(_job(2, Fault(5, "user", 1)), (0, 0)),
    "15b: mpirun's daemon is killed": Named(
        _job(2, Fault(5, "daemon", 1)), (75, 75), by=10, reason="orted on worker-1 (node-1)"
    ),
    "15c and 47: mpirun's daemon does not start": Named(
        _job(2, mpirun="fails"),
        (75, 75),
        by=6,
        reason="EP608 the start of mpirun's daemon failed on worker-1 (node-1)",
    ),
    "15g: one count of restarts, also for a node that is replaced": Named(
        _job(3, Fault(5, "kill", 1, seconds=1.0), Fault(12, "kill", 2), restarts=1),
        (75, 75, None),
        by=30,
        attempts=2,
    ),
    "15h: a node restarts while the roll call waits": Named(
        _job(3, Fault(5, "kill", 1, seconds=1.0), starts=(0.0, 0.0, 20.0)), (0, 0, 0), by=40
    ),
    "15h: worker-0's machine is replaced while the roll call waits": Named(
        _job(3, Fault(5, "reboot", 0, seconds=1.0), starts=(0.0, 0.0, 20.0)), (0, 0, 0), by=40
    ),
    "15l: worker-0's machine is replaced while the job runs": Named(
        _job(2, Fault(4.05, "reboot", 0, seconds=1.0), launcher="torchrun", duration=20.0),
        (69, 75),
        by=60,
    ),
    "15i: a node stands still while a good job ends": Named(
        _job(2, Fault(10.75, "freeze", 1, seconds=4.0)), (0, 0), by=20
    ),
    "15i: SIGTERM while a job starts again": Named(
        _job(3, Fault(5, "kill", 2, seconds=1.0), Fault(7.5, "stop", 0), restarts=1),
        (143, 143, 143),
        by=60,
        attempts=2,
    ),
    "15j: the leader stood still": Named(
        _job(2, Fault(5, "freeze", 0, seconds=3 * HEARTBEAT)),
        (75, 75),
        reason="worker-0 (node-0) was suspended for",
    ),
    "15k: a node cannot write": Named(
        _job(3, not_ready=2), (73, 73, 73), by=10, reason="the disk is full on worker-2 (node-2)"
    ),
    "15l: another leader calls a running job's node": Named(
        _job(2, Fault(5, "stranger", 1)), (0, 0)
    ),
    "15m: silence shorter than the limit": Named(
        _job(2, Fault(5, "freeze", 1, seconds=HEARTBEAT - 0.1)), (0, 0)
    ),
    "15n: mpirun stays when every rank has ended": Named(_job(2, mpirun="stays"), (0, 0), by=25),
    "elastic: a node comes late": Named(_elastic(starts=(0.0, 0.0, 15.0)), (0, 0, 0), by=30),
    "elastic: a node is killed": Named(_elastic(Fault(5, "kill", 2)), (0, 0, None), by=20),
    "elastic: a node's machine is gone without a word": Named(
        _elastic(Fault(5, "vanish", 2)), (0, 0, None), by=40
    ),
    "elastic: a killed node comes back": Named(
        _elastic(Fault(5, "kill", 2, seconds=1.0)), (0, 0, 0), by=40
    ),
    "elastic: too few are left": Named(
        _elastic(Fault(5, "kill", 2), Fault(6, "kill", 1)),
        (75, None, None),
        by=20,
        reason="worker-1 (node-1) is lost",
    ),
    "elastic: the leader is killed": Named(_elastic(Fault(5, "kill", 0)), (None, 75, 75), by=20),
    "elastic: a program fails": Named(_elastic(Fault(5, "fail", 1, status=7)), (7, 7, 7), by=20),
    "elastic: SIGTERM to one node": Named(_elastic(Fault(5, "stop", 2)), (143, 143, 143), by=20),
    "elastic: a node comes while the others end, and waits for them": Named(
        _elastic(starts=(0.0, 0.0, 20.2), waits=True),
        (0, 0, 0),
        by=23,
        reason="exited with 0 on all 2 nodes",
    ),
    "elastic: a node comes while the others end, and fails": Named(
        _elastic(starts=(0.0, 0.0, 20.2)), (0, 0, 0), by=23, reason="exited with 0 on all 2 nodes"
    ),
    "30: a node of an elastic job is lost as it ends, and another one waits for it": Named(
        _elastic(Fault(20.85, "kill", 1), starts=(0.0, 0.0, 20.2), waits=True),
        (75, None, 75),
        by=35,
        reason="worker-1 (node-1) is lost",
    ),
    "30: the leader of an elastic job comes again, and a worker lies as it ends": Named(
        _elastic(
            Fault(0.0, "kill", 0, seconds=1.0),
            Fault(2.0, "lie", 1),
            latency=0.3,
            duration=0.0,
            waits=True,
            swept=True,
        ),
        (0, 75, 0),
        by=20,
    ),
    "25.2: a worker reports all ranks": Named(
        _job(3, Fault(5, "forge", 1, status=0)),
        (75, 75, 75),
        by=20,
        reason="EP619 worker-0 (node-0) and worker-1 (node-1) both report that rank 0 runs there",
    ),
    "25.2: a worker reports the ends of all ranks": Named(
        _job(3, Fault(5, "forge", 1, status=1)), (75, 75, 75), by=20, reason=_LIES
    ),
    "25.2: a worker reports mpirun's end": Named(
        _job(3, Fault(5, "forge", 1, status=2)), (75, 75, 75), by=20, reason=_LIES
    ),
    "25.2: a worker reports ranks under torchrun": Named(
        _job(3, Fault(5, "forge", 1, status=0), launcher="torchrun"),
        (75, 75, 75),
        by=20,
        reason=_LIES,
    ),
    "25.2: a worker reports mpirun's end while the roll call waits": Named(
        _job(3, Fault(5, "forge", 1, status=2), starts=(0.0, 0.0, 20.0)), (0, 0, 0), by=40
    ),
    "check: all look at themselves": Named(
        _job(3, look=2.0), (0, 0, 0), by=6, reason="nothing is wrong"
    ),
    "check: a node hangs": Named(_job(3, look=2.0, hangs=1), (78, 78, 78), by=20, reason="1 error"),
    "check: a node is killed while it looks": Named(
        _job(3, Fault(2, "kill", 1), look=3.0),
        (75, None, 75),
        by=10,
        reason="worker-1 (node-1) is lost",
    ),
    "check: a node comes when the others have left": Named(
        _job(3, look=1.0, starts=(0.0, 0.0, 60.0)),
        (69, 69, 69),
        by=110,
        reason="1 of 2 peers did not answer",
    ),
    "check: SIGTERM to the leader": Named(_job(2, Fault(2, "stop", 0), look=4.0), (143, 143), by=5),
    "check: SIGTERM to a worker": Named(
        _job(3, Fault(2, "stop", 1), look=4.0), (143, 143, 143), by=5
    ),
    "netcheck: it is measured, then the program runs, in one boot": Named(
        _job(3, measure=0.5), (0, 0, 0), by=20
    ),
    "netcheck: an attempt after the start is not measured again": Named(
        _job(3, Fault(9, "kill", 1, seconds=1.0), restarts=1, measure=0.5),
        (0, 0, 0),
        by=40,
        attempts=2,
    ),
    "netcheck: a slow node": Named(
        _job(3, measure=0.5, slow=1),
        (75, 75, 75),
        by=10,
        reason="EP013 the network is not fit for this job | worker-1",
    ),
    "netcheck: with restarts it is measured until it is fit": Named(
        _job(2, measure=0.5, slow=1, restarts=2), (75, 75), by=20, attempts=3
    ),
    "netcheck: a node is silent": Named(
        _job(3, measure=0.5, hangs=2),
        (75, 75, 75),
        by=60,
        reason="worker-2 does not answer: no answer within 45s",
    ),
    "netcheck: a node is silent in a round": Named(
        _job(3, measure=0.5, hangs=1, seed=1),
        (75, 75, 75),
        by=90,
        reason="does not answer: no answer within 45s",
    ),
    "netcheck: a node lies": Named(
        _job(3, measure=0.5, nonsense=1), (75, 69, 75), by=50, reason=f"{_LIES}neither"
    ),
    "netcheck: a node is lost in a round": Named(
        _job(3, Fault(2, "kill", 1), measure=1.0),
        (75, None, 75),
        by=20,
        reason="worker-1 (node-1) is lost",
    ),
    "netcheck: SIGTERM to a worker in a round": Named(
        _job(3, Fault(2, "stop", 1), measure=1.0), (143, 143, 143), by=5
    ),
    "netcheck: SIGTERM to the leader in a round": Named(
        _job(3, Fault(2, "stop", 0), measure=1.0), (143, 143, 143), by=5
    ),
    "netcheck: the leader is killed in a round, and comes again": Named(
        _job(3, Fault(2, "kill", 0, seconds=1.0), measure=1.0), (0, 0, 0), by=30
    ),
    "elastic netcheck: those that are there are measured": Named(
        _elastic(measure=0.5, starts=(0.0, 0.0, 15.0)), (0, 0, 0), by=45
    ),
    "elastic netcheck: a node that comes meanwhile joins": Named(
        _elastic(measure=2.0, starts=(0.0, 0.0, 12.0)), (0, 0, 0), by=40
    ),
    "elastic netcheck: a node is killed in a round": Named(
        _elastic(Fault(4, "kill", 2), measure=2.0), (0, 0, None), by=40
    ),
    "elastic netcheck: a node lies": Named(_elastic(measure=0.5, nonsense=1), (0, 0, 0), by=40),
    "elastic netcheck: too few are left": Named(
        _elastic(Fault(4, "kill", 2), Fault(4.5, "kill", 1), measure=2.0), (75, None, None), by=20
    ),
    "issue 25, 6: a worker has no room for its session": Named(
        _job(3, unwritable=2),
        (73, 73, 73),
        by=10,
        reason="no room for the session on worker-2 (node-2)",
    ),
    "issue 25, 6: the leader has no room for its session": Named(
        _job(3, unwritable=0),
        (73, 73, 73),
        by=10,
        reason="no room for the session on worker-0 (node-0)",
    ),
    "issue 25, 5: SIGTERM to the leader between two attempts": Named(
        _job(3, Fault(5, "kill", 2), Fault(0, BETWEEN, 0, seconds=0.1), restarts=1),
        (143, 143, None),
        by=9,
        attempts=2,
        reason="the job was ended by SIGTERM",
    ),
    "issue 25, 5: SIGTERM to a worker between two attempts": Named(
        _job(3, Fault(5, "daemon", 1), Fault(0, BETWEEN, 2, seconds=0.1), restarts=1),
        (143, 143, 143),
        by=8,
        attempts=2,
        reason="this node was ended by SIGTERM (143) on worker-2 (node-2)",
    ),
    "issue 25, 5: SIGTERM to all between two attempts": Named(
        _job(
            3,
            *(Fault(0, BETWEEN, rank, seconds=0.05 * rank) for rank in range(3)),
            Fault(5, "daemon", 1),
            restarts=1,
        ),
        (143, 143, 143),
        by=8,
        attempts=2,
    ),
    "issue 25, 5: SIGTERM twice to the leader between two attempts: it waits for nobody": Named(
        _job(
            3,
            Fault(5, "kill", 2),
            Fault(0, BETWEEN, 0, seconds=0.1),
            Fault(0, BETWEEN, 0, seconds=2.0),
            restarts=1,
        ),
        (143, 143, None),
        by=8,
        attempts=2,
    ),
    "issue 25, 5: SIGTERM to a worker whose leader is gone": Named(
        _job(2, Fault(5, "kill", 0), Fault(0, BETWEEN, 1, seconds=0.1), restarts=1),
        (None, 143),
        by=21,
        attempts=1,
    ),
    "issue 25, 5: SIGTERM to a worker whose leader is replaced": Named(
        _job(3, Fault(5, "kill", 0, seconds=1.0), Fault(0, BETWEEN, 1, seconds=0.1), restarts=1),
        (143, 143, 143),
        by=12,
    ),
    "ports: the default is taken on one node": Named(
        _job(3, launcher="torchrun", ports=((6060, 20007), (20007, 20011), None)), (0, 0, 0), by=30
    ),
    "ports: a node reports late": Named(
        _job(2, starts=(0.0, 8.0), launcher="torchrun", ports=((6060, 20007), (20007,))),
        (0, 0),
        by=30,
    ),
    "ports: a node reports twice": Named(
        _job(
            3,
            Fault(2.0, "kill", 1, seconds=1.0),
            starts=(0.0, 0.0, 6.0),
            launcher="torchrun",
            ports=((6060, 20007), (20007,), (6060, 20007)),
        ),
        (0, 0, 0),
        by=30,
    ),
    "ports: no port is free on a node": Named(
        _job(3, launcher="torchrun", ports=((6060, 20007), (), (6060,))),
        (71, 71, 71),
        by=10,
        reason="port 6060 is taken on worker-1 (node-1) by nc",
    ),
    "ports: the leader has none": Named(
        _job(2, ports=((), None)), (71, 71), by=10, reason="EP436 no port for torch.port is free"
    ),
    "gate: a node is not healthy": Named(
        _job(3, gates=(Gate(), Gate(0.2, healthy=False), Gate(1.0))),
        (71, 71, 71),
        by=4,
        reason=f"EP460 a node is not healthy | {PROBLEM} on worker-1 (node-1)",
    ),
    "gate: the leader is not healthy": Named(
        _job(3, gates=(Gate(3.0, healthy=False), Gate(), Gate())),
        (71, 71, 71),
        by=6,
        reason=f"{PROBLEM} on worker-0 (node-0)",
    ),
    "gate: a spare takes the place of a node that is not healthy": Named(
        _job(4, spares=1, gates=(Gate(), Gate(0.5, healthy=False), Gate(), Gate(1.0))),
        (0, 0, 0, 0),
        by=16,
    ),
    "gate: worker-0 is not healthy, and its place is none for a spare": Named(
        _job(4, spares=1, gates=(Gate(0.5, healthy=False), Gate(), Gate(), Gate())),
        (71, 71, 71, 71),
        by=4,
        reason=f"{PROBLEM} on worker-0 (node-0)",
    ),
    "gate: worker-0 says too late that it is not healthy, and its place is none for a spare": Named(
        _job(4, spares=1, restarts=3, gates=(Gate(20.0, healthy=False), Gate(), Gate(), Gate())),
        (71, 71, 71, 71),
        by=40,
        reason=PROBLEM,
    ),
    "gate: one node alone is not healthy": Named(
        _job(1, gates=(Gate(3.0, healthy=False),)), (71,), by=6, reason=PROBLEM
    ),
    "gate: a slow one delays the start": Named(
        _job(3, gates=(Gate(), Gate(8.0), Gate())), (0, 0, 0), by=22
    ),
    "gate: a node does not say how its gate has ended": Named(
        _job(3, gates=(Gate(), Gate(8.0, reports=False), Gate())), (0, 0, 0), by=32
    ),
    "gate: a node that is not healthy does not say so": Named(
        _job(3, gates=(Gate(), Gate(8.0, healthy=False, reports=False), Gate())),
        (71, 71, 71),
        by=32,
        reason=f"worker-1 (node-1): EP460 a node is not healthy | {PROBLEM}",
    ),
    "gate: a spare takes the place of a node that says late that it is not healthy": Named(
        _job(4, spares=1, restarts=1, gates=(Gate(), Gate(AWAITED + 2, False), Gate(), Gate())),
        (0, 0, 0, 0),
        by=35,  # the next attempt does not wait for its gate
        attempts=2,
    ),
    "gate: a node says late that it is not healthy, while the network is measured": Named(
        _job(
            4,
            spares=1,
            restarts=1,
            measure=2.0,
            gates=(Gate(), Gate(AWAITED + 2, False), Gate(), Gate()),
        ),
        (0, 0, 0, 0),
        attempts=2,
    ),
    "gate: a node says late that it is not healthy, and there is no other attempt": Named(
        _job(4, spares=1, gates=(Gate(), Gate(AWAITED + 2, False), Gate(), Gate())),
        (71, 71, 71, 71),
        by=40,
        reason=f"worker-1 (node-1): EP460 a node is not healthy | {PROBLEM}",
    ),
    "gate: SIGTERM to the leader while a later attempt waits for gates": Named(
        _job(3, Fault(8, "daemon", 1), Fault(11, "stop", 0), restarts=1, gates=(Gate(6.0),) * 3),
        (143, 143, 143),
        by=13,
        attempts=2,
    ),
    "gate: SIGTERM to a worker while a later attempt waits for gates": Named(
        _job(3, Fault(8, "daemon", 1), Fault(11, "stop", 2), restarts=1, gates=(Gate(6.0),) * 3),
        (143, 143, 143),
        by=13,
        attempts=2,
    ),
    "gate: a worker is killed in its gate, and comes again": Named(
        _job(3, Fault(2, "kill", 1, seconds=1.0), gates=(Gate(4.0),) * 3), (0, 0, 0), by=25
    ),
    "gate: the leader is killed while it waits for gates, and comes again": Named(
        _job(3, Fault(2, "kill", 0, seconds=1.0), gates=(Gate(4.0),) * 3), (0, 0, 0), by=25
    ),
    "elastic gate: a node that comes late is not healthy": Named(
        _elastic(starts=(0.0, 0.0, 15.0), gates=(Gate(), Gate(), Gate(1.0, healthy=False))),
        (0, 0, 71),
        by=30,
    ),
    "48: a worker says what no node does": Named(
        _job(2, Fault(5, "lie", 1)), (75, 75), reason="nonsense"
    ),
}


def differences(named: Named) -> tuple[World, list[str]]:
    """Simulate it. Return the world at its end, and what is not as it is known to be."""
    world, wrong = check(named.schedule, keep_log=True)
    if wrong:
        return world, wrong
    ends = [
        None if each.killed or not each.boots else each.outcomes[-1] for each in world.containers
    ]
    when, reason = max(end[0] for end in ends if end), next(end[1].reason for end in ends if end)
    killed = sum(fault.node == 0 for fault in named.schedule.of("kill", "reboot"))
    attempts = world.containers[0].boots - killed + (ends[0] is None)
    statuses = tuple(end[1].status if end else None for end in ends)
    if statuses != named.statuses:
        wrong.append(f"the nodes end with {statuses}, not with {named.statuses}")
    if when >= named.by:
        wrong.append(f"the last node ends at {when:.1f} s, not by {named.by:.1f} s")
    if named.reason not in reason:
        wrong.append(f"the reason is {reason!r}, without {named.reason!r}")
    if attempts != named.attempts:
        wrong.append(f"there are {attempts} attempts, not {named.attempts}")
    return world, wrong
