"""Programs that `check` asks, each with a time limit: the image's Python, nvidia-smi or npu-smi,
sshd, the MPI."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from entrypoint.check.observed import InstalledProgram, Named
from entrypoint.devices._smi import PATH, TOOLS
from entrypoint.model import Facts, Plan
from entrypoint.plan import environment
from entrypoint.render import TEMPLATES
from entrypoint.spec import JobSpec
from entrypoint.system.ask import NoAnswerError, ask
from entrypoint.system.process import which

_LIBRARIES = f"{TEMPLATES}/check/libraries.py"
_VERSION = re.compile(r"(?<!\d)\d+\.\d")
_CANN_VERSION = re.compile(r"(?im)^version=(\S+)|\[(\d[\w.]*)\]")
_CANN = ("latest/version.cfg", "latest/compiler/version.info", "latest/runtime/version.info")

Seen = dict[str, Any]


def programs(facts: Facts, plan: Plan, limit: float) -> Seen:
    """sshd, ssh and launcher hydra's mpiexec with their versions, and mpirun, which was asked at
    the start."""
    found = []
    for name in ("sshd", "ssh"):
        if path := facts.programs.get(name):
            # `sshd -V` is newer than many an sshd; both come in one release, and ssh is always
            # beside it.
            other = facts.programs.get("ssh", path) if name == "sshd" else path
            found.append(_version(name, path, (other, "-V"), dict(facts.env), limit))
    if path := facts.programs.get("mpirun"):
        if facts.mpi:
            found.append(InstalledProgram("mpirun", path, f"Open MPI {facts.mpi}"))
        else:
            found.append(_version("mpirun", path, (path, "--version"), dict(facts.env), limit))
    if plan.launcher.startswith("hydra") and (
        path := which("mpiexec.hydra", facts.env.get("PATH", os.defpath))
    ):
        if tool := which("mpichversion", os.path.dirname(path)):
            found.append(_version("mpiexec.hydra", path, (tool,), facts.env, limit, _mpich))
        else:  # Intel's
            found.append(_version("mpiexec.hydra", path, (path, "--version"), facts.env, limit))
    return {"programs": tuple(found)}


def _first(text: str) -> str:
    """The first line with a version."""
    return next((line.strip() for line in text.splitlines() if _VERSION.search(line)), "")


def _mpich(text: str) -> str:
    """The version, and the device that it was built for: what its ranks speak to each other
    through."""
    rows = {
        name: words.strip() for name, words in re.findall(r"(?m)^MPICH (Version|Device):(.*)", text)
    }
    return f"MPICH {rows.get('Version') or 'of no version'}, {rows.get('Device') or 'of no device'}"


def _version(
    name: str,
    path: str,
    argv: Sequence[str],
    env: Mapping[str, str],
    limit: float,
    told: Callable[[str], str] = _first,
) -> InstalledProgram:
    try:
        text = ask(argv, env, limit)
    except NoAnswerError as error:
        return InstalledProgram(name, path, problem=str(error))
    return InstalledProgram(name, path, told(text)[:100])


def libraries(spec: JobSpec, facts: Facts, plan: Plan, limit: float) -> Seen:
    """What the Python that runs the program has of torch, Horovod and others."""
    env = environment(facts.env, plan.env)
    path = env.get("PATH", os.defpath)
    asked = [word for word in spec.command[:1] if os.path.basename(word).startswith("python")]
    python = next(
        (found for name in (*asked, "python3", "python") if (found := which(name, path))), None
    )
    if python is None:
        return {"unseen": (Named("python", "none on PATH"),)}
    seen: Seen = {}
    try:
        text = ask((python, _LIBRARIES), env, limit)
    except NoAnswerError as error:
        text = error.output
        seen["unseen"] = (Named(f"libraries of {python}", str(error)),)
    rows = [line.partition("\t") for line in text.splitlines() if "\t" in line]
    known = {name: value for name, _, value in rows}
    seen["programs"] = (InstalledProgram("python", python, known.pop("python", "")),)
    seen["libraries"] = tuple(Named(name, value) for name, value in known.items())
    return seen


def accelerators(facts: Facts, plan: Plan, limit: float) -> Seen:
    """What the driver's own tool says, where this image has one, and CANN's files."""
    path = f"{facts.env.get('PATH', '')}:{PATH}"
    seen: Seen = _cann(facts.env)
    for name, tool in TOOLS.items():
        if found := which(name, path):
            seen["tool"] = name
            try:
                seen |= tool.read(ask((found, *tool.options), facts.env, limit))
            except (NoAnswerError, ValueError) as error:
                if isinstance(error, NoAnswerError) and error.output:
                    # nvidia-smi ends with 14 where one card is not well
                    with contextlib.suppress(ValueError):
                        seen |= tool.read(error.output)
                device = plan.topology.device
                # An image may hold the tool of cards that this machine does not have.
                if device.count or device.kind != "cpu" or "no answer" in str(error):
                    seen["unseen"] = (Named(name, str(error)),)
    return seen


def _cann(env: Mapping[str, str]) -> Seen:
    """The versions that CANN and the driver wrote beside themselves."""
    home = (
        env.get("ASCEND_TOOLKIT_HOME", "").removesuffix("/latest")
        or "/usr/local/Ascend/ascend-toolkit"
    )
    seen: Seen = {}
    for name, files in (
        ("cann", [f"{home}/{each}" for each in _CANN]),
        ("driver", ["/usr/local/Ascend/driver/version.info"]),
    ):
        for file in files:
            with contextlib.suppress(OSError), open(file, errors="replace") as opened:
                if found := _CANN_VERSION.search(opened.read(65536)):
                    seen[name] = found[1] or found[2]
                    break
    return seen
