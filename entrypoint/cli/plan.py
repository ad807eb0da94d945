"""`entrypoint plan`: print what `run` will do."""

from __future__ import annotations

import argparse

from entrypoint.base.errors import ConfigError
from entrypoint.base.model import EnvVar, Facts, Plan, Program
from entrypoint.base.text import one_line
from entrypoint.base.values import replace
from entrypoint.cli import inputs
from entrypoint.cli.parser import PROGRAM, Command
from entrypoint.output.log import Logger, answer
from entrypoint.spec import MAX_NODES, JobSpec

_LIMIT = 10.0  # seconds; a launcher's script asks Python for the version of a package


COMMAND = Command(
    "print what run will do, with the origin of each value; it uses no network and writes nothing",
    PROGRAM,
    (
        "--all  also show settings that have defaults",
        "--elsewhere  check the spec alone, on a machine that is none of its nodes",
        "--json  print JSON",
    ),
)


def act(args: argparse.Namespace, log: Logger) -> int:
    """Print the plan. Returns 0, or the status with which `run` would refuse it."""
    from entrypoint.cli.plan_text import plan_json, plan_text
    from entrypoint.plan import located, settle
    from entrypoint.system import checks

    spec, facts = inputs.job(args, not args.elsewhere)
    spec = inputs.with_program(args, spec)
    if args.elsewhere:
        spec, facts = _of_no_node(spec)
    refused = []
    try:
        spec, topology = located(spec, facts)
    except ConfigError as error:  # as on a laptop, which is none of the nodes
        if not error.summary.startswith("EP202"):
            raise
        refused = [error.outcome]
        spec = replace(spec, node_rank=0)
        spec, topology = located(spec, facts)
        log("this is the plan of worker-0; --node-rank 1 shows that of worker-1")
    for warning in spec.renamed:
        log(f"warning: {warning}")
    plan = settle(spec, facts, topology)
    if not args.elsewhere:
        plan, more = checks.dry_run(spec, facts, plan, log)
        refused += more
    if args.json:
        answer(plan_json(spec, plan))
    else:
        lines = [_command_line(program, plan, facts) for program in plan.launch.programs]
        answer(plan_text(spec, plan, lines, args.all))
    for outcome in refused:
        log(f"run would end: {outcome.reason}; exit {outcome.status}")
    return refused[0].status if refused else 0


def _of_no_node(spec: JobSpec) -> tuple[JobSpec, Facts]:
    """Return the job with what only a node knows, and the facts of a container that has nothing."""
    from entrypoint.plan.callin import with_names

    spec = with_names(spec)
    most = int((spec.nodes or "1").rpartition(":")[2]) + spec.spares
    hosts = spec.hosts or tuple(f"node-{rank}" for rank in range(min(most, MAX_NODES + 1)))
    command = spec.command or ("PROGRAM",)
    spec = replace(spec, hosts=hosts, command=command, platform="local", node_rank=0)
    return spec, Facts({}, "", "/", 1000, "", "/")


def _command_line(program: Program, plan: Plan, facts: Facts) -> tuple[str, str]:
    """Return a launcher's command line without secrets, and why it is unknown; one of them is "".

    Both are "" if no script builds it. The script gets everything that `run` gives it, and starts
    nothing.
    """
    import subprocess

    from entrypoint.plan import environment
    from entrypoint.ranks.command_line import STAGE, shown

    text = next((file.text for file in plan.files if file.name == program.script), "")
    if not text:
        return "", ""
    stage = EnvVar("ENTRYPOINT_STAGE", STAGE, "")
    env = environment(facts.env, (*plan.env, *program.env, stage))
    argv = ["bash", "-c", text, *program.argv[1:]]
    try:
        done = subprocess.run(
            argv, env=env, cwd=plan.workdir, capture_output=True, check=False, timeout=_LIMIT
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return "", one_line(str(error))
    if done.returncode:
        last = done.stderr.decode(errors="replace").strip().rpartition("\n")[2]
        return "", one_line(last or f"{program.script} ended with {done.returncode}")
    return shown(done.stdout), ""
