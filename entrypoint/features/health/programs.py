"""Programs that `check` asks, each with a time limit: the image's Python, nvidia-smi or npu-smi,
sshd, the MPI."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
from collections.abc import Mapping
from typing import Any

from entrypoint.base.model import Facts, Plan
from entrypoint.base.render import TEMPLATES
from entrypoint.features.health.observation import InstalledProgram, Named
from entrypoint.plan import environment
from entrypoint.spec import JobSpec
from entrypoint.system import smi
from entrypoint.system.limited import ask
from entrypoint.system.process import which

_LIBRARIES = f"{TEMPLATES}/check/libraries.py"
_VERSION = re.compile(r"(?<!\d)\d+\.\d")
_CANN_VERSION = re.compile(r"(?im)^version=(\S+)|\[(\d[\w.]*)\]")
_CANN = ("latest/version.cfg", "latest/compiler/version.info", "latest/runtime/version.info")

Fields = dict[str, Any]


def programs(facts: Facts, plan: Plan, limit: float) -> Fields:
    """sshd, ssh and launcher hydra's mpiexec with their versions, and mpirun, which was asked at
    the start."""

    def version(name: str, path: str, *argv: str) -> InstalledProgram:
        answer = ask(argv, facts.env, limit)
        found = "" if answer.problem else _version_in(answer.output)[:100]
        return InstalledProgram(name, path, found, answer.problem)

    installed = []
    for name in ("sshd", "ssh"):
        if path := facts.programs.get(name):
            # Many versions of sshd have no `-V`; ssh comes from the same release, and is always
            # installed with it.
            installed.append(version(name, path, facts.programs.get("ssh", path), "-V"))
    if path := facts.programs.get("mpirun"):
        known = InstalledProgram("mpirun", path, f"Open MPI {facts.mpi}")
        installed.append(known if facts.mpi else version("mpirun", path, path, "--version"))
    path = environment(facts.env, plan.env).get("PATH", os.defpath)
    if plan.launcher.startswith("hydra") and (path := which("mpiexec.hydra", path)):
        tool = which("mpichversion", os.path.dirname(path))
        command = [tool] if tool else [path, "--version"]  # Intel's has no such tool
        installed.append(version("mpiexec.hydra", path, *command))
    return {"programs": tuple(installed)}


def _version_in(text: str) -> str:
    """Return the first line with a version; of MPICH the version, and the device that it was built
    for: what its ranks speak to each other through."""
    rows = {
        name: value.strip() for name, value in re.findall(r"(?m)^MPICH (Version|Device):(.*)", text)
    }
    if rows:
        return f"MPICH {rows.get('Version', 'of no version')}, {rows.get('Device', 'of no device')}"
    return next((line.strip() for line in text.splitlines() if _VERSION.search(line)), "")


def libraries(spec: JobSpec, facts: Facts, plan: Plan, limit: float) -> Fields:
    """What the Python that runs the program has of torch, Horovod and others."""
    env = environment(facts.env, plan.env)
    path = env.get("PATH", os.defpath)
    asked = [word for word in spec.command[:1] if os.path.basename(word).startswith("python")]
    python = next(
        (file for name in (*asked, "python3", "python") if (file := which(name, path))), None
    )
    if python is None:
        return {"unseen": (Named("python", "none on PATH"),)}
    fields: Fields = {}
    answer = ask((python, _LIBRARIES), env, limit)
    if answer.problem:
        fields["unseen"] = (Named(f"libraries of {python}", answer.problem),)
    values = dict(line.split("\t", 1) for line in answer.output.splitlines() if "\t" in line)
    fields["programs"] = (InstalledProgram("python", python, values.pop("python", "")),)
    fields["libraries"] = tuple(Named(name, value) for name, value in values.items())
    return fields


def accelerators(facts: Facts, plan: Plan, limit: float) -> Fields:
    """What the driver's own tool says, where this image has one, and CANN's files."""
    fields: Fields = _cann(facts.env)
    device = plan.topology.device
    for tool, _, _, problem, answer, _ in asyncio.run(smi.readings(facts.env, limit)):
        fields |= {"tool": tool, **answer}
        # An image may hold the tool of cards that this machine does not have.
        if problem and (device.count or device.kind != "cpu" or "no answer" in problem):
            fields["unseen"] = (Named(tool, problem),)
    return fields


def _cann(env: Mapping[str, str]) -> Fields:
    """Return the versions in the files of CANN and the driver."""
    home = (
        env.get("ASCEND_TOOLKIT_HOME", "").removesuffix("/latest")
        or "/usr/local/Ascend/ascend-toolkit"
    )
    fields: Fields = {}
    for name, file in (
        *(("cann", f"{home}/{file}") for file in _CANN),
        ("driver", "/usr/local/Ascend/driver/version.info"),
    ):
        with contextlib.suppress(OSError), open(file, errors="replace") as opened:
            if version := _CANN_VERSION.search(opened.read(65536)):
                fields.setdefault(name, version[1] or version[2])
    return fields
