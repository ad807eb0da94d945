"""`entrypoint render`: write the scripts that people start by hand."""

from __future__ import annotations

import argparse
from pathlib import Path

from entrypoint.cli import inputs, outputs
from entrypoint.cli.parser import Command
from entrypoint.output.log import Logger

COMMAND = Command(
    "write run_mpi.sh, torchrun.sh, torchlaunch.sh and sshd_config",
    "--out DIR [options]",
    ("--out DIR  folder to write into",),
    more={"out": {"required": True}},
)


def act(args: argparse.Namespace, log: Logger) -> int:
    """Write the scripts. Returns 0."""
    from entrypoint import spec as specs
    from entrypoint.plan import rendered

    # The scripts run elsewhere and on any node, so this machine needs no place among the hosts.
    if args.node_rank is None:
        args.node_rank = "0"
    spec, facts = inputs.job(args, here=False)
    origin = f"{args.spec} and this environment" if args.spec else "this environment"
    scripts = rendered(spec, facts, origin)
    outputs.write(Path(args.out), scripts)
    secrets = sorted({*specs.left_out(spec), *specs.for_script(spec)[1]})
    outputs.note_left_out(secrets, log, "the scripts", "set them where a script runs")
    for file in scripts:
        log(f"wrote {args.out.rstrip('/')}/{file.name}, from templates/{file.origin}")
    return 0
