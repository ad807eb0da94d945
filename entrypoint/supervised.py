"""The command line of a supervisor (programs/supervise.py), for everything that starts it."""

from __future__ import annotations

from os.path import dirname, join, realpath

from entrypoint.model import Topology

OF_PROGRAM = "program-ranks"  # socket in the run directory for ranks that a program of the node starts by itself
FILE = join(dirname(realpath(__file__)), "programs", "supervise.py")
NETCHECK = join(dirname(FILE), "netcheck.py")  # the toolkit's own program, which the network check starts
UNITE = join(dirname(FILE), "unite.py")


def command(topology: Topology, number: str, *options: str) -> tuple[str, ...]:
    """The words before a program's own `--`; `number` tells its files from those of this node's others."""
    run_dir = topology.run_dir
    files = ("--run-dir", run_dir, "--tail", f"{run_dir}/tail.{number}", "--last-output", f"{run_dir}/last-output")
    return (topology.python, "-I", "-S", FILE, *files, *options)
