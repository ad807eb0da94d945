"""Settings of earlier releases: those that have another name now, and those that are gone."""

from __future__ import annotations

from typing import Any

from entrypoint.base.errors import Problem, SpecError
from entrypoint.base.tables import table
from entrypoint.base.values import frozen, replace
from entrypoint.spec.jobspec import JobSpec, variable

# path, what it is now (`env.NAME`: a variable that has no setting), its form if that is another,
# the launchers that it is for, and variables of other tools that set it too and are still right
_TABLE = """\
torch.port           port  -  accelerate,deepspeed,hydra,mpirun,plain,pytorch,torchlaunch,torchrun  MASTER_PORT
jax.port             port  -  jax  JAX_COORDINATOR_PORT
tensorflow.port      port  -  tensorflow
mindspore.port       port  -  msrun
ray.port             port  -  ray
mpi.extra_args       launcher_args  text  hydra,mpirun  OPENMPI_EXTRA_ARGS
torch.extra_args     launcher_args  -  torchlaunch,torchrun  TORCHRUN_EXTRA_ARGS TORCHLAUNCH_EXTRA_ARGS
accelerate.extra_args  launcher_args  -  accelerate  ACCELERATE_EXTRA_ARGS
deepspeed.extra_args   launcher_args  -  deepspeed
mindspore.extra_args   launcher_args  -  msrun
ray.extra_args         launcher_args  -  ray
mpi.tune_file  env.TUNE_ENV_FILE      path  hydra,mpirun  TUNE_ENV_FILE
mpi.bind_args  env.OPENMPI_BIND_ARGS  text  hydra,mpirun  OPENMPI_BIND_ARGS
mpi.x_args     env.OPENMPI_X_ARGS     text  hydra,mpirun  OPENMPI_X_ARGS
mpi.mca_args   env.OPENMPI_MCA_ARGS   text  hydra,mpirun  OPENMPI_MCA_ARGS
"""  # noqa: E501


@frozen
class Former:
    """A setting that was one launcher's own."""

    now: str
    form: str
    launchers: tuple[str, ...]  # all others ignore it
    variables: tuple[str, ...]


FORMER = {
    path: Former(now, form, tuple(launchers.split(",")), tuple(variables))
    for path, now, form, launchers, *variables in map(str.split, _TABLE.splitlines())
}
"""Path of a former setting -> what it is now."""

REMOVED = table("""
    kubernetes kubernetes.patch | \
        adapt the manifests with kustomize, as docs/how-to/kustomize.md shows
    stall.stacks     | remove it: with stall.minutes, each Python of a rank prints its own stack
    torch.version    | remove it: the launcher asks the installed torch
    gate.memory      | remove it: the node waits for memory for twice gate.seconds
    restarts.minutes | remove it: ranks that run for 10 minutes are progress
    cpu cpu.bind     | leave it out: torchrun and MPI bind by their own options (launcher_args, \
        OPENMPI_BIND_ARGS)
    netcheck.limit   | remove it: all pairs have 600 times netcheck.seconds
    netcheck.port    | remove it: the network check uses the roll call's connections, and free \
        ports between pairs of nodes
""")
"""Fields and sections that are gone -> hint."""

_ORIGINS = {"default": 0, "spec": 1, "env": 2, "flag": 3}  # a higher one wins
_OF_ONE_LAUNCHER: dict[str, Any] = {"port": None, "launcher_args": ()}


@frozen
class Section:
    """A section of which only former settings are known."""


def former_entries(prefix: str) -> dict[str, Any]:
    """Return former settings and sections below a path, by their names there: None or a Section."""
    names = {path[len(prefix) :].partition(".")[0] for path in FORMER if path.startswith(prefix)}
    return {name: None if prefix + name in FORMER else Section() for name in names}


def for_launcher(spec: JobSpec, launcher: str) -> JobSpec:
    """Return the spec as this launcher reads it: its own former settings under their present names,
    and no `port` or `launcher_args` if the spec names another launcher.

    Raises SpecError if a setting has two values.
    """
    sources = dict(spec._sources)
    more = dict(spec._more)
    changed: dict[str, Any] = {}
    if spec.launcher not in (None, launcher):
        changed = dict(_OF_ONE_LAUNCHER)
        sources = {path: source for path, source in sources.items() if path not in changed}
    problems = []
    renamed = list(spec._renamed)
    for path, former in FORMER.items():
        if path not in more or launcher not in former.launchers:
            continue
        now, value, source = former.now, more.pop(path), sources.pop(path)
        if now == "launcher_args" and isinstance(value, str):
            value = tuple(value.split())
        is_name = source.where not in former.variables
        rival = sources.get(now)
        present = spec.value(now) if now in _OF_ONE_LAUNCHER else spec.env.get(now[4:])
        if is_name and rival and rival.origin == source.origin and present != value:
            summary, hint = f"EP104 {now} contradicts it", f"remove {path}"
            problems.append(Problem(source.where, path, summary, f"{rival}", hint))
        if rival is None or _ORIGINS.get(rival.origin, 9) < _ORIGINS[source.origin]:
            (changed if now in _OF_ONE_LAUNCHER else more)[now] = value
            sources[now] = source
        if is_name and source.origin == "spec":
            renamed.append(f"{path} is now {now} ({source.where})")
        elif is_name:
            renamed.append(f"{source.where} is now {variable(now)}")
    if problems:
        raise SpecError(problems)
    return replace(spec, **changed, _sources=sources, _more=more, _renamed=tuple(renamed))
