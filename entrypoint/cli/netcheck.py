"""`entrypoint netcheck`: measure the network between the job's nodes, instead of `run`."""

from __future__ import annotations

import argparse

from entrypoint.base.model import Facts, Inquiry, Plan
from entrypoint.cli import inquire
from entrypoint.cli.parser import Command
from entrypoint.output.log import Logger
from entrypoint.spec import JobSpec

COMMAND = Command(
    "measure the network between the job's nodes, without starting the program: run it on every"
    " node",
    options=("--json  worker-0 prints JSON instead of a table",),
)


def act(args: argparse.Namespace, log: Logger) -> int:
    """Boot this node's part of the check. Returns 0, or 75 if the network misses the spec's
    limits."""
    from entrypoint.base.errors import ConfigError
    from entrypoint.features.netcheck.coordinator import inquiry

    def of(spec: JobSpec, facts: Facts, plan: Plan) -> Inquiry:
        if len(plan.topology.nodes) < 2:
            hint = "give --hosts, or a spec with hosts"
            raise ConfigError("EP012 the network cannot be measured", "this job has one node", hint)
        return inquiry(spec, "json" if args.json else "text")

    # The launcher does not matter: its programs need not be there. All nodes take part, also those
    # of an elastic job.
    return inquire.act(args, log, of, keeps_record=True, launcher="plain", nodes=None)
