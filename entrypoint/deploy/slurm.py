"""A batch script for Slurm's sbatch: one entrypoint on each node, started by srun.

Sources: slurm.schedmd.com, "sbatch", "srun", "scancel" and "scontrol"; github.com/NVIDIA/pyxis, "Usage"; apptainer.org,
"apptainer exec". What signals reach: Slurm's slurmd/req.c (all steps and the batch shell get SIGTERM when a job is
cancelled) and srun's launch.c (srun kills its step when it gets SIGTERM itself).
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from entrypoint import registry
from entrypoint.deploy._options import DEFAULT, RESTARTS, Options, own_command, resources, same_slots, settings
from entrypoint.errors import RETRIED, ConfigError, UsageError
from entrypoint.render import render as render_template
from entrypoint.spec import HostEntry, JobSpec

__all__ = ["NEEDS_IMAGE", "TAKES", "Options", "render"]

TAKES = (*DEFAULT, "runtime", "time")
NEEDS_IMAGE = False  # the toolkit may be installed on the nodes

_RUNTIMES = ("none", "pyxis", "apptainer")
_SPARE = 30  # seconds between the end of the grace and the time limit: ten are ours, the rest is Slurm's
_LATEST = 65535  # seconds before the time limit, the most that --signal takes
# What a device's cards are called as a GRES, where Slurm itself says so.
_GRES = {"nvidia.com/gpu": "gpu"}
_TIME = re.compile(
    r"(?P<days>\d{1,9})-(?P<h>\d{1,9})(:(?P<m>\d{1,9})(:(?P<s>\d{1,9}))?)?"
    r"|(?P<hours>\d{1,9}):(?P<min>\d{1,9}):(?P<sec>\d{1,9})"
    r"|(?P<minutes>\d{1,9})(:(?P<seconds>\d{1,9}))?"
)


def render(spec: JobSpec, options: Options) -> str:
    """The batch script's text. The secret is a file that the script names and never has in it.

    Raises ConfigError when the number of nodes or cards is unknown, or nodes differ in their cards; UsageError for a
    resource, a time or a runtime that Slurm does not know, and for a flag that no script could take.
    """
    nodes = len(spec.hosts) or options.nodes
    if not nodes:
        raise ConfigError("EP800 how many nodes should the job get?", "the spec has no hosts", "add --nodes 2")
    if spec.source("hosts").origin in ("flag", "env"):
        do = f"leave it out, say --nodes {nodes}; sbatch --nodelist=HOSTS chooses nodes"
        raise UsageError("EP803 Slurm chooses the nodes", f"{spec.source('hosts').where} {','.join(spec.hosts)}", do)
    runtime = _runtime(options)
    slots = same_slots(spec, "all nodes of a Slurm job get as many cards")
    asked = resources(options)
    cpus = _whole("cpu", asked.pop("cpu", ""))
    memory = _memory(asked.pop("memory", ""))
    gres = _gres(spec, asked, slots)
    secret = _path(spec.secret_file or "secret", options.folder) if spec.calls(nodes) else ""
    exported = _exported(spec, options, secret, slots)
    command = own_command(spec)
    paths = [options.folder] + [secret] * bool(secret and not secret.startswith(f"{options.folder}/"))
    names = [*exported, *["ENTRYPOINT_HOSTS"] * bool(spec.hosts)]
    return render_template(
        "slurm/job.sh.j2",
        {
            "origin": options.spec_name,
            "name": spec.name,
            "nodes": nodes,
            "gres": gres,
            "cpus": cpus,
            "memory": memory,
            "time": _time(spec, options),
            "notice": _notice(spec),
            "settings": exported,
            "named_hosts": bool(spec.hosts),
            "secret": secret,
            "folder": options.folder,
            "container": _container(runtime, options, paths, names, "gpu:" in gres),
            "program": ["entrypoint", "run", *(["--", *command] if command else [])],
            "retried": " | ".join(map(str, RETRIED)),
            "restarts": RESTARTS,
        },
    )


def _exported(spec: JobSpec, options: Options, secret: str, slots: int | None) -> dict[str, str]:
    """Return the settings that the script exports; those of the spec have no values of secrets."""
    own = {"ENTRYPOINT_SPEC": f"{options.folder}/{options.spec_name}"}
    if secret:
        own["ENTRYPOINT_SECRET_FILE"] = secret
    if any(HostEntry.of(host).slots for host in spec.hosts):
        own["ENTRYPOINT_SLOTS"] = str(slots)
    return settings(spec, own)


def _runtime(options: Options) -> str:
    runtime = options.runtime or ("pyxis" if options.image else "none")
    if runtime not in _RUNTIMES:
        raise UsageError(
            "EP803 no such container runtime", f"--runtime {runtime}", f"use one of {', '.join(_RUNTIMES)}"
        )
    if runtime == "none" and options.image:
        do = "leave --image out, or say --runtime pyxis or apptainer"
        raise UsageError("EP805 without a container runtime there is no image", f"--image {options.image}", do)
    if runtime != "none" and not options.image:
        raise UsageError(f"EP805 --runtime {runtime} needs an image", "", "add --image IMAGE")
    return runtime


def _whole(name: str, quantity: str) -> str:
    if quantity and not re.fullmatch(r"[1-9]\d*", quantity):
        raise UsageError(f"EP804 Slurm counts {name} in whole numbers", quantity, f"write --resource {name}=16")
    return quantity


def _memory(quantity: str) -> str:
    """Memory as Slurm writes it, whose units are powers of 1024; 256Gi is 256G."""
    found = re.fullmatch(r"([1-9]\d*)([KMGT])i?", quantity)
    if quantity and not found:
        raise UsageError(
            "EP804 Slurm wants memory as a whole number with its unit", quantity, "write --resource memory=64G"
        )
    return f"{found[1]}{found[2]}" if found else ""


def _gres(spec: JobSpec, asked: dict[str, str], slots: int | None) -> str:
    """What --gres asks for on each node; the spec's cards, where --resource names none."""
    names = {_GRES.get(name, name): quantity for name, quantity in asked.items()}
    if other := sorted(name for name in names if not re.fullmatch(r"[A-Za-z][\w.-]*(:[\w.-]+)?", name)):
        do = "write the name of your cluster's GRES, which `sinfo -o %G` prints: --resource npu=8"
        raise UsageError("EP804 Slurm has no such resource", ", ".join(other), do)
    card = registry.access(spec.device).resource if spec.device else ""
    if card and not names:
        if card not in _GRES:
            do = "add --resource NAME=8, with the name of your cluster's GRES, which `sinfo -o %G` prints"
            raise ConfigError("EP804 each cluster has its own name for such cards", f"device: {spec.device}", do)
        if slots is None:
            seen = f"device: {spec.device}, and no slots"
            raise ConfigError("EP801 how many cards has each node?", seen, "add slots: 8, or --resource gpu=8")
        names = {_GRES[card]: str(slots)}
    return ",".join(f"{name}:{_whole(name, quantity)}" for name, quantity in names.items())


def _notice(spec: JobSpec) -> int:
    """Seconds before the time limit at which the job is told to stop."""
    notice = round(spec.timeouts.grace) + _SPARE
    if notice > _LATEST:
        seen = f"timeouts.grace is {spec.timeouts.grace:g}"
        raise ConfigError(
            "EP807 Slurm cannot signal so long before the end", seen, f"give at most {_LATEST - _SPARE} s"
        )
    return notice


def _time(spec: JobSpec, options: Options) -> str:
    if not options.time:
        return ""
    found = _TIME.fullmatch(options.time)
    if not found:
        do = "write minutes, hours:minutes:seconds or days-hours: 90, 12:00:00, 2-12"
        raise UsageError("EP807 this is no time limit of Slurm's", f"--time {options.time}", do)
    part = {name: int(digits or 0) for name, digits in found.groupdict().items()}
    hours = part["days"] * 24 + part["h"] + part["hours"]
    minutes = part["m"] + part["min"] + part["minutes"]
    if (hours * 60 + minutes) * 60 + part["s"] + part["sec"] + part["seconds"] <= _notice(spec):
        seen = f"--time {options.time}, and SIGTERM comes {_notice(spec)} s before"
        raise UsageError("EP807 the time limit leaves the job no time", seen, "give more, or lower timeouts.grace")
    return options.time


def _path(path: str, folder: str) -> str:
    return path if path.startswith("/") else f"{folder}/{path}"


def _container(runtime: str, options: Options, paths: Sequence[str], names: Sequence[str], gpus: bool) -> list[str]:
    """The words that bring the image: options of srun's for pyxis, a command for apptainer.

    Paths are the same inside as outside. pyxis gives an image's own variables precedence, but for those it is told.
    """
    if runtime == "none":
        return []
    if odd := [path for path in paths if re.search("[,:]", path)]:
        raise UsageError("EP806 such a path cannot be mounted", ", ".join(odd), "use one without , and :")
    if runtime == "apptainer":
        known = "://" in options.image or options.image.startswith(("/", ".")) or options.image.endswith(".sif")
        image = options.image if known else f"docker://{options.image}"
        binds = [f"--bind={path}" for path in paths]
        return ["apptainer", "exec", *["--nv"] * gpus, *binds, f"--pwd={options.folder}", image]
    return [
        f"--container-image={_enroot(options.image)}",
        f"--container-mounts={','.join(f'{path}:{path}' for path in paths)}",
        f"--container-workdir={options.folder}",
        f"--container-env={','.join(names)}",
        "--no-container-remap-root",
    ]


def _enroot(image: str) -> str:
    """The image as enroot writes it, with # after the registry: registry.example#team/train:1.2."""
    registry_host, slash, rest = image.partition("/")
    named = slash and re.search(r"[.:]|^localhost$", registry_host) and not image.startswith(("/", "."))
    return f"{registry_host}#{rest}" if named and "#" not in image and "://" not in image else image
