"""argv in, exit status out: the only place that prints for people and catches errors.

Each command imports what it needs by itself: tests/process/test_imports.py holds what none of them may import.
"""

from __future__ import annotations

import contextlib
import gc
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from entrypoint import __version__
from entrypoint.errors import EXIT_SOFTWARE, CantCreateError, EntrypointError, NoInputError, UsageError
from entrypoint.host.proc import undo_launcher
from entrypoint.host.speaker import Speaker, answer, hold_standard_streams
from entrypoint.model import Facts, File

if TYPE_CHECKING:
    import argparse
    from pathlib import Path
    from types import ModuleType
    from typing import Any

    from entrypoint.spec import JobSpec, Override

_TRACE = "ENTRYPOINT_TRACE"  # set to anything, it adds a traceback to a defect's message
_SCRIPTS = {"run_mpi.sh", "torchrun.sh", "torchlaunch.sh"}  # what `entrypoint render` writes


def main(argv: Sequence[str] | None = None) -> int:
    """The `entrypoint` command. Returns its exit status."""
    hold_standard_streams()
    say = Speaker()
    try:
        ours, program = _split(list(sys.argv[1:] if argv is None else argv))
        if ours == ["--version"]:
            answer(f"entrypoint {__version__}\n")
            return 0
        from entrypoint.arguments import parser

        args = parser(os.environ.get("ENTRYPOINT_SPEC") or None, ours).parse_args(ours)
        args.command = program
        return ACTIONS[args.action](args, say)
    except EntrypointError as error:
        for line in error.lines():
            say(line)
        return error.status
    except KeyboardInterrupt:
        return 130
    except Exception as error:
        say(f"internal error: {type(error).__name__}: {error} | please report it with the output of {_TRACE}=1")
        if os.environ.get(_TRACE):
            import traceback

            for line in traceback.format_exc().splitlines():
                say(f"  | {line}")
        return EXIT_SOFTWARE
    finally:
        say.flush()


def script() -> None:
    """`entrypoint` as a program: ends at once, since taking a Python apart costs each node 35 ms for nothing."""
    # asyncio and paramiko import these where they are there, and do without. Nothing here speaks TLS, which takes 4 MB
    # of each node's memory, or runs commands from an ssh_config, which takes the leader 40 ms.
    for unused in ("ssl", "invoke"):
        sys.modules.setdefault(unused, None)  # type: ignore[arg-type]
    gc.disable()  # a start makes no garbage, and looking for it takes 10 ms; a node's loop enables it
    undo_launcher()
    os._exit(main())


def of_image(words: Sequence[str]) -> list[str] | None:
    """The toolkit's own words for those of `docker run IMAGE`; None where these are a program that boots by itself."""
    first = words[0] if words else ""
    if first == "entrypoint" or any(word.rpartition("/")[2] in _SCRIPTS for word in words[:2]):
        return None
    if first in ("--help", "--version"):
        return [first]
    return ["run", "--passthrough", "--", *words] if first and not first.startswith("-") else ["run", *words]


def image() -> None:
    """`image-entry` as a program: what an image runs; scripts/image-entry says what its words mean."""
    given = sys.argv[1:]
    words = of_image(given)
    if words is None:
        from entrypoint.host import facts, process

        hold_standard_streams()
        undo_launcher()
        outcome, say = process.replace(given, facts.environment(), facts.cwd()), Speaker()
        say(f"{outcome.reason}; exit {outcome.status}")
        say.flush()
        os._exit(outcome.status)
    sys.argv[1:] = words
    script()


def _run(args: argparse.Namespace, say: Speaker) -> int:
    from entrypoint.host import process
    from entrypoint.host.result import recorded
    from entrypoint.host.signals import Signals, Stopped

    process.show(process.WAITING)
    try:
        with recorded(say) as result:
            signals = Signals(say)
            signals.watch()  # before anything slow
            from entrypoint.host.facts import of_job, read
            from entrypoint.plan import locate, settle

            spec, facts = _spec(args, say)[0], read()
            process.hide_memory()  # not before: then only root reads /proc/self/environ
            if args.passthrough and not _describes_job(spec, facts):
                outcome = result.end(process.replace(spec.command, facts.env, facts.cwd))
                meant = f" | did you mean: entrypoint {spec.command[0]}?" if spec.command[0] in ACTIONS else ""
                say(f"{outcome.reason}{meant}; exit {outcome.status}")
                return outcome.status
            topology = locate(spec, facts)
            of_this_job = of_job(facts)  # mpirun answers while we import
            from entrypoint.run import execute

            result.about(topology)
            if len(topology.nodes) > 1:
                say.name = topology.this.label
            if spec.prefix == "job":
                say.name = f"{topology.job} {topology.this.label} {topology.this.host}"
            facts = of_this_job()
            outcome = result.end(execute(spec, facts, settle(spec, facts, topology), signals, say))
    except Stopped as stop:
        outcome = stop.outcome
    if outcome.status != 0 or len(topology.nodes) > 1:
        say(f"{outcome.reason}; exit {outcome.status}" if outcome.status else f"done: {outcome.reason}")
    return outcome.status


def _describes_job(spec: JobSpec, facts: Facts) -> bool:
    """Whether anything but the program itself was given: a spec, a setting of ours, or a platform's variables."""
    from entrypoint import registry
    from entrypoint import spec as specs
    from entrypoint.platforms import ANY_PROGRAM

    # Torch's own variables do not: MASTER_PORT and the like are there for many a program that starts itself.
    given = [each for each in specs.given(spec) if not each.names[0].startswith("ENTRYPOINT_TORCH_")]
    if specs.settings_in(_environ()) or given or specs.kept_back(spec):
        return True
    platform = registry.choose("platforms", spec.platform, facts, "local")
    return platform.__name__.rpartition(".")[2] not in ANY_PROGRAM


def _health(args: argparse.Namespace, say: Speaker) -> int:
    from entrypoint.host import health

    ready, words = health.check()
    with contextlib.suppress(CantCreateError):  # a probe asks for the status
        answer(f"{words}\n")
    return 0 if ready else 1


def _plan(args: argparse.Namespace, say: Speaker) -> int:
    from entrypoint.host import checks
    from entrypoint.plan import settle
    from entrypoint.plan.show import plan_json, plan_text

    spec, facts = _given(args, say)
    made, refused = checks.dry_run(spec, facts, settle(spec, facts), say)
    answer(plan_json(spec, made) if args.json else plan_text(spec, made))
    for outcome in refused:
        say(f"run would end: {outcome.reason}; exit {outcome.status}")
    return refused[0].status if refused else 0


def _render(args: argparse.Namespace, say: Speaker) -> int:
    from pathlib import Path

    from entrypoint import spec as specs
    from entrypoint.plan import rendered

    # The scripts run elsewhere and on any node, so this machine needs no place among the hosts.
    args.spec = os.path.abspath(args.spec) if args.spec else None
    if args.node_rank is None:
        args.node_rank = "0"
    spec, facts = _given(args, say)
    origin = f"{args.spec} and this environment" if args.spec else "this environment"
    scripts = rendered(spec, facts, origin)
    _write(Path(args.out), scripts)
    if own := sorted(set(specs.left_out(spec)) - set(specs.kept_back(spec))):
        say(f"secrets are left out of torchrun.sh and torchlaunch.sh | {', '.join(own)} | give them where one runs")
    if left := specs.kept_back(spec):
        say(f"secrets are left out of the scripts | {', '.join(left)} | set them where a script runs")
    for file in scripts:
        say(f"wrote {args.out.rstrip('/')}/{file.name}, from templates/{file.origin}")
    return 0


def _deploy(args: argparse.Namespace, say: Speaker) -> int:
    from entrypoint import registry
    from entrypoint import spec as specs

    spec, text = _spec(args, say)
    if not args.spec:
        raise UsageError("deploy needs a job spec", "", "give --spec FILE, in the folder that holds the program")
    module = registry.load("deploy", args.target)
    folder, name = os.path.split(os.path.abspath(args.spec))
    nodes = int(args.nodes) if args.nodes and args.nodes.isdecimal() else None
    if args.nodes and (not nodes or (spec.hosts and nodes != len(spec.hosts))):
        seen = f"{args.nodes}, {len(spec.hosts)} hosts in the spec"
        raise UsageError("--nodes is not a number of nodes", seen, "leave it out where the spec has hosts")
    own: dict[str, Any] = _options(args, module)
    own["patches"] = tuple(each for file in own.pop("patch", ()) for each in specs.read_patches(_text(file), file))
    options = module.Options(own.pop("image", ""), folder, name, text, nodes, tuple(args.resource or ()), **own)
    rendered: str = module.render(spec, options)
    if names := spec.written_secrets():
        say(f"secrets in the spec | {', '.join(names)} | whoever reads it has them: give them to the containers")
    if left := specs.kept_back(spec):
        say(f"secrets are left out of the file | {', '.join(left)} | give them to the containers")
    for line in module.notes(spec, options) if hasattr(module, "notes") else ():
        say(line)
    return _give(rendered, args.out, say)


def _options(args: argparse.Namespace, target: ModuleType) -> dict[str, Any]:
    """Deploy's own options that were given, but for those whose text is read elsewhere.

    Raises UsageError for one that the target cannot express, and where an image is missing.
    """
    from entrypoint.arguments import DEPLOY
    from entrypoint.deploy._options import DEFAULT

    given = {name: value for name in DEPLOY if (value := getattr(args, name)) is not None}
    takes = getattr(target, "TAKES", DEFAULT)
    if other := [f"--{name}" for name in given if name not in takes]:
        do = f"leave it out; {args.target} takes {', '.join(f'--{name}' for name in takes)}"
        raise UsageError(f"the target {args.target} cannot express this", ", ".join(other), do)
    if not args.image and getattr(target, "NEEDS_IMAGE", True):
        raise UsageError(f"the target {args.target} needs an image", "no --image", "add --image IMAGE")
    return {name: value for name, value in given.items() if name not in ("nodes", "resource")}


def _ranktable(args: argparse.Namespace, say: Speaker) -> int:
    from entrypoint import ranktable

    if args.verb == "make":
        if len(args.server_id) != len(args.devices):
            seen = f"{len(args.server_id)} --server-id, {len(args.devices)} of the others"
            raise UsageError("each --server-id needs one --hccn-conf or --addresses", seen, "give them in pairs")
        tables = [
            ranktable.from_hccn_conf(_text(given), server, given)
            if kind == "hccn-conf"
            else ranktable.from_addresses([part.strip() for part in given.split(",")], server, given)
            for server, (kind, given) in zip(args.server_id, args.devices, strict=True)
        ]
        table = ranktable.merge(tables)
    else:
        table = ranktable.parse(_text(args.file), args.file)
    if args.verb == "check":
        answer(ranktable.describe(table, args.me))
        return 0
    return _give(ranktable.WRITERS[args.to](table), args.out, say)


def _facts(args: argparse.Namespace, say: Speaker) -> int:
    from entrypoint.host.facts import read
    from entrypoint.plan import seen

    found = seen.seen(read(), _spec(args, say)[0].platform)  # no platform asks for the network or mpirun
    answer(seen.text(found))
    if "error" in found:
        say(f"run would end: {found['error']}; exit {found['status']}")
    return int(found.get("status", 0))


def _schema(args: argparse.Namespace, say: Speaker) -> int:
    import json

    from entrypoint.spec.reference import schema

    answer(f"{json.dumps(schema(), indent=2)}\n")
    return 0


ACTIONS: Mapping[str, Callable[[argparse.Namespace, Speaker], int]] = {
    "run": _run, "plan": _plan, "render": _render, "deploy": _deploy, "ranktable": _ranktable, "health": _health,
    "facts": _facts, "schema": _schema,
}  # fmt: skip


def _given(args: argparse.Namespace, say: Speaker) -> tuple[JobSpec, Facts]:
    from entrypoint.host import facts

    return _spec(args, say)[0], facts.of_job(facts.read())()


def _spec(args: argparse.Namespace, say: Speaker) -> tuple[JobSpec, str]:
    """What the user asked for, and the text of the spec file, "" where there is none."""
    from entrypoint.spec import expanded, load

    text = None
    if args.spec:
        args.spec = expanded(args.spec, os.environ)
        data = _read(args.spec, f"the job spec {args.spec}", "give --spec or ENTRYPOINT_SPEC a file that is there")
        text = data.decode("utf-8", "surrogateescape")
    spec = load(text, args.spec or "", _environ(), _overrides(args))
    for words in spec.renamed:
        say(f"warning: {words}")
    return spec, text or ""


def _environ() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name != _TRACE}


def _text(path: str) -> str:
    return _read(path, path, "give a file that is there").decode("utf-8", "replace")


def _read(path: str, what: str, do: str) -> bytes:
    from entrypoint.host import files

    try:
        return files.read(path)
    except OSError as error:
        raise NoInputError(f"cannot read {what}", error.strerror or "", do) from None


def _overrides(args: argparse.Namespace) -> dict[str, Override]:
    from entrypoint.spec import Override, fields

    given = [(field.path, getattr(args, field.path), field.flags[-1]) for field in fields() if field.flags]
    given += [("env", args.env, "--env"), ("command", args.command or None, "--")]
    return {path: Override(value, flag) for path, value, flag in given if value is not None}


def _give(text: str, out: str | None, say: Speaker) -> int:
    """A command's answer, in the file that --out names or on stdout."""
    if out:
        from pathlib import Path

        path = Path(out)
        _write(path.parent, [File(path.name, text, "")])
        say(f"wrote {out}")
    else:
        answer(text)
    return 0


def _write(folder: Path, made: Sequence[File]) -> None:
    from entrypoint.host import files

    try:
        folder.mkdir(parents=True, exist_ok=True)
        for file in made:
            files.put(folder / file.name, file.text.encode("utf-8", "surrogateescape"), file.mode)
    except OSError as error:
        seen = error.strerror or str(error)
        raise CantCreateError(f"cannot write into {folder}", seen, "give --out a writable place") from None


def _split(argv: list[str]) -> tuple[list[str], list[str]]:
    """Our own words, and the program's after the first `--`, which argparse would look into."""
    if "--" not in argv:
        return argv, []
    at = argv.index("--")
    return argv[:at], argv[at + 1 :]
