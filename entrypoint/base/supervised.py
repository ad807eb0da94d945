"""The command line of a supervisor (ranks/supervise.py)."""

from __future__ import annotations

from os.path import dirname, join, realpath

from entrypoint.base.model import Topology

OF_PROGRAM = "program-rank"  # kind of the supervisor of a rank that a program of the node starts
_PACKAGE = dirname(dirname(realpath(__file__)))
FILE = join(_PACKAGE, "ranks", "supervise.py")
# folder whose sitecustomize has a rank's Python print its stack on a signal
OWN_STACKS = join(_PACKAGE, "ranks", "stall", "own_stacks")
# file of the environment of a node's ranks, where daemons start them: NAME=VALUE and NUL each
ENV_FILE = "rank.env"
UNITE = join(_PACKAGE, "output", "unite.py")


def command(topology: Topology, *options: str) -> tuple[str, ...]:
    """The words of a supervisor before a program's own `--`."""
    run_dir = topology.run_dir
    files = ("--run-dir", run_dir, "--last-output", f"{run_dir}/last-output")
    return (topology.python, "-I", "-S", FILE, *files, *options)


def steps(line: str | None) -> tuple[str, ...]:
    """The options with which a supervisor notes the lines that `stall.line` matches."""
    return ("--steps", line) if line else ()
