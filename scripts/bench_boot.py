#!/usr/bin/env python3
"""bench_boot.py - how long the whole boot takes, beside bare mpirun, with `hostname` as the program, in one run.

  boot  from the start of the last container to the end of worker-0: sshd, names, roll call, mpirun, release
  bare  mpirun alone, in containers whose sshd are up and whose addresses are known: the floor

    scripts/bench_boot.py [--nodes 8] [--runs 5] [--image entrypoint-gpu:dev]

Prints the machine, every raw number, the medians and their ratio. Exits 1 when the ratio is over --limit (2.5).
"""

import argparse
import os
import platform
import secrets
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

TREE = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(TREE))

from tests.containers import docker, exit_code, finished_at, inspect, logs, started_at  # noqa: E402

PORT = "36666"


def boot(image: str, names: list[str], network: str) -> float:
    """Seconds from the last container's start to worker-0's end."""
    secret = secrets.token_hex(32)
    for rank, name in enumerate(names):
        env = {"ENTRYPOINT_HOSTS": ",".join(names), "ENTRYPOINT_NODE_RANK": str(rank), "ENTRYPOINT_SECRET": secret}
        words = [word for key, value in env.items() for word in ("-e", f"{key}={value}")]
        docker("create", "--name", name, "--hostname", name, "--network", network, *words, image, "hostname")
    try:
        docker("start", *names)
        docker("wait", *names)
        codes = {name: exit_code(name) for name in names}
        if any(codes.values()):
            raise SystemExit(f"bench-boot: the job failed: {codes}\n{logs(names[0])}")
        seen = sorted(set(logs(names[0]).split()) & set(names))
        if seen != sorted(names):
            raise SystemExit(f"bench-boot: not every node ran a rank: {seen}")
        return finished_at(names[0]) - max(started_at(name) for name in names)
    finally:
        docker("rm", "-f", *names)


def bare(image: str, names: list[str], network: str, folder: Path, runs: int) -> list[float]:
    """Seconds of mpirun alone, in containers that run nothing but sshd."""
    keys = "HostKey /keys/host\nAuthorizedKeysFile /keys/client.pub\nStrictModes no\n"
    sshd = f"Port {PORT}\nPidFile none\nUsePAM no\nMaxStartups 64\n{keys}"
    for key in ("host", "client"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / key)], check=True)
    (folder / "sshd_config").write_text(sshd)
    os.chmod(folder, 0o755)
    for path in folder.iterdir():
        os.chown(path, 1000, 100)
    for name in names:
        docker(
            "run", "-d", "--name", name, "--hostname", name, "--network", network, "-v", f"{folder}:/keys:ro",
            "--entrypoint", "/usr/sbin/sshd", image, "-D", "-e", "-f", "/keys/sshd_config",
        )  # fmt: skip
    try:
        for name in names:
            deadline = time.monotonic() + 20
            while "Server listening" not in logs(name):
                if time.monotonic() > deadline:
                    raise SystemExit(f"bench-boot: no sshd in {name}\n{logs(name)}")
        addresses = [inspect(name)["NetworkSettings"]["Networks"][network]["IPAddress"] for name in names]
        options = (
            f"-p {PORT} -i /keys/client -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR"
        )
        line = (
            f"mpirun -np {len(names)} -host {','.join(f'{address}:1' for address in addresses)} "
            f"-mca plm_rsh_args '{options}' -bind-to none -map-by slot -mca pml ob1 -mca btl ^openib "
            "-mca plm_rsh_no_tree_spawn true hostname"
        )
        times = []
        for _ in range(runs):
            done = subprocess.run(
                ["docker", "exec", names[0], "bash", "-c", f"TIMEFORMAT=%R; time {line}"],
                capture_output=True, text=True, check=True,
            )  # fmt: skip
            assert sorted(done.stdout.split()) == sorted(names), done.stdout
            times.append(float(done.stderr.split()[-1]))
        return times
    finally:
        docker("rm", "-f", *names)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=8)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--image", default="entrypoint-gpu:dev")
    parser.add_argument("--limit", type=float, default=2.5)
    args = parser.parse_args()

    processors = Path("/proc/cpuinfo").read_text().splitlines()
    model = next((line.split(":")[1].strip() for line in processors if line.startswith("model name")), "?")
    print(f"machine: {os.cpu_count()} cores, {model}, Linux {platform.release()}, load {os.getloadavg()[0]:.1f}")
    network = f"bench{os.getpid()}"
    docker("network", "create", network)
    try:
        with tempfile.TemporaryDirectory() as folder:
            floor = bare(args.image, [f"bare-{rank}" for rank in range(args.nodes)], network, Path(folder), args.runs)
        ours = [boot(args.image, [f"node-{rank}" for rank in range(args.nodes)], network) for _ in range(args.runs)]
    finally:
        docker("network", "rm", network)
    print(f"bare mpirun, {args.nodes} containers, s: {' '.join(f'{value:.2f}' for value in floor)}")
    print(f"whole boot,  {args.nodes} containers, s: {' '.join(f'{value:.2f}' for value in ours)}")
    ratio = statistics.median(ours) / statistics.median(floor)
    medians = f"medians: bare {statistics.median(floor):.2f}, boot {statistics.median(ours):.2f}"
    print(f"{medians}, ratio {ratio:.2f} (limit {args.limit})")
    return 0 if ratio <= args.limit else 1


if __name__ == "__main__":
    sys.exit(main())
