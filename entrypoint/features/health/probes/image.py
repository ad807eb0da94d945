"""Probes of what was asked for, and of what the image has: programs, and libraries of its
Python."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
from collections.abc import Mapping
from pathlib import Path

from entrypoint.base.errors import message_parts
from entrypoint.base.render import TEMPLATES
from entrypoint.base.secret import hides, masked
from entrypoint.base.tables import table
from entrypoint.base.values import frozen
from entrypoint.features.health.probe import Fields, Findings, Inputs, NodeView, Probe
from entrypoint.features.health.reading import Decimal, Named, Number, Rows, String, Strings
from entrypoint.plan import environment
from entrypoint.spec import fields
from entrypoint.system import checks
from entrypoint.system.limited import ask
from entrypoint.system.process import which

# What nodes of one job may have each its own way.
_OWN = {
    "node_rank",
    "run_dir",
    "log_dir",
    "workdir",
    "slots",
    "secret_file",
    "command",
    "ssh.host_key",
    "ssh.client_key",
}
_PACKAGES = (
    "/var/lib/dpkg/status",
    "/lib/apk/db/installed",
    "/var/lib/rpm/rpmdb.sqlite",
    "/var/lib/rpm/Packages",
)
# id of a difference -> the library
_COMPARED = table("""
    torch           | torch
    torch-cuda      | torch cuda
    nccl            | torch nccl
    horovod         | horovod
    python-packages | packages
    mindspore       | mindspore
""")
_LIBRARIES = f"{TEMPLATES}/check/libraries.py"
_VERSION = re.compile(r"(?<!\d)\d+\.\d")
# Before 4.2 on UCX: ranks in MPI_Finalize wait for PMI and answer no other any more (pmodels/mpich
# pull request 6596).
_OLD_MPICH = re.compile(r"MPICH ([0-3]|4\.[01])\b.*ucx")


@frozen
class Job(Probe):
    """The settings of the job, less what may differ between nodes, and no secret; and which
    variable told what of the job."""

    name = "spec"
    texts = """
    page | spec, platform | the file; the platform, and the variable of each value | whatever `run`
        would reject is an error, with its fix | platform, settings
    spec | spec
    platform | platform
    roll-call | roll call | one result for all | remove roll_call, and give all nodes a secret
    differs-platform | platform | compare `entrypoint facts` on both
    differs-setting | setting {name} | give all nodes the same spec, variables and
        flags
    """
    absent = "not given"
    spec: String = ""
    settings: Rows[Named] = ()
    platform: String = ""
    evidence: Strings = ()

    @staticmethod
    def read(inputs: Inputs) -> Fields:
        spec, topology = inputs.spec, inputs.plan.topology
        settings = []
        for path in (field.path for field in fields() if field.path not in _OWN):
            value = spec.value(path)
            if spec.source(path).origin != "default" and not hides(path, str(value)):
                # of variables the names alone
                text = ", ".join(sorted(value)) if path == "env" else masked(str(value))
                settings.append(Named(path, text[:200]))
        evidence = (
            f"{name} from {source}"
            for name, source in topology.origins.items()
            if source.origin != "default"
        )
        return {
            "spec": inputs.spec_file,
            "settings": tuple(settings),
            "platform": topology.platform,
            "evidence": tuple(evidence)[:64],
        }

    def judge(self, view: NodeView) -> Findings:
        yield self.finding("ok", "spec", self.spec or "no file: variables and flags alone")
        evidence = f" ({'; '.join(self.evidence)})" if self.evidence else ""
        yield self.finding("ok", "platform", f"{self.platform}{evidence}")
        if view.plan.no_roll_call and view.node.rank == view.plan.topology.me:
            yield self.finding("warning", "roll-call", view.plan.no_roll_call)

    def alike(self, view: NodeView) -> Mapping[str, str]:
        settings = {f"setting {row.name}": row.value for row in self.settings}
        return {"platform": self.platform, **settings}


@frozen
class Image(Probe):
    """The contents of this image: the distribution, the kernel below, and a digest of the installed
    packages: another image has another one."""

    name = "image"
    texts = """
    page | image | distribution, kernel, packages | | distribution, packages, architecture
    image | image
    differs-image | image
    differs-architecture | architecture | use hosts of one architecture
    """
    system: String = ""
    kernel: String = ""
    machine: String = ""
    packages: String = ""

    @staticmethod
    def read(inputs: Inputs) -> Fields:
        system, digest = "", ""
        with contextlib.suppress(OSError):
            text = Path("/etc/os-release").read_text(errors="replace")
            names = dict(line.partition("=")[::2] for line in text.splitlines())
            system = names.get("PRETTY_NAME", "").strip('"')
        for base in _PACKAGES:
            with contextlib.suppress(OSError):
                digest = hashlib.sha256(Path(base).read_bytes()).hexdigest()[:12]
                break
        uname = os.uname()
        return {
            "system": system,
            "kernel": uname.release,
            "machine": uname.machine,
            "packages": digest,
        }

    def judge(self, view: NodeView) -> Findings:
        where = f"{self.system}, {self.machine}, Linux {self.kernel}".strip(", ")
        packages = f", packages {self.packages}" if self.packages else ""
        yield self.finding("ok", "image", f"{where}{packages}")

    def alike(self, view: NodeView) -> Mapping[str, str]:
        image = f"{self.system} {self.packages}".strip()
        return {"image": image, "architecture": self.machine}


@frozen
class Refusal:
    """A reason for which `run` would end on this node."""

    status: Number = None
    reason: String = ""


@frozen
class Refused(Probe):
    """The reasons for which `run` would end, and the probes without an answer."""

    name = "what run would refuse"
    texts = """
    refused | {what} | | {fix}
    unseen | {name} | an answer | run it by hand on this node; it may hang in the job, too
    """
    refused: Rows[Refusal] = ()
    unseen: Rows[Named] = ()
    seconds: Decimal = None  # that all probes took

    @staticmethod
    def read(inputs: Inputs) -> Fields:
        _, refused = checks.dry_run(inputs.spec, inputs.facts, inputs.plan, lambda text: None)
        return {"refused": tuple(Refusal(outcome.status, outcome.reason) for outcome in refused)}

    def judge(self, view: NodeView) -> Findings:
        for refusal in self.refused:
            what, detail, fix = message_parts(refusal.reason)
            fix = fix or f"run would end with {refusal.status}"
            yield self.finding("error", "refused", detail, what=what, fix=fix)
        for row in self.unseen:
            yield self.finding("warning", "unseen", row.value, name=row.name)


@frozen
class InstalledProgram:
    """A program of the image."""

    name: String = ""
    path: String = ""
    version: String = ""
    problem: String = ""  # why it says no version


@frozen
class Programs(Probe):
    """sshd, ssh and launcher hydra's mpiexec with their versions, and mpirun, which was asked at
    the start; Python is found by its libraries."""

    name = "sshd and mpirun"
    texts = """
    page | programs | `sshd`, `ssh`, `mpirun` (under `hydra` `mpiexec.hydra`) and the Python that
        runs the program, with versions | those of the launcher; MPICH 4.2 on several nodes |
        `mpirun`, `mpiexec.hydra`, Python; an error if the launcher needs it
    program | {name} | | check why it does not start: its libraries, its owner
    program/problem | {name} | a version | check why it does not start: its libraries, its owner
    mpich | MPICH | 4.2 or later | MPI_Finalize sometimes never returns: use that of Debian 13, or
        `pip install mpich`
    differs-mpirun | mpirun
    differs-mpiexec.hydra | mpiexec.hydra
    differs-python | Python
    """
    programs: Rows[InstalledProgram] = ()

    @staticmethod
    def read(inputs: Inputs) -> Fields:
        facts, plan = inputs.facts, inputs.plan

        def version(name: str, path: str, *argv: str) -> InstalledProgram:
            answer = ask(argv, facts.env, inputs.limit)
            found = "" if answer.problem else version_in(answer.output)[:100]
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

    def judge(self, view: NodeView) -> Findings:
        for program in self.programs:
            seen = f"{program.version or program.problem or 'no version'} at {program.path}"
            level, key = ("warning", "program/problem") if program.problem else ("ok", "program")
            yield self.finding(level, key, seen, name=program.name)
        version = self.version("mpiexec.hydra")
        if view.plan.topology.has_peers and _OLD_MPICH.match(version):
            yield self.finding("warning", "mpich", version)

    def alike(self, view: NodeView) -> Mapping[str, str]:
        return {name: self.version(name) for name in ("mpirun", "mpiexec.hydra", "python")}

    def version(self, name: str) -> str:
        """Return the version of this program; "" for none."""
        return next((row.version for row in self.programs if row.name == name), "")


def version_in(text: str) -> str:
    """Return the first line with a version; of MPICH the version, and the device that it was built
    for: what its ranks speak to each other through."""
    rows = {
        name: value.strip() for name, value in re.findall(r"(?m)^MPICH (Version|Device):(.*)", text)
    }
    if rows:
        return f"MPICH {rows.get('Version', 'of no version')}, {rows.get('Device', 'of no device')}"
    return next((line.strip() for line in text.splitlines() if _VERSION.search(line)), "")


@frozen
class Libraries(Probe):
    """The libraries of the Python that runs the program: torch, Horovod and others."""

    name = "libraries"
    texts = """
    page | libraries of that Python | torch: CUDA, NCCL, backends, whether it can use the cards;
        Horovod: MPI, Gloo, NCCL; torch_npu, MindSpore, TensorFlow, JAX | CUDA for NVIDIA cards,
        not newer than the driver supports (a newer minor version runs); torch_npu for NPUs |
        torch and its CUDA, Horovod, MindSpore, Python packages; another NCCL is an error
    torch | torch
    torch/problem | torch | | check LD_LIBRARY_PATH, and whether it was built for this torch and
        Python
    horovod | horovod
    horovod/problem | horovod | | check LD_LIBRARY_PATH, and whether it was built for this torch and
        Python
    mindspore | mindspore
    tensorflow | tensorflow
    jax | jax
    differs-torch | torch
    differs-torch-cuda | torch's CUDA
    differs-nccl | NCCL of torch
    differs-horovod | Horovod
    differs-python-packages | Python packages | start all nodes from one image, by
        its digest
    differs-mindspore | MindSpore
    """
    fatal = "nccl"
    libraries: Rows[Named] = ()

    @staticmethod
    def read(inputs: Inputs) -> Fields:
        env = environment(inputs.facts.env, inputs.plan.env)
        path = env.get("PATH", os.defpath)
        first = inputs.spec.command[:1]
        asked = [word for word in first if os.path.basename(word).startswith("python")]
        python = next(
            (file for name in (*asked, "python3", "python") if (file := which(name, path))), None
        )
        if python is None:
            return {"unseen": (Named("python", "none on PATH"),)}
        answer = ask((python, _LIBRARIES), env, inputs.limit)
        unseen = (Named(f"libraries of {python}", answer.problem),) if answer.problem else ()
        values = dict(line.split("\t", 1) for line in answer.output.splitlines() if "\t" in line)
        return {
            "unseen": unseen,
            "programs": (InstalledProgram("python", python, values.pop("python", "")),),
            "libraries": tuple(Named(name, value) for name, value in values.items()),
        }

    def judge(self, view: NodeView) -> Findings:
        for name in ("torch", "horovod", "mindspore", "tensorflow", "jax"):
            if problem := self.about(f"{name} problem"):
                seen = f"cannot be imported: {problem}"
                yield self.finding("warning", f"{name}/problem", seen)
            if version := self.about(name):
                more = ", ".join(
                    f"{row.name.removeprefix(f'{name} ')} {row.value}"
                    for row in self.libraries
                    if row.name.startswith(f"{name} ") and "problem" not in row.name
                )
                yield self.finding("ok", name, f"{version}{f'; {more}' if more else ''}")

    def alike(self, view: NodeView) -> Mapping[str, str]:
        return {id: self.about(name) for id, name in _COMPARED.items()}

    def about(self, name: str) -> str:
        """Return what that Python says under this name; "" for nothing."""
        return next((row.value for row in self.libraries if row.name == name), "")
