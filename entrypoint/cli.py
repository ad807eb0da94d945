"""argv in, exit status out: the only place that prints for people and catches errors."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

from entrypoint import __version__, errors, registry, secret
from entrypoint import fields as spec_fields
from entrypoint import plan as planning
from entrypoint import spec as specs
from entrypoint import topology as topologies
from entrypoint.errors import EXIT_SOFTWARE, CantCreateError, EntrypointError, NoInputError, UsageError
from entrypoint.jobspec import JobSpec
from entrypoint.model import Facts, File, Topology
from entrypoint.show import plan_json, plan_text

_TRACE = "ENTRYPOINT_TRACE"  # set to anything, it adds a traceback to a defect's message


def main(argv: Sequence[str] | None = None) -> int:
    """The `entrypoint` command. Returns its exit status."""
    say = Speaker()
    try:
        ours, program = _split(list(sys.argv[1:] if argv is None else argv))
        args = _parser().parse_args(ours)
        args.command = program
        status = int(args.action(args, say))
        _flush()
        return status
    except EntrypointError as error:
        for line in error.lines():
            say(line)
        return error.status
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # the reader of `plan | head` has left; so do we
        return 0
    except Exception as error:
        say(f"a defect of ours: {type(error).__name__}: {error} | please report it with the output of {_TRACE}=1")
        if os.environ.get(_TRACE):
            print(secret.scrubbed(traceback.format_exc(), os.environ), end="", file=sys.stderr)
        return EXIT_SOFTWARE


def _flush() -> None:
    """Write now what was printed, where a reader that has left is understood, and not when Python ends."""
    if sys.stdout is not None:  # as in `plan >&-`
        sys.stdout.flush()


def script() -> None:
    """`entrypoint` as a program: ends at once, since taking a Python apart costs each node 35 ms for nothing."""
    status = main()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):  # closed, or None
            stream.flush()
    os._exit(status)


class Speaker:
    """Our words to people: stderr, one line each, with the node that says it. stdout is the job's."""

    def __init__(self) -> None:
        self.name = ""

    def __call__(self, text: str) -> None:
        prefix = f"[entrypoint {self.name}]" if self.name else "[entrypoint]"
        print(prefix, secret.scrubbed(text, os.environ), file=sys.stderr, flush=True)


# ---------------------------------------------------------------------------------------------------------------
# The commands


def _run(args: argparse.Namespace, say: Speaker) -> int:
    from entrypoint.run import process
    from entrypoint.run.execute import execute
    from entrypoint.run.result import recorded

    with recorded() as result:
        spec, facts, topology = _settle(args)
        if args.passthrough and not _describes_job(spec, topology):
            outcome = result.end(process.replace(spec.command, facts.env, facts.cwd))
            say(f"{outcome.reason}; exit {outcome.status}")
            return outcome.status
        result.about(topology)
        if len(topology.nodes) > 1:
            say.name = topology.this.label
        outcome = result.end(execute(spec, facts, topology, say))
    if outcome.status != 0 or len(topology.nodes) > 1:
        say(f"{outcome.reason}; exit {outcome.status}" if outcome.status else f"done: {outcome.reason}")
    return outcome.status


def _describes_job(spec: JobSpec, topology: Topology) -> bool:
    """Whether anything but the program itself was given: a spec, a setting of ours, or a platform's variables."""
    ours = any(name.startswith(spec_fields.PREFIX) for name in _environ())
    return ours or bool(spec_fields.given(spec) or spec_fields.kept_back(spec)) or topology.platform != "local"


def _health(args: argparse.Namespace, say: Speaker) -> int:
    from entrypoint.run import health

    ready, words = health.check()
    print(words)
    return 0 if ready else 1


def _plan(args: argparse.Namespace, say: Speaker) -> int:
    spec, facts, topology = _settle(args)
    made = planning.build(spec, facts, topology, planning.assume_roster(topology, facts))
    print(plan_json(spec, made) if args.json else plan_text(spec, made), end="")
    return 0


def _render(args: argparse.Namespace, say: Speaker) -> int:
    # The scripts run elsewhere and on any node, so this machine needs no place among the hosts.
    args.spec = os.path.abspath(args.spec) if args.spec else None
    if args.node_rank is None:
        args.node_rank = "0"
    spec, facts, topology = _settle(args)
    origin = f"{args.spec} and this environment" if args.spec else "this environment"
    roster = planning.assume_roster(topology, facts)
    files = [File("sshd_config", planning.sshd_config(spec, facts, topology, origin), "ssh/sshd_config.j2")]
    for name in registry.names("launchers"):
        files += planning.scripts(name, spec, topology, roster, origin)
    _write(Path(args.out), files)
    if left := spec_fields.kept_back(spec):
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
    if left := spec_fields.kept_back(spec):
        say(f"secrets are left out of the file | {', '.join(left)} | give them to the containers")
    if args.out:
        path = Path(args.out)
        _write(path.parent, [File(path.name, rendered, args.target)])
        say(f"wrote {args.out}")
    else:
        print(rendered, end="")
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
        print(ranktable.describe(table, args.me), end="")
        return 0
    text = ranktable.WRITERS[args.to](table)
    if not args.out:
        print(text, end="")
        return 0
    path = Path(args.out)
    _write(path.parent, [File(path.name, text, args.to)])
    say(f"wrote {args.out}")
    return 0


def _schema(args: argparse.Namespace, say: Speaker) -> int:
    print(json.dumps(specs.schema(), indent=2))
    return 0


# ---------------------------------------------------------------------------------------------------------------
# From the command line to values


def _settle(args: argparse.Namespace) -> tuple[JobSpec, Facts, Topology]:
    from entrypoint.run import facts as reading

    text, file = _spec_text(args.spec)
    spec = specs.load(text, file, _environ(), _overrides(args))
    facts = reading.read()
    site = registry.choose("platforms", spec.platform, facts, "local").site(facts)
    device = registry.choose("devices", spec.device, facts, "cpu").device(facts)
    return spec, facts, topologies.build(spec, facts, site, device)


def _environ() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name != _TRACE}


def _spec_text(path: str | None) -> tuple[str | None, str]:
    if not path:
        return None, ""
    try:
        return Path(path).read_bytes().decode("utf-8", "surrogateescape"), path
    except OSError as error:
        raise NoInputError(
            f"cannot read the job spec {path}",
            error.strerror or "",
            "give --spec or ENTRYPOINT_SPEC a file that is there",
        ) from None


def _text(path: str) -> str:
    try:
        return Path(path).read_bytes().decode("utf-8", "replace")
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
    from entrypoint.run.files import put

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


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> None:  # type: ignore[override]
        do = "put -- before the program: -- python train.py" if "unrecognized arguments" in message else ""
        raise UsageError(" ".join(secret.masked_words(message.split(" "))), "", do or f"try: {self.prog} --help")

    def exit(self, status: int = 0, message: str | None = None) -> NoReturn:  # after --help and --version
        _flush()
        super().exit(status, message)


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="entrypoint",
        description="Boots a training job: `entrypoint run --spec job.yaml`, the same on every node.",
        epilog=_exit_codes(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"entrypoint {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)

    run = _command(
        commands,
        "run [options] [-- PROGRAM ARGUMENT ...]",
        "boot this node's part of the job and end with its result",
        _run,
    )
    _spec_arguments(run)
    text = "only run PROGRAM, as it is, where nothing describes a job"
    run.add_argument("--passthrough", action="store_true", help=text)

    plan = _command(
        commands,
        "plan [options] [-- PROGRAM ARGUMENT ...]",
        "print what run will do, with the origin of each value; no network, no writes",
        _plan,
    )
    _spec_arguments(plan)
    plan.add_argument("--json", action="store_true", help="as JSON")

    render = _command(
        commands, "render --out DIR [options]", "write run_mpi.sh, torchrun.sh, torchlaunch.sh and sshd_config", _render
    )
    _spec_arguments(render)
    render.add_argument("--out", required=True, metavar="DIR", help="folder to write into")

    deploy = _command(
        commands,
        "deploy TARGET --image IMAGE [options] [-- PROGRAM ARGUMENT ...]",
        "print the file that another system runs the job from",
        _deploy,
    )
    deploy.add_argument("target", choices=registry.names("deploy"))
    _spec_arguments(deploy)
    deploy.add_argument("--image", required=True, help="image with the toolkit in it")
    deploy.add_argument("--nodes", metavar="N", help="number of nodes, where the spec names no hosts")
    deploy.add_argument("--resource", action="append", default=[], metavar="NAME=N", help="of each node (Kubernetes)")
    deploy.add_argument("--out", metavar="FILE", help="file to write; stdout where not given")

    _ranktable_commands(commands)
    _command(commands, "health", "for probes: 0 once the job has started on this node, else 1", _health)
    _command(commands, "schema", "print the job spec's JSON Schema, for editors", _schema)
    return parser


def _ranktable_commands(commands: argparse._SubParsersAction[Any]) -> None:
    both = _command(commands, "ranktable convert|make|check ...", "work on the rank tables of Ascend jobs", _ranktable)
    verbs = both.add_subparsers(dest="verb", metavar="convert|make|check", required=True)
    usage = "ranktable convert FILE [--to v1.0|v0.1] [--out FILE]"
    convert = _command(verbs, usage, "write a rank table of any form in another", _ranktable, "convert")
    convert.add_argument("file", metavar="FILE", help="rank table of form v1.0, v1.2, v0.1 (jobstart_hccl.json) or lab")
    usage = "ranktable make --server-id IP (--hccn-conf FILE | --addresses IP,IP) ... [--to v1.0|v0.1] [--out FILE]"
    make = _command(verbs, usage, "make a rank table of the servers given, in their order", _ranktable, "make")
    make.add_argument("--server-id", action="append", required=True, metavar="IP", help="a server; may be repeated")
    for kind, metavar, text in (
        ("hccn-conf", "FILE", "its /etc/hccn.conf"),
        ("addresses", "IP,IP", "its devices' addresses, device 0 first"),
    ):
        make.add_argument(
            f"--{kind}", action="append", dest="devices", default=[], metavar=metavar, help=text,
            type=_of(kind),
        )  # fmt: skip
    for verb in (convert, make):
        verb.add_argument("--to", choices=["v1.0", "v0.1"], default="v1.0", help="form to write; v1.0 if not given")
        verb.add_argument("--out", metavar="FILE", help="file to write; stdout where not given")
    check = _command(verbs, "ranktable check FILE [--me NAME]", "print servers, devices and ranks", _ranktable, "check")
    check.add_argument("file", metavar="FILE", help="rank table of any form")
    check.add_argument("--me", metavar="NAME", help="mark the devices of this pod, server or address")


def _of(kind: str) -> Callable[[str], tuple[str, str]]:
    return lambda given: (kind, given)


def _command(
    commands: argparse._SubParsersAction[Any], usage: str, text: str, action: object, name: str = ""
) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(
        name or usage.split()[0],
        usage=f"entrypoint {usage}",
        help=text,
        description=f"{text[0].upper()}{text[1:]}.",
        epilog=_exit_codes(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.set_defaults(action=action)
    return parser


def _spec_arguments(parser: argparse.ArgumentParser) -> None:
    default = os.environ.get("ENTRYPOINT_SPEC") or None
    parser.add_argument("--spec", "-s", metavar="FILE", default=default, help="job spec, YAML (or ENTRYPOINT_SPEC)")
    for field in specs.fields():
        if field.flags:
            help_text = f"{field.description.split(';')[0].rstrip('.')} (or {field.env})".replace("%", "%%")
            parser.add_argument(
                *field.flags, dest=field.path, metavar=field.path.rsplit(".", 1)[-1].upper(), help=help_text
            )
    parser.add_argument(
        "--env", "-e", action="append", metavar="NAME=VALUE", help="variable for the program, on every node"
    )


def _exit_codes() -> str:
    """The table of exit statuses, as errors.py documents it."""
    table = (errors.__doc__ or "").split("\n\n")[1:3]
    variables = f"Every field of the spec has a variable, {spec_fields.PREFIX}<FIELD>, such as ENTRYPOINT_SSH_PORT."
    return "\n\n".join([*table, f"{variables} See docs/spec.md."])
