"""argv in, exit status out: the only place that prints for people and catches errors."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from entrypoint import registry
from entrypoint import spec as specs
from entrypoint.arguments import parser
from entrypoint.errors import EXIT_SOFTWARE, CantCreateError, EntrypointError, NoInputError, UsageError
from entrypoint.host.speaker import Speaker, answer, hold_standard_streams
from entrypoint.model import Facts, File, Topology
from entrypoint.plan import locate, rendered, settle
from entrypoint.spec import JobSpec

_TRACE = "ENTRYPOINT_TRACE"  # set to anything, it adds a traceback to a defect's message


def main(argv: Sequence[str] | None = None) -> int:
    """The `entrypoint` command. Returns its exit status."""
    hold_standard_streams()
    say = Speaker()
    try:
        ours, program = _split(list(sys.argv[1:] if argv is None else argv))
        args = parser(os.environ.get("ENTRYPOINT_SPEC") or None).parse_args(ours)
        args.command = program
        return int(ACTIONS[args.action](args, say))
    except EntrypointError as error:
        for line in error.lines():
            say(line)
        return error.status
    except KeyboardInterrupt:
        return 130
    except Exception as error:
        say(f"internal error: {type(error).__name__}: {error} | please report it with the output of {_TRACE}=1")
        if os.environ.get(_TRACE):
            for line in traceback.format_exc().splitlines():
                say(f"  | {line}")
        return EXIT_SOFTWARE
    finally:
        say.flush()


def script() -> None:
    """`entrypoint` as a program: ends at once, since taking a Python apart costs each node 35 ms for nothing."""
    os._exit(main())


# ---------------------------------------------------------------------------------------------------------------
# The commands


def _run(args: argparse.Namespace, say: Speaker) -> int:
    from entrypoint.host import health, process
    from entrypoint.host.result import recorded
    from entrypoint.host.signals import Signals, Stopped

    process.show(health.WAITING)
    try:
        with recorded(say) as result:
            signals = Signals(say)
            signals.watch()  # before anything slow
            from entrypoint.run import execute

            spec, facts = _given(args)
            topology = locate(spec, facts)
            process.hide_memory()  # not before: then only root reads /proc/self/environ
            if args.passthrough and not _describes_job(spec, topology):
                outcome = result.end(process.replace(spec.command, facts.env, facts.cwd))
                meant = f" | did you mean: entrypoint {spec.command[0]}?" if spec.command[0] in ACTIONS else ""
                say(f"{outcome.reason}{meant}; exit {outcome.status}")
                return outcome.status
            result.about(topology)
            if len(topology.nodes) > 1:
                say.name = topology.this.label
            if spec.prefix == "job":
                say.name = f"{topology.job} {topology.this.label} {topology.this.host}"
            outcome = result.end(execute(spec, facts, settle(spec, facts, topology), signals, say))
    except Stopped as stop:
        outcome = stop.outcome
    if outcome.status != 0 or len(topology.nodes) > 1:
        say(f"{outcome.reason}; exit {outcome.status}" if outcome.status else f"done: {outcome.reason}")
    return outcome.status


def _describes_job(spec: JobSpec, topology: Topology) -> bool:
    """Whether anything but the program itself was given: a spec, a setting of ours, or a platform's variables."""
    # Torch's own variables do not: MASTER_PORT and the like are there for many a program that starts itself.
    given = [each for each in specs.given(spec) if not each.names[0].startswith("ENTRYPOINT_TORCH_")]
    return bool(specs.settings_in(_environ()) or given or specs.kept_back(spec)) or topology.platform != "local"


def _health(args: argparse.Namespace, say: Speaker) -> int:
    from entrypoint.host import health

    ready, words = health.check()
    with contextlib.suppress(CantCreateError):  # a probe asks for the status
        answer(f"{words}\n")
    return 0 if ready else 1


def _plan(args: argparse.Namespace, say: Speaker) -> int:
    from entrypoint.host import checks
    from entrypoint.plan.show import plan_json, plan_text

    spec, facts = _given(args)
    made, refused = checks.dry_run(spec, facts, settle(spec, facts), say)
    answer(plan_json(spec, made) if args.json else plan_text(spec, made))
    for outcome in refused:
        say(f"run would end: {outcome.reason}; exit {outcome.status}")
    return refused[0].status if refused else 0


def _render(args: argparse.Namespace, say: Speaker) -> int:
    # The scripts run elsewhere and on any node, so this machine needs no place among the hosts.
    args.spec = os.path.abspath(args.spec) if args.spec else None
    if args.node_rank is None:
        args.node_rank = "0"
    spec, facts = _given(args)
    origin = f"{args.spec} and this environment" if args.spec else "this environment"
    files = rendered(spec, facts, origin)
    _write(Path(args.out), files)
    if own := sorted(set(specs.left_out(spec)) - set(specs.kept_back(spec))):
        say(f"secrets are left out of torchrun.sh and torchlaunch.sh | {', '.join(own)} | give them where one runs")
    if left := specs.kept_back(spec):
        say(f"secrets are left out of the scripts | {', '.join(left)} | set them where a script runs")
    for file in files:
        say(f"wrote {args.out.rstrip('/')}/{file.name}, from templates/{file.origin}")
    return 0


def _deploy(args: argparse.Namespace, say: Speaker) -> int:
    text, file = _spec_text(args.spec)
    spec = specs.load(text, file, _environ(), _overrides(args))
    if not args.spec:
        raise UsageError("deploy needs a job spec", "", "give --spec FILE, in the folder that holds the program")
    module = registry.load("deploy", args.target)
    folder, name = os.path.split(os.path.abspath(args.spec))
    nodes = int(args.nodes) if args.nodes and args.nodes.isdecimal() else None
    if args.nodes and (not nodes or (spec.hosts and nodes != len(spec.hosts))):
        seen = f"{args.nodes}, {len(spec.hosts)} hosts in the spec"
        raise UsageError("--nodes is not a number of nodes", seen, "leave it out where the spec has hosts")
    options = module.Options(args.image, folder, name, text or "", nodes, tuple(args.resource))
    rendered: str = module.render(spec, options)
    if names := spec.written_secrets():
        say(f"secrets in the spec | {', '.join(names)} | whoever reads it has them: give them to the containers")
    if left := specs.kept_back(spec):
        say(f"secrets are left out of the file | {', '.join(left)} | give them to the containers")
    if args.out:
        path = Path(args.out)
        _write(path.parent, [File(path.name, rendered, args.target)])
        say(f"wrote {args.out}")
    else:
        answer(rendered)
    return 0


def _ranktable(args: argparse.Namespace, say: Speaker) -> int:
    from entrypoint import ranktable

    if args.verb == "make":
        if len(args.server_id) != len(args.devices):
            seen = f"{len(args.server_id)} --server-id, {len(args.devices)} of the others"
            raise UsageError("each --server-id needs one --hccn-conf or --addresses", seen, "give them in pairs")
        texts = [(kind, _text(given) if kind == "hccn-conf" else given, given) for kind, given in args.devices]
        table = ranktable.make([(server, *devices) for server, devices in zip(args.server_id, texts, strict=True)])
    else:
        table = ranktable.parse(_text(args.file), args.file)
    if args.verb == "check":
        answer(ranktable.describe(table, args.me))
        return 0
    text = ranktable.WRITERS[args.to](table)
    if not args.out:
        answer(text)
        return 0
    path = Path(args.out)
    _write(path.parent, [File(path.name, text, args.to)])
    say(f"wrote {args.out}")
    return 0


def _schema(args: argparse.Namespace, say: Speaker) -> int:
    from entrypoint.spec.reference import schema

    answer(f"{json.dumps(schema(), indent=2)}\n")
    return 0


ACTIONS: Mapping[str, Callable[[argparse.Namespace, Speaker], int]] = {
    "run": _run, "plan": _plan, "render": _render, "deploy": _deploy, "ranktable": _ranktable, "health": _health,
    "schema": _schema,
}  # fmt: skip


# ---------------------------------------------------------------------------------------------------------------
# From the command line to values


def _given(args: argparse.Namespace) -> tuple[JobSpec, Facts]:
    from entrypoint.host import facts as reading

    text, file = _spec_text(args.spec)
    return specs.load(text, file, _environ(), _overrides(args)), reading.read()


def _environ() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name != _TRACE}


def _spec_text(path: str | None) -> tuple[str | None, str]:
    from entrypoint.host.files import read

    if not path:
        return None, ""
    try:
        return read(path).decode("utf-8", "surrogateescape"), path
    except OSError as error:
        raise NoInputError(
            f"cannot read the job spec {path}",
            error.strerror or "",
            "give --spec or ENTRYPOINT_SPEC a file that is there",
        ) from None


def _text(path: str) -> str:
    from entrypoint.host.files import read

    try:
        return read(path).decode("utf-8", "replace")
    except OSError as error:
        raise NoInputError(f"cannot read {path}", error.strerror or "", "give a file that is there") from None


def _overrides(args: argparse.Namespace) -> dict[str, specs.Override]:
    given: dict[str, specs.Override] = {}
    for field in specs.fields():
        if field.flags and (value := getattr(args, field.path, None)) is not None:
            given[field.path] = specs.Override(value, field.flags[-1])
    if getattr(args, "env", None):
        given["env"] = specs.Override(args.env, "--env")
    if args.command:
        given["command"] = specs.Override(args.command, "--")
    return given


def _write(folder: Path, files: Sequence[File]) -> None:
    from entrypoint.host.files import put

    try:
        folder.mkdir(parents=True, exist_ok=True)
        for file in files:
            put(folder / file.name, file.text.encode("utf-8", "surrogateescape"), file.mode)
    except OSError as error:
        raise CantCreateError(
            f"cannot write into {folder}", error.strerror or str(error), "give --out a writable place"
        ) from None


def _split(argv: list[str]) -> tuple[list[str], list[str]]:
    """Our own words, and the program's after the first `--`, which argparse would look into."""
    if "--" not in argv:
        return argv, []
    at = argv.index("--")
    return argv[:at], argv[at + 1 :]
