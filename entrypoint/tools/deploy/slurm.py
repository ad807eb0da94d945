"""A batch script for Slurm's sbatch: one entrypoint on each node, started by srun.

Sources: slurm.schedmd.com, "sbatch", "srun", "scancel" and "scontrol"; github.com/NVIDIA/pyxis,
"Usage"; apptainer.org, "apptainer exec". For the receivers of signals: Slurm's slurmd/req.c (all
steps and the batch shell get SIGTERM when a job is cancelled) and srun's launch.c (srun kills its
step when it gets SIGTERM itself). For a node that fails: slurmctld's job_mgr.c and step_mgr.c (job
and step are killed, each unless it has --no-kill) and srun's step_launch.c (its tasks count as
ended, and their status is none).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from posixpath import abspath, join

from entrypoint.base import registry
from entrypoint.base.errors import RETRIED, ConfigError, UsageError
from entrypoint.base.render import render as render_template
from entrypoint.spec import HostEntry, JobSpec
from entrypoint.tools.deploy._options import (
    DEFAULT,
    RESTARTS,
    TOOLKIT,
    Mount,
    Options,
    number_of_nodes,
    resources,
    same_slots,
    settings,
    start_command,
    unknown_cards,
    unmountable,
)

ALSO = ("sbatch",)  # other names
TAKES = (*DEFAULT, "runtime", "time", "mount", "inject", "start")
# the secret and what is mounted are files in folders that the nodes share
FILES_ARE_HERE = True
NEEDS_IMAGE = False  # the toolkit may be installed on the nodes

_RUNTIMES = ("none", "pyxis", "apptainer")
# seconds between the end of the grace and the time limit: ten for the toolkit, the rest for Slurm
_SPARE = 30
_LATEST = 65535  # largest number of seconds before the time limit that --signal accepts
# Names of a device's cards as a GRES, if Slurm defines one.
_GRES = {"nvidia.com/gpu": "gpu"}
_TIME = re.compile(
    r"(?P<days>\d{1,9})-(?P<h>\d{1,9})(:(?P<m>\d{1,9})(:(?P<s>\d{1,9}))?)?"
    r"|(?P<hours>\d{1,9}):(?P<min>\d{1,9}):(?P<sec>\d{1,9})"
    r"|(?P<minutes>\d{1,9})(:(?P<seconds>\d{1,9}))?"
)


def render(spec: JobSpec, options: Options) -> str:
    """Return the batch script, which contains the path of the secret's file, never the secret.

    Raises ConfigError if the number of nodes or cards is unknown, or nodes differ in their cards;
    UsageError for an unknown resource, time or runtime of Slurm, and for a flag that cannot apply
    to a script.
    """
    nodes = number_of_nodes(spec, options, "Slurm")
    runtime = _runtime(options)
    slots = same_slots(spec, "all nodes of a Slurm job get as many cards")
    requested = resources(options)
    cpus = _whole("cpu", requested.pop("cpu", ""))
    memory = _memory(requested.pop("memory", ""))
    gres = _gres(spec, requested, slots)
    # an absolute path stays as it is
    file = join(options.folder, spec.secret_file or "secret")
    secret = file if spec.calls(nodes) else ""
    exported = _exported(spec, options, secret, slots)
    toolkit = TOOLKIT if options.image else abspath(options.inject)
    names = [*exported, *(["ENTRYPOINT_HOSTS"] if spec.hosts else [])]
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
            "deadline": spec.timeouts.job == "scheduler",
            "spares": spec.spares > 0,
            "settings": exported,
            "named_hosts": bool(spec.hosts),
            "secret": secret,
            "folder": options.folder,
            "container": _container(runtime, options, secret, names, "gpu:" in gres),
            "shell": f"{toolkit}/bin/sh" if options.inject else "sh",
            "program": start_command(spec, options, toolkit),
            "retried": " | ".join(map(str, RETRIED)),
            "restarts": RESTARTS,
        },
    )


def _exported(spec: JobSpec, options: Options, secret: str, slots: int | None) -> dict[str, str]:
    """Return the settings that the script exports; those of the spec have no values of secrets."""
    variables = {"ENTRYPOINT_SPEC": f"{options.folder}/{options.spec_name}"}
    if secret:
        variables["ENTRYPOINT_SECRET_FILE"] = secret
    if any(HostEntry.of(host).slots for host in spec.hosts):
        variables["ENTRYPOINT_SLOTS"] = str(slots)
    return settings(spec, options, variables)


def _runtime(options: Options) -> str:
    runtime = options.runtime or ("pyxis" if options.image else "none")
    if runtime not in _RUNTIMES:
        raise UsageError(
            "EP803 no such container runtime",
            f"--runtime {runtime}",
            f"use one of {', '.join(_RUNTIMES)}",
        )
    if runtime == "none" and options.image:
        hint = "leave --image out, or add --runtime pyxis or apptainer"
        raise UsageError(
            "EP805 an image needs a container runtime", f"--image {options.image}", hint
        )
    if runtime != "none" and not options.image:
        raise UsageError(f"EP805 --runtime {runtime} needs an image", "", "add --image IMAGE")
    return runtime


def _whole(name: str, quantity: str) -> str:
    if quantity and not re.fullmatch(r"[1-9]\d*", quantity):
        raise UsageError(
            f"EP804 Slurm counts {name} in whole numbers", quantity, f"write --resource {name}=16"
        )
    return quantity


def _memory(quantity: str) -> str:
    """Return memory in Slurm's form, whose units are powers of 1024; 256Gi is 256G."""
    match = re.fullmatch(r"([1-9]\d*)([KMGT])i?", quantity)
    if quantity and not match:
        raise UsageError(
            "EP804 memory for Slurm must be a whole number with its unit",
            quantity,
            "write --resource memory=64G",
        )
    return f"{match[1]}{match[2]}" if match else ""


def _gres(spec: JobSpec, requested: dict[str, str], slots: int | None) -> str:
    """Return the value of --gres for each node: the spec's cards, unless --resource names
    others."""
    names = {_GRES.get(name, name): quantity for name, quantity in requested.items()}
    if other := sorted(
        name for name in names if not re.fullmatch(r"[A-Za-z][\w.-]*(:[\w.-]+)?", name)
    ):
        hint = "write the name of your cluster's GRES, which `sinfo -o %G` prints: --resource npu=8"
        raise UsageError("EP804 Slurm has no such resource", ", ".join(other), hint)
    card = registry.access(spec.device).resource if spec.device else ""
    if card and not names:
        if card not in _GRES:
            hint = (
                "add --resource NAME=8, with the name of your cluster's GRES, which `sinfo -o %G`"
                " prints"
            )
            raise ConfigError(
                "EP804 each cluster has its own name for such cards", f"device: {spec.device}", hint
            )
        if slots is None:
            raise unknown_cards(spec.device, "add slots: 8, or --resource gpu=8")
        names = {_GRES[card]: str(slots)}
    return ",".join(f"{name}:{_whole(name, quantity)}" for name, quantity in names.items())


def _notice(spec: JobSpec) -> int:
    """Return the seconds before the time limit at which the job gets the signal to stop."""
    notice = round(spec.timeouts.grace) + _SPARE
    if notice > _LATEST:
        detail = f"timeouts.grace is {spec.timeouts.grace:g}"
        raise ConfigError(
            "EP807 Slurm cannot signal so long before the end",
            detail,
            f"give at most {_LATEST - _SPARE} s",
        )
    return notice


def _time(spec: JobSpec, options: Options) -> str:
    if not options.time:
        return ""
    match = _TIME.fullmatch(options.time)
    if not match:
        hint = "write minutes, hours:minutes:seconds or days-hours: 90, 12:00:00, 2-12"
        raise UsageError("EP807 not a time limit of Slurm", f"--time {options.time}", hint)
    part = {name: int(digits or 0) for name, digits in match.groupdict().items()}
    hours = part["days"] * 24 + part["h"] + part["hours"]
    minutes = hours * 60 + part["m"] + part["min"] + part["minutes"]
    if minutes * 60 + part["s"] + part["sec"] + part["seconds"] <= _notice(spec):
        detail = f"--time {options.time}, and SIGTERM comes {_notice(spec)} s before"
        hint = "give more, or lower timeouts.grace"
        raise UsageError("EP807 the time limit leaves the job no time", detail, hint)
    return options.time


def _container(
    runtime: str, options: Options, secret: str, names: Sequence[str], gpus: bool
) -> list[str]:
    """Return the arguments for the image: options of srun for pyxis, a command for apptainer.

    Paths inside and outside are the same. With pyxis an image's variables win, except over those of
    --container-env.
    """
    if runtime == "none":
        if options.mount:
            hint = "leave --mount out: without an image, programs see the folders of their node"
            raise unmountable(options.mount, hint)
        return []
    outside = [] if secret.startswith(f"{options.folder}/") or not secret else [secret]
    toolkit = [Mount(abspath(options.inject), TOOLKIT, True)] if options.inject else []
    paths = (options.folder, *outside)
    mounts = [*(Mount(path, path) for path in paths), *toolkit, *options.mount]
    mounted = dict.fromkeys(part for mount in mounts for part in (mount.source, mount.path))
    if invalid := [path for path in mounted if re.search("[,:]", path)]:
        raise unmountable(invalid, "use a path without , and :")
    binds = [*map(str, mounts)]
    if runtime == "apptainer":
        is_complete = (
            "://" in options.image
            or options.image.startswith(("/", "."))
            or options.image.endswith(".sif")
        )
        image = options.image if is_complete else f"docker://{options.image}"
        flags = [*["--nv"] * gpus, *(f"--bind={bind}" for bind in binds)]
        return ["apptainer", "exec", *flags, f"--pwd={options.folder}", image]
    return [
        f"--container-image={_enroot(options.image)}",
        f"--container-mounts={','.join(binds)}",
        f"--container-workdir={options.folder}",
        f"--container-env={','.join(names)}",
        "--no-container-remap-root",
        "--no-container-entrypoint",
    ]


def _enroot(image: str) -> str:
    """Return the image in enroot's form, with # after the registry:
    registry.example#team/train:1.2."""
    registry_host, slash, rest = image.partition("/")
    named = (
        slash and re.search(r"[.:]|^localhost$", registry_host) and not image.startswith(("/", "."))
    )
    return f"{registry_host}#{rest}" if named and "#" not in image and "://" not in image else image
