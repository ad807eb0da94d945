"""Common parts of the launchers: the job's command as argv, with options that they insert there;
variables for a node's place among the others; files of templates."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, Literal

from entrypoint.base.errors import ConfigError, Problem, SpecError
from entrypoint.base.kept import PASS_FD
from entrypoint.base.model import EnvVar, File, Launch, LaunchPort, Topology, usual
from entrypoint.base.render import render
from entrypoint.base.text import brief
from entrypoint.launchers._nested import (
    is_python,
    is_shell,
    launcher_of,
    program_of,
    unwrapped,
)
from entrypoint.spec import JobSpec

Planner = Callable[[JobSpec, Topology], Launch]  # of a launcher
PORT = 6060  # the default of `port` for all launchers that have no other one


def with_python(command: tuple[str, ...]) -> tuple[str, ...]:
    """Return the command, with `python` before a script, as torchrun does."""
    return ("python", *command) if command[0].endswith(".py") else command


def refuse_launcher(spec: JobSpec, launcher: str) -> None:
    """Refuse a command that is a launcher itself, also behind wrappers: each of our ranks would
    start a job of its own. A launcher that a shell or a script starts is seen when it starts
    (ranks/nested.py).

    Raises SpecError that names our launcher to use instead.
    """
    command = spec.command or ("",)
    replacement, name = launcher_of(unwrapped(command))
    if replacement:
        summary = (
            f"EP118 the command is a launcher itself, and launcher {launcher} would start it once"
            " for each rank or node"
        )
        program = "the program alone, such as: -- python train.py"
        hint = f"give it {program}"
        if replacement != launcher:
            hint = f"set launcher: {replacement} (ENTRYPOINT_LAUNCHER), with {program}"
        behind = "" if launcher_of(command)[0] else f" behind `{command[0]}`"
        raise SpecError([problem(spec, "command", summary, f"`{name}`{behind}", hint)])


def planned(spec: JobSpec, topology: Topology, name: str, plan: Planner) -> Launch:
    """Return the plan of the launcher of this name. Raises SpecError and ConfigError as it does, if
    the command is a launcher itself, or if an elastic job gets a fixed number of nodes."""
    launch = plan(spec, topology)
    if not launch.becomes_program:
        refuse_launcher(spec, name)
    if spec.elastic and launch.min_nodes is None:
        raise ConfigError(
            f"EP120 only torchrun has elastic jobs ({spec.source('nodes')})",
            f"nodes: {spec.elastic}",
            "set launcher: torchrun, or remove nodes",
        )
    return launch


def split_python(
    command: tuple[str, ...],
) -> tuple[str, Literal["script", "module", "program"], tuple[str, ...]]:
    """Return the interpreter, the form of the command and its remaining argv, for launchers that
    start interpreters.

    A command that such a launcher could not repeat, such as one with options of Python, is a
    "program".
    """
    first, *others = with_python(command)
    if not is_python(first):
        return "python", "program", command
    if others[:1] == ["-u"]:  # launchers add it themselves
        del others[0]
    if others[:1] == ["-m"] and others[1:]:
        return first, "module", tuple(others[1:])
    if others and not others[0].startswith("-"):
        return first, "script", tuple(others)
    return first, "program", command


def refuse_env(spec: JobSpec, settled: Mapping[str, str]) -> None:
    """Refuse variables in the spec's `env` that the launcher sets.

    `settled` names the fields to set instead. Raises SpecError.
    """
    refuse(
        problem(
            spec,
            f"env.{name}",
            f"EP119 {name} is set by the launcher",
            f"`{brief(spec.env[name])}`",
            f"remove it, and set {field}",
        )
        for name, field in settled.items()
        if name in spec.env
    )


def with_options(
    spec: JobSpec, options: Mapping[str, str], settled: Mapping[str, str]
) -> tuple[str, ...]:
    """Return the spec's command with these options right after the script.

    `settled` names the fields of the options' values. Raises SpecError if the command already has
    one.
    """
    command = with_python(spec.command)
    has_script = is_python(command[0]) or is_shell(command[0])
    after = program_of(command)[2] if has_script else 1
    refuse(
        problem(
            spec,
            "command",
            f"EP119 --{name} is added by the launcher",
            f"`{brief(argument)}`",
            f"remove it; its value comes from {settled[name]}",
        )
        for argument in command[after:]
        if (name := _option(argument)) and name in options
    )
    added = [entry for name, value in options.items() for entry in (f"--{name}", value)]
    return (*command[:after], *added, *command[after:])


def refuse_options(
    spec: JobSpec,
    settled: Mapping[str, str],
    setter: str = "the launcher",
    spellings: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Refuse options in `launcher_args` that `setter` sets.

    `settled` names the fields of the options' values; `spellings` has the long forms of short
    options. argparse accepts any beginning of an option for the option. Raises SpecError.
    """
    refuse(
        problem(
            spec,
            "launcher_args",
            f"EP119 --{option} is set by {setter}",
            f"`{brief(argument)}`",
            f"set {settled[option]}",
        )
        for word in spec.launcher_args
        if (name := _option(argument := spellings.get(word[:2], word))) is not None
        and (option := next((option for option in settled if option.startswith(name)), ""))
    )


def problem(spec: JobSpec, path: str, summary: str, detail: str, hint: str) -> Problem:
    """Return what is wrong with the spec's field at this path."""
    return Problem(spec.source(path).where, path, summary, detail, hint)


def refuse(problems: Iterable[Problem]) -> None:
    """Raise SpecError if there are problems."""
    if found := list(problems):
        raise SpecError(found)


def _option(argument: str) -> str | None:
    """Return the name of an option in argparse's form, "" of `--`; None if it is no option."""
    return argument.partition("=")[0][2:].replace("-", "_") if argument.startswith("--") else None


def file(template: str, context: Mapping[str, Any] | None = None, mode: int = 0o600) -> File:
    """Return the file that this template gives, of the template's own name."""
    name = template.rpartition("/")[2].removesuffix(".j2")
    return File(name, render(template, context or {}), template, mode)


def rank_script(topology: Topology, passes_fd: bool = False) -> File:
    """Return the script that a launcher starts for each rank of this node (ranks/placeholder.py).
    `passes_fd`: the launcher gives ranks a socket."""
    context = {
        "host": topology.this.host,
        "run_dir": topology.run_dir,
        "socket": "yes" if passes_fd else "",
        "pass_fd": (topology.python, "-I", "-S", PASS_FD),
    }
    return file("ranks/rank.sh.j2", context)


def endpoint(host: str, port: int | str) -> str:
    """Return `host:port`, with an IPv6 address in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def master(topology: Topology) -> str:
    """Return the host at which the programs of all nodes meet: worker-0, or this container if it is
    the only node."""
    return topology.leader.where if topology.has_peers else "127.0.0.1"


def place(spec: JobSpec, topology: Topology) -> tuple[EnvVar, EnvVar, EnvVar]:
    """Return NODE_RANK, MASTER_ADDR and MASTER_PORT, as used by PyTorch and others; a user's own
    value wins."""
    alone = "the only node"
    hosts = topology.origin("hosts") if topology.has_peers else alone
    return (
        usual("NODE_RANK", str(topology.me), topology.origin("node_rank") or alone),
        usual("MASTER_ADDR", master(topology), hosts),
        usual("MASTER_PORT", str(spec.port or PORT), str(spec.source("port"))),
    )


def meeting_port(
    spec: JobSpec, topology: Topology, variable: str = "", needed: bool = True, own: int = PORT
) -> LaunchPort | None:
    """Return the port on which a program of worker-0 listens, the launcher's `own` by default.

    None if the spec's own `env` has the variable that names it, or a single node needs none.
    """
    if not topology.has_peers or variable in spec.env:
        return None
    here = (0,) if topology.is_leader else ()
    return LaunchPort(spec.port or own, here=here, needed=needed)


def wait(spec: JobSpec) -> int:
    """Return the seconds in which all nodes must meet."""
    return max(1, round(spec.timeouts.peers))


def equal_slots(launcher: str, topology: Topology) -> int:
    """Return the number of ranks. Raises ConfigError if one node has more slots than another."""
    if len({node.slots for node in topology.nodes}) > 1:
        detail = ", ".join(f"{node.name} has {node.slots}" for node in topology.nodes)
        raise ConfigError(
            f"EP121 {launcher} needs the same number of processes on every node",
            detail,
            "set slots for all nodes",
        )
    return topology.world_size
