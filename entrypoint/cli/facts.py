"""`entrypoint facts`: print the platform that is recognised, and the image's MPI and start."""

from __future__ import annotations

import argparse

from entrypoint.cli import inputs
from entrypoint.cli.parser import Command
from entrypoint.output.log import Logger, show

COMMAND = Command(
    "print the platforms that match this container, the chosen one, the variables that it reads,"
    " and the image's MPI and own start"
)


def act(args: argparse.Namespace, log: Logger) -> int:
    """Print platform, MPI and image. Returns 0, or the status with which `run` would refuse it."""
    from entrypoint.cli import recognition
    from entrypoint.system.image import start as image_start

    spec, facts = inputs.job(args)
    report = recognition.recognize(facts, spec.platform)
    report |= recognition.mpi(facts)
    if start := image_start.read():
        report["image"] = {"start": list(start.argv)}
    show(recognition.text(report))
    if "error" in report:
        log(f"run would end: {report['error']}; exit {report['status']}")
    return int(report.get("status", 0))
