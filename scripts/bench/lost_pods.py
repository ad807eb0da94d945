"""Measure how long a job on a real Kubernetes takes to run again after the loss of a Pod.

    python -m scripts.bench.lost_pods [--kinds K,...] [--nodes N,...] [--losses L,...] [--times N]

A job of each kind and size, with `restarts`, loses Pods in a row, each time another one than
worker-0's if there is one: deleted at once, evicted, or its container killed. Printed for each
loss: the seconds until every rank runs again; of these, the seconds until the cluster has made the
new Pod, those in which its container starts, and the rest; and the number of new Pods. It needs the
cluster of scripts/dev/setup-kubernetes, whose nodes have the image.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.kubernetes.realcluster import DONE, Namespace, Object

from .engine import TREE

SPEC = """\
name: demo
launcher: {launcher}
slots: 1
restarts: 8
command: [sh, /out/train.sh]
timeouts: {{peers: 300, grace: 5}}
"""
# One line of a file for each start of a rank: when, and which.
TRAIN = 'echo "$(date +%s.%N) ${OMPI_COMM_WORLD_RANK-$RANK}" >>/out/starts\nexec sleep 3600\n'
LOSSES = ("delete", "evict", "kill")
LIMIT = 240  # seconds for a job that starts, or starts again
TURN = 0.1  # seconds between two glances at the file
STEADY = 3  # seconds that a job runs before its next loss


class Trial:
    """A job that runs, and what it has written."""

    def __init__(self, namespace: Namespace, kind: str, nodes: int, launcher: str) -> None:
        self.namespace = namespace
        self.nodes = nodes
        out = namespace.folder / "out"
        out.mkdir()
        (out / "train.sh").write_text(TRAIN)
        self.starts = out / "starts"
        namespace.volume("checkpoints", out)
        spec = SPEC.format(launcher=launcher)
        namespace.start(spec, nodes, "--mount checkpoints:/out", kind=kind)
        self.running(0)

    def running(self, since: float) -> float:
        """Return when the last rank started, when all have started since then."""
        end = time.time() + LIMIT
        while time.time() < end:
            time.sleep(TURN)
            last: dict[str, float] = {}
            for line in self.starts.read_text().splitlines() if self.starts.exists() else ():
                at, rank = line.split()
                last[rank] = float(at)
            if sum(at > since for at in last.values()) == self.nodes:
                return max(last.values())
        raise AssertionError(f"the ranks do not run: {self.namespace.said()}")

    def lose(self, loss: str, number: int) -> tuple[float, float, float, int]:
        """Lose a Pod, not worker-0's.

        Return the seconds until all ranks run, until its successor is there, those of the
        container's start, and the number of new Pods.
        """
        before = self.namespace.pods()
        running = [pod for pod in before if pod["status"]["phase"] == "Running"]
        lost = running[-1 - number % (self.nodes - 1)]
        began = time.time()
        match loss:
            case "delete":
                name = lost["metadata"]["name"]
                self.namespace.kubectl("delete", "pod", name, "--force", "--grace-period=0")
            case "evict":
                self.namespace.evict(lost["metadata"]["name"])
            case _:
                self.namespace.kill(lost)
        made, started = self._successor(lost, uids(before), began)
        took = self.running(began) - began
        new = uids(self.namespace.pods()) - uids(before)
        return took, made, started, len(new)

    def _successor(self, lost: Object, before: set[str], began: float) -> tuple[float, float]:
        """Return after how many seconds the Pod's successor was there, and for how many its
        container took to start."""
        made, count = 0.0, restarts(lost)
        while time.time() < began + LIMIT:
            time.sleep(TURN)
            for pod in self.namespace.pods():
                is_new = pod["metadata"]["uid"] not in before
                same = pod["metadata"]["uid"] == lost["metadata"]["uid"]
                if not is_new and not (same and restarts(pod) > count):
                    continue
                made = made or time.time() - began
                (status,) = pod["status"].get("containerStatuses") or [{}]
                if "running" in status.get("state", {}):
                    return made, time.time() - began - made
        raise AssertionError(f"no new Pod: {self.namespace.said()}")


def uids(pods: list[Object]) -> set[str]:
    """Return the UIDs of Pods."""
    return {pod["metadata"]["uid"] for pod in pods}


def restarts(pod: Object) -> int:
    """Return how often the kubelet has started a Pod's container again."""
    (status,) = pod["status"].get("containerStatuses") or [{}]
    return int(status.get("restartCount", 0))


@contextmanager
def trial(kit: Path, kind: str, nodes: int, launcher: str) -> Iterator[Trial]:
    """A job that runs in a namespace of its own, both gone at the end."""
    with tempfile.TemporaryDirectory() as folder:
        namespace = Namespace(kit, Path(folder))
        try:
            yield Trial(namespace, kind, nodes, launcher)
        finally:
            namespace.close()


def main() -> int:
    """Print a line for each loss; return 1 if one of them was not survived."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kinds", default=",".join(DONE), help="kinds, with commas between them")
    parser.add_argument("--nodes", default="2,4,8", help="numbers of Pods")
    parser.add_argument("--losses", default="delete,evict", help=f"of {', '.join(LOSSES)}")
    parser.add_argument("--launcher", default="mpirun")
    parser.add_argument("--times", type=int, default=2, help="losses in a row of a job")
    args = parser.parse_args()
    print("| kind | Pods | loss | seconds | Pod made | container started | ours | new Pods |")
    failed = False
    for kind in args.kinds.split(","):
        for nodes in map(int, args.nodes.split(",")):
            for loss in args.losses.split(","):
                failed |= not measure(kind, nodes, loss, args)
    return int(failed)


def measure(kind: str, nodes: int, loss: str, args: argparse.Namespace) -> bool:
    """Print the figures of one job; return whether it ran again each time."""
    try:
        with trial(TREE / "build/kubernetes", kind, nodes, args.launcher) as job:
            for number in range(args.times):
                time.sleep(STEADY)
                took, made, started, new = job.lose(loss, number)
                cells = [f"{each:.1f}" for each in (took, made, started, took - made - started)]
                line = [kind, str(nodes), loss, *cells, str(new)]
                print(f"| {' | '.join(line)} |", flush=True)
    except AssertionError as error:
        print(f"| {kind} | {nodes} | {loss} | FAILED |", flush=True)
        print(re.sub(r"(?m)^", "  ", str(error)[-6000:]), file=sys.stderr)
        return False
    return True


if __name__ == "__main__":
    sys.exit(main())
