"""PyTorch as ModelArts boots it: the program once a node, told where to meet; it starts its processes by mp.spawn."""

from __future__ import annotations

import re
from collections.abc import Sequence

from entrypoint.errors import Problem, SpecError
from entrypoint.model import File, JobSpec, Launch, Roster, Topology

_PYTHON = re.compile(r"(.*/)?python(\d(\.\d+)?)?")
_SHELL = re.compile(r"(.*/)?(ba|da)?sh")
_VALUED = {"python": "WX", "shell": "oO"}  # options whose value is the rest of their word, or the next word
_SETTLED = {"init_method": "hosts and torch.port", "rank": "node_rank", "world_size": "hosts"}


def plan(spec: JobSpec, topology: Topology, roster: Roster) -> Launch:
    """The command on every node, with the arguments that its topology asks for right after the script.

    Raises SpecError when the command has one of them already.
    """
    added = _arguments(spec, topology)
    # A script alone is for Python, as it is for torchrun.
    command = ("python", *spec.command) if spec.command[0].endswith(".py") else spec.command
    after = _after_script(command)
    _check(spec, added, command[after:])
    words = [word for name, value in added.items() for word in (f"--{name}", value)]
    return Launch(argv=(*command[:after], *words, *command[after:]), verdict="first-failure")


def scripts(spec: JobSpec, topology: Topology, roster: Roster, origin: str) -> tuple[File, ...]:
    """Nothing to render: the command is the job."""
    return ()


def _arguments(spec: JobSpec, topology: Topology) -> dict[str, str]:
    """Counts are of nodes: the program multiplies them by its own processes."""
    nodes = len(topology.nodes)
    always = spec.torch.rank_args == "always"
    added = {}
    if nodes > 1 or topology.this.slots > 1 or always:
        host = topology.leader.address or topology.leader.host
        added["init_method"] = f"tcp://{f'[{host}]' if ':' in host else host}:{spec.torch.port}"
    if nodes > 1 or always:
        added |= {"rank": str(topology.me), "world_size": str(nodes)}
    return added


def _after_script(command: Sequence[str]) -> int:
    """How many words come before the program's own arguments: an interpreter, its options, and what it runs."""
    if _PYTHON.fullmatch(command[0]):
        valued, ends = _VALUED["python"], "mc"
    elif _SHELL.fullmatch(command[0]):
        valued, ends = _VALUED["shell"], ""
    else:
        return 1
    at = 1
    while at < len(command):
        word = command[at]
        at += 1
        if word == "--":
            return min(at + 1, len(command))
        if word == "-" or not word.startswith(("-", "+")):
            return at
        if word == "--check-hash-based-pycs":
            at += 1
        if word.startswith("--"):
            continue
        for place, letter in enumerate(word[1:], start=2):
            if letter in ends:  # -m and -c: what they name is the program
                return min(at + (place == len(word)), len(command))
            if letter in valued:
                at += place == len(word)
                break
    return len(command)


def _check(spec: JobSpec, added: dict[str, str], arguments: Sequence[str]) -> None:
    where, problems = spec.source("command").where, []
    for word in arguments:
        name = word.partition("=")[0].removeprefix("--").replace("-", "_")
        if word.startswith("--") and name in added:
            what = f"--{name} is added by the launcher"
            do = f"remove it; its value comes from {_SETTLED[name]}"
            problems.append(Problem(where, "command", what, f"`{word[:60]}`", do))
    if problems:
        raise SpecError(problems)
