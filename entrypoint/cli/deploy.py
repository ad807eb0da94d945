"""`entrypoint deploy`: print the file that another system runs the job from."""

from __future__ import annotations

import argparse
import os
from types import ModuleType
from typing import Any

from entrypoint.base import registry
from entrypoint.base.errors import ConfigError, UsageError
from entrypoint.base.tables import rows
from entrypoint.base.text import digits
from entrypoint.base.values import replace
from entrypoint.cli import inputs, outputs
from entrypoint.cli.parser import PROGRAM, Command
from entrypoint.output.log import Logger
from entrypoint.spec import JobSpec

OPTIONS = {
    name: f"{takes}  {text}"
    for name, takes, text in rows("""
        image    | IMAGE      | image with the toolkit in it; optional for slurm
        nodes    | N          | number of nodes; wins over the number of hosts in the spec
        resource | NAME=N ... | resource of each node: nvidia.com/gpu=8; not for modelarts; may be \
            repeated
        mount    | SOURCE:PATH ... | storage in each container, such as for checkpoints; may be \
            repeated. SOURCE is a folder (compose, slurm), a PersistentVolumeClaim (kubernetes), \
            or SERVER:/FOLDER of NFS, obs://FOLDER or pfs://FOLDER (modelarts); :ro at the end \
            makes it read-only
        kind     | KIND       | kind of object: job, jobset, mpijob, trainjob or volcano; job if \
            not given (kubernetes)
        runtime  | NAME       | program that starts the image: pyxis or apptainer; none without an \
            image (slurm)
        time     | LIMIT      | time limit of the job in a form that sbatch takes, such as \
            12:00:00 (slurm)
        inject   | TOOLKIT    | mount the toolkit into an --image without it. TOOLKIT is its \
            image, such as entrypoint-toolkit:TAG (compose, kubernetes), the folder of its \
            unpacked archive (slurm), or its archive in the folder of --code: obs://FOLDER/FILE \
            (modelarts)
        inject-as | WAY       | how the toolkit reaches a Pod: copy, by an init container, if not \
            given; image, by an image volume, needs Kubernetes 1.35, or 1.33 with the feature gate \
            ImageVolume (kubernetes)
        start    | WORDS      | the own ENTRYPOINT of --image, as a JSON list, to run first; if \
            not given, it does not run
        flavor   | ID         | kind of instance (modelarts)
        pool     | ID         | dedicated resource pool (modelarts)
        code     | OBS        | OBS folder with the program: obs://bucket/folder/ (modelarts)
        logs     | OBS        | OBS folder for the job's logs (modelarts)
    """)
}
"""The options of this command in addition to the job's. A target lists those it takes in
`TAKES`."""


def _number(text: str) -> int:
    """Return the value of --nodes. Raises UsageError if it is no number."""
    number = digits(text)
    if not number:
        raise UsageError("EP800 --nodes is not a number of nodes", text, "write --nodes 2")
    return number


COMMAND = Command(
    "print the file with which another system runs the job",
    f"TARGET --image IMAGE {PROGRAM}",
    (
        "target",
        "--out FILE  file to write; stdout if not given",
        *(f"--{name} {text}" for name, text in OPTIONS.items()),
    ),
    more={
        "target": {"choices": registry.names("deploy")},
        "nodes": {"type": _number},
    },
)


def act(args: argparse.Namespace, log: Logger) -> int:
    """Print or write the file of that system. Returns 0."""
    from entrypoint import spec as specs
    from entrypoint.plan.callin import with_names
    from entrypoint.tools.deploy._options import Options

    spec, text = inputs.spec(args, here=False, resolved=False)
    if not args.spec:
        raise UsageError(
            "EP805 deploy needs a job spec",
            "",
            "give --spec FILE, in the folder that holds the program",
        )
    spec = with_names(spec)
    module = registry.load("deploy", args.target)
    folder, name = os.path.split(os.path.abspath(args.spec))
    if getattr(module, "FILES_ARE_HERE", False) and spec.source("secret_file").origin != "spec":
        # as everywhere, a flag's path starts at the current folder
        spec = replace(spec, secret_file=spec.secret_file and os.path.abspath(spec.secret_file))
    if args.nodes and spec.hosts and args.nodes != len(spec.hosts):
        spec = _resized(spec, args.nodes, args.target, getattr(module, "NEEDS_NAMES", False))
    options = Options(folder=folder, spec_name=name, spec_text=text, **_options(args, module))
    secrets = specs.written(spec)[1]
    if "secret_file" in secrets:  # its value would be a path in the rendered file
        raise ConfigError(
            "EP802 secret_file holds a secret, not the name of a file",
            spec.source("secret_file").where,
            "create a secret in a file, and name that file; if this is a file's name, write ./NAME",
        )
    rendered: str = module.render(spec, options)
    if secrets:
        log(
            f"EP128 secrets in the spec | {', '.join(secrets)} | everybody who reads the file has"
            " them: give them to the containers instead"
        )
    outputs.note_left_out(specs.given(spec)[1], log)
    for warning in specs.for_launcher(spec, spec.launcher or "").renamed:
        log(f"warning: {warning}")
    for line in module.notes(spec, options) if hasattr(module, "notes") else ():
        log(line)
    return outputs.give(rendered, args.out, log)


def _resized(spec: JobSpec, nodes: int, target: str, needs_names: bool) -> JobSpec:
    """Return the spec with so many hosts, for a target that uses only their number: the flag wins.

    Raises UsageError if the target needs their names, or if they say more than a number.
    """
    from entrypoint.spec import HostEntry

    slots = {HostEntry.of(host).slots for host in spec.hosts}
    reason = f"the target {target} needs a name for each node" if needs_names else ""
    reason = reason or "they have different slots" * (len(slots) > 1)
    reason = reason or "the job is elastic (`nodes`)" * bool(spec.elastic)
    if not reason and spec.source("hosts").origin == "spec":
        suffix = f":{count}" if (count := slots.pop()) else ""
        return replace(spec, hosts=tuple(f"node-{rank}{suffix}" for rank in range(nodes)))
    hosts, where = len(spec.hosts), spec.source("hosts").where
    raise UsageError(
        f"EP800 --nodes {nodes} contradicts {hosts} hosts",
        f"{where}{f'; {reason}' if reason else ''}",
        f"leave --nodes out, or change hosts to {nodes} names",
    )


def _options(args: argparse.Namespace, target: ModuleType) -> dict[str, Any]:
    """Return deploy's own options. Raises UsageError for one that the target cannot express, and if
    an image is missing."""
    from entrypoint.tools.deploy._options import DEFAULT, check, mounts

    given = {name: getattr(args, name.replace("-", "_")) for name in OPTIONS}
    takes = getattr(target, "TAKES", DEFAULT)
    if unknown := [
        f"--{name}" for name, value in given.items() if value is not None and name not in takes
    ]:
        hint = f"leave it out; {args.target} takes {', '.join(f'--{name}' for name in takes)}"
        raise UsageError(
            f"EP803 the target {args.target} does not support this", ", ".join(unknown), hint
        )
    if not args.image and getattr(target, "NEEDS_IMAGE", True):
        raise UsageError(
            f"EP805 the target {args.target} needs an image", "no --image", "add --image IMAGE"
        )
    options = {name.replace("-", "_"): value for name, value in given.items() if value is not None}
    check(options)
    options["mount"] = mounts(args.mount or ())
    if getattr(target, "FILES_ARE_HERE", False):
        options["mount"] = [
            replace(mount, source=os.path.abspath(mount.source)) for mount in options["mount"]
        ]
    return options
