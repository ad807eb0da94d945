"""`entrypoint deploy`: print the file that another system runs the job from."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from entrypoint import registry
from entrypoint.cli import inputs, outputs
from entrypoint.cli.parser import PROGRAM, command, job_arguments
from entrypoint.errors import UsageError

if TYPE_CHECKING:
    import argparse
    from types import ModuleType
    from typing import Any

    from entrypoint.cli.parser import Commands
    from entrypoint.output.log import Logger

OPTIONS = {
    "image": ("IMAGE", "image with the toolkit in it; optional for slurm"),
    "nodes": ("N", "number of nodes, if the spec names no hosts"),
    "resource": (
        "NAME=N",
        "resource of each node: nvidia.com/gpu=8; not for modelarts; may be repeated",
    ),
    "kind": (
        "KIND",
        "kind of object: job, jobset, mpijob, trainjob or volcano; job if not given (kubernetes)",
    ),
    "runtime": (
        "NAME",
        "program that starts the image: pyxis or apptainer; none without an image (slurm)",
    ),
    "time": ("LIMIT", "time limit of the job, as sbatch takes it: 12:00:00 (slurm)"),
    "flavor": ("ID", "kind of instance (modelarts)"),
    "pool": ("ID", "dedicated resource pool (modelarts)"),
    "code": ("OBS", "OBS folder with the program: obs://bucket/folder/ (modelarts)"),
    "logs": ("OBS", "OBS folder for the job's logs (modelarts)"),
}
"""The options of this command in addition to the job's: metavar and help. A target lists those it
takes in `TAKES`."""


def arguments(commands: Commands, spec: str | None) -> None:
    """Add the command and its options to the command line."""
    text = "print the file from which another system runs the job"
    deploy = command(commands, "deploy", f"TARGET --image IMAGE {PROGRAM}", text)
    job_arguments(deploy, spec)
    deploy.add_argument("target", choices=registry.names("deploy"))
    deploy.add_argument("--out", metavar="FILE", help="file to write; stdout if not given")
    for name, (metavar, text) in OPTIONS.items():
        more: dict[str, Any] = {"action": "append"} if name == "resource" else {}
        deploy.add_argument(f"--{name}", metavar=metavar, help=text, **more)


def act(args: argparse.Namespace, log: Logger) -> int:
    """Print or write the file of that system. Returns 0."""
    from entrypoint import spec as specs

    spec, text = inputs.spec(args)
    if not args.spec:
        raise UsageError(
            "EP805 deploy needs a job spec",
            "",
            "give --spec FILE, in the folder that holds the program",
        )
    module = registry.load("deploy", args.target)
    folder, name = os.path.split(os.path.abspath(args.spec))
    nodes = (
        int(args.nodes) if args.nodes and args.nodes.isdecimal() and len(args.nodes) < 9 else None
    )
    if args.nodes and (not nodes or (spec.hosts and nodes != len(spec.hosts))):
        detail = f"{args.nodes}, {len(spec.hosts)} hosts in the spec"
        raise UsageError(
            "EP800 --nodes is not a number of nodes", detail, "leave it out if the spec has hosts"
        )
    extra: dict[str, Any] = _options(args, module)
    image, resources = extra.pop("image", ""), tuple(args.resource or ())
    options = module.Options(image, folder, name, text, nodes, resources, **extra)
    rendered: str = module.render(spec, options)
    if names := spec.written_secrets():
        log(
            f"EP128 secrets in the spec | {', '.join(names)} | whoever reads it has them: give them"
            " to the containers"
        )
    if names := specs.kept_back(spec):
        log(
            f"EP128 secrets are left out of the file | {', '.join(names)} | give them to the"
            " containers"
        )
    for line in module.notes(spec, options) if hasattr(module, "notes") else ():
        log(line)
    return outputs.give(rendered, args.out, log)


def _options(args: argparse.Namespace, target: ModuleType) -> dict[str, Any]:
    """Return deploy's own options, without those that are read elsewhere.

    Raises UsageError for one that the target cannot express, and if an image is missing.
    """
    from entrypoint.deploy._options import DEFAULT

    options = {name: value for name in OPTIONS if (value := getattr(args, name)) is not None}
    takes = getattr(target, "TAKES", DEFAULT)
    if unknown := [f"--{name}" for name in options if name not in takes]:
        hint = f"leave it out; {args.target} takes {', '.join(f'--{name}' for name in takes)}"
        raise UsageError(
            f"EP803 the target {args.target} cannot express this", ", ".join(unknown), hint
        )
    if not args.image and getattr(target, "NEEDS_IMAGE", True):
        raise UsageError(
            f"EP805 the target {args.target} needs an image", "no --image", "add --image IMAGE"
        )
    return {name: value for name, value in options.items() if name not in ("nodes", "resource")}
