"""Data-parallel training, one process a card, that needs neither card nor framework: a boot file to
try a boot with.

It reads what an Ascend boot gives each process, compares that with the rank table, and trains a
linear model on it. The gradients are summed over plain TCP at rank 0's server, where HCCL would do
that on real cards. Afterwards rank 0 does the same on all samples alone: the weights must be the
same, up to rounding.
"""

import argparse
import json
import os
import random
import signal
import socket
import struct
import sys
import time

WEIGHTS = 8
LEARNING_RATE = 0.02


def say(line: str) -> None:
    """A line and its end in one write, so that two ranks' lines don't run into each other."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


class Cards:
    """This process's rank and card, as it was told, compared with the rank table."""

    def __init__(self) -> None:
        env = os.environ
        self.rank, self.size = int(env["RANK_ID"]), int(env["RANK_SIZE"])
        self.device = int(env["DEVICE_ID"])
        self.job = env["JOB_ID"]
        self.patience = int(env["HCCL_CONNECT_TIMEOUT"])
        self.wrong: list[str] = []
        if env["ASCEND_DEVICE_ID"] != env["DEVICE_ID"]:
            self.wrong.append(
                f"ASCEND_DEVICE_ID is {env['ASCEND_DEVICE_ID']}, DEVICE_ID {self.device}"
            )
        if not self.patience >= 120:
            self.wrong.append(f"HCCL_CONNECT_TIMEOUT is {self.patience}, HCCL takes 120 to 7200")
        # Without a table, one node has all ranks, or the launcher's own variables say where rank 0
        # is.
        nodes = env.get("ENTRYPOINT_HOSTS") or env.get("VC_WORKER_HOSTS") or "127.0.0.1"
        self.server, self.meet = socket.gethostname(), nodes.split(",")[0].partition("=")[0]
        if "RANK_TABLE_FILE" in env:
            self.read(env["RANK_TABLE_FILE"])

    def read(self, path: str) -> None:
        """Compare with the table, of which torch_npu and MindSpore take form v1.0 only, and no
        link."""
        if os.path.islink(path):
            self.wrong.append(f"{path} is a link")
        with open(path, encoding="utf-8") as file:
            table = json.load(file)
        if (table["version"], table["status"]) != ("1.0", "completed"):
            self.wrong.append(f"version {table['version']}, status {table['status']}")
        where = {
            int(card["rank_id"]): server
            for server in table["server_list"]
            for card in server["device"]
        }
        if sorted(where) != list(range(self.size)):
            self.wrong.append(f"RANK_SIZE is {self.size}, the table has ranks {sorted(where)}")
        mine, first = where.get(self.rank, {}), where.get(0, {})
        self.server = mine.get("server_id", "")
        ranks = sorted(int(card["rank_id"]) for card in mine.get("device", []))
        if self.rank not in ranks:
            self.wrong.append(f"the table has no rank {self.rank}")
        self.meet = first.get("container_ip") or first.get("host_ip") or first.get("server_id", "")


class Ring:
    """All ranks, around rank 0: what each gives is summed there, and everyone gets the sum."""

    def __init__(self, cards: Cards, port: int) -> None:
        self.cards, self.peers = cards, {}
        if cards.rank > 0:
            self.peers[0] = self.call(cards.meet, port)
            self.send(self.peers[0], json.dumps([cards.rank, cards.job]).encode())
            return
        with socket.create_server(("", port)) as door:
            door.settimeout(cards.patience)
            while len(self.peers) < cards.size - 1:
                peer, _ = door.accept()
                rank, job = json.loads(self.receive(peer))
                if job != cards.job or rank in self.peers or not 0 < rank < cards.size:
                    raise ConnectionError(f"rank {rank} of job {job} came to job {cards.job}")
                self.peers[rank] = peer

    def call(self, host: str, port: int) -> socket.socket:
        end = time.monotonic() + self.cards.patience
        while True:
            try:
                peer = socket.create_connection((host, port), 5)
                peer.settimeout(self.cards.patience)
                return peer
            except OSError:
                if time.monotonic() > end:
                    raise
                time.sleep(0.05)

    @staticmethod
    def send(peer: socket.socket, words: bytes) -> None:
        peer.sendall(struct.pack("!I", len(words)) + words)

    @staticmethod
    def receive(peer: socket.socket) -> bytes:
        def exactly(count: int) -> bytes:
            words = b""
            while len(words) < count:
                more = peer.recv(count - len(words))
                if not more:
                    raise ConnectionError("a peer is gone")
                words += more
            return words

        return exactly(struct.unpack("!I", exactly(4))[0])

    def gather(self, mine: list) -> list:
        """Everyone's list, in rank order, to everyone."""
        if self.cards.rank > 0:
            self.send(self.peers[0], json.dumps(mine).encode())
            return json.loads(self.receive(self.peers[0]))
        everyone = [mine] + [
            json.loads(self.receive(self.peers[rank])) for rank in sorted(self.peers)
        ]
        for peer in self.peers.values():
            self.send(peer, json.dumps(everyone).encode())
        return everyone

    def sum(self, mine: list[float]) -> list[float]:
        return [sum(each) for each in zip(*self.gather(mine), strict=True)]


def samples(rank: int, count: int) -> list[tuple[list[float], float]]:
    """One rank's share: inputs and their target."""
    dice = random.Random(rank)
    drawn = [[dice.gauss(0, 1) for _ in range(WEIGHTS)] for _ in range(count)]
    return [
        (inputs, sum(x * (place - 3.5) / 3.5 for place, x in enumerate(inputs))) for inputs in drawn
    ]


def gradient(weights: list[float], share: list[tuple[list[float], float]]) -> list[float]:
    """The loss summed over these samples, then what it would change by with each weight."""
    whole = [0.0] * (WEIGHTS + 1)
    for inputs, target in share:
        error = sum(weight * x for weight, x in zip(weights, inputs, strict=True)) - target
        whole[0] += error * error
        for place, x in enumerate(inputs):
            whole[place + 1] += 2 * error * x
    return whole


def stepped(weights: list[float], summed: list[float], count: int) -> list[float]:
    return [
        weight - LEARNING_RATE * change / count
        for weight, change in zip(weights, summed[1:], strict=True)
    ]


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--samples", type=int, default=32, help="on each rank")
    parser.add_argument(
        "--port", type=int, default=int(os.environ.get("HCCL_IF_BASE_PORT", "60000"))
    )
    parser.add_argument("--tolerance", type=float, default=1e-10)
    parser.add_argument(
        "--fail", type=int, default=0, help="exit status of one rank after half the steps"
    )
    parser.add_argument("--fail-rank", type=int, default=0, help="which rank that is")
    args = parser.parse_args()

    cards = Cards()
    rank, size, step = cards.rank, cards.size, 0

    def stop(*_: object) -> None:
        say(f"rank {rank} saved at step {step}")
        os._exit(143)

    signal.signal(signal.SIGTERM, stop)
    place = f"{socket.gethostname()}, local rank {cards.device}, pid {os.getpid()}"
    say(f"rank {rank} of {size} on {place}, server {cards.server}, in {os.getcwd()}")
    for wrong in cards.wrong:
        say(f"rank {rank}: {wrong}")

    ring = Ring(cards, args.port)
    places = ring.gather([socket.gethostname(), cards.server, cards.device, len(cards.wrong)])
    if len({(host, device) for host, _, device, _ in places}) < size:
        say(f"rank {rank}: two ranks have one card: {places}")
        return 1
    if len({(host, server) for host, server, _, _ in places}) != len(
        {server for _, server, _, _ in places}
    ):
        say(f"rank {rank}: a server of the table is two hosts: {places}")
        return 1
    if any(wrong for _, _, _, wrong in places):
        return 1

    share, weights = samples(rank, args.samples), [0.0] * WEIGHTS
    first = last = 0.0
    for step in range(args.steps):
        if args.fail and rank == args.fail_rank and step == args.steps // 2:
            say(f"rank {rank} fails with {args.fail}")
            return args.fail
        summed = ring.sum(gradient(weights, share))
        weights = stepped(weights, summed, size * args.samples)
        last = summed[0] / size / args.samples
        first = last if step == 0 else first
        if rank == 0 and step % 10 == 0:
            say(f"step {step} loss {last:.6f}")

    difference = 0.0
    if rank == 0:
        everything = [sample for each in range(size) for sample in samples(each, args.samples)]
        alone = [0.0] * WEIGHTS
        for _ in range(args.steps):
            alone = stepped(alone, gradient(alone, everything), len(everything))
        difference = max(abs(one - other) for one, other in zip(weights, alone, strict=True))
        say(f"loss {first:.6f} -> {last:.6f}")
        say(f"difference to one process: {difference:.1e} (allowed {args.tolerance:.0e})")
    return 0 if last < 0.7 * first and difference <= args.tolerance else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (ConnectionError, TimeoutError) as error:
        say(f"rank {os.environ['RANK_ID']} lost its peers: {error}")
        sys.exit(1)
