"""The command line of a supervisor (ranks/supervise.py), for everything that starts it."""

from __future__ import annotations

from os.path import dirname, join, realpath

from entrypoint.model import Topology

# socket in the run directory for ranks that a program of the node starts by itself
OF_PROGRAM = "program-ranks"
STEP_LINE = "stall.line"  # file in the run directory with that text
_PACKAGE = dirname(realpath(__file__))
FILE = join(_PACKAGE, "ranks", "supervise.py")
# folder whose sitecustomize has a rank's Python print its stack on a signal
OWN_STACKS = join(_PACKAGE, "ranks", "stall", "own_stacks")
UNITE = join(_PACKAGE, "output", "unite.py")


def command(topology: Topology, number: str, *options: str) -> tuple[str, ...]:
    """The words before a program's own `--`; `number` tells its files from those of this node's
    others."""
    run_dir = topology.run_dir
    files = (
        "--run-dir",
        run_dir,
        "--tail",
        f"{run_dir}/tail.{number}",
        "--last-output",
        f"{run_dir}/last-output",
    )
    return (topology.python, "-I", "-S", FILE, *files, *options)


def steps(line: str | None, run_dir: str) -> tuple[str, ...]:
    """The options with which a supervisor notes the lines that `stall.line` matches."""
    return ("--steps", f"{run_dir}/{STEP_LINE}") if line else ()
