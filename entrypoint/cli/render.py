"""`entrypoint render`: write the scripts that people start by hand."""

from __future__ import annotations

import argparse
from pathlib import Path

from entrypoint.cli import inputs, outputs
from entrypoint.cli.parser import Commands, command, job_arguments
from entrypoint.output.log import Logger


def arguments(commands: Commands, spec: str | None) -> None:
    """Add the command and its options to the command line."""
    text = "write run_mpi.sh, torchrun.sh, torchlaunch.sh and sshd_config"
    render = command(commands, "render", "--out DIR [options]", text)
    job_arguments(render, spec)
    render.add_argument("--out", required=True, metavar="DIR", help="folder to write into")


def act(args: argparse.Namespace, log: Logger) -> int:
    """Write the scripts. Returns 0."""
    from entrypoint import spec as specs
    from entrypoint.plan import rendered

    # The scripts run elsewhere and on any node, so this machine needs no place among the hosts.
    if args.node_rank is None:
        args.node_rank = "0"
    spec, facts = inputs.job(args)
    origin = f"{args.spec} and this environment" if args.spec else "this environment"
    scripts = rendered(spec, facts, origin)
    outputs.write(Path(args.out), scripts)
    if names := sorted({*specs.left_out(spec), *specs.for_script(spec)[1]}):
        log(
            f"EP128 secrets are left out of the scripts | {', '.join(names)} | set them where a"
            " script runs"
        )
    for file in scripts:
        log(f"wrote {args.out.rstrip('/')}/{file.name}, from templates/{file.origin}")
    return 0
