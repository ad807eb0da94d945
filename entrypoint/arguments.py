"""The command line: every command with its options, and advice for flags that there are not."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from typing import Any

from entrypoint import __version__, errors, registry, secret
from entrypoint import spec as specs
from entrypoint.errors import UsageError
from entrypoint.host.speaker import answer


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> None:  # type: ignore[override]
        _, unknown, words = message.partition("unrecognized arguments: ")
        do = _advice(words.split(" ")[0].partition("=")[0]) if unknown else f"try: {self.prog} --help"
        raise UsageError(" ".join(secret.masked_words(message.split(" "))), "", do)

    def _print_message(self, message: str, file: object = None) -> None:  # --help and --version
        answer(message)


def _advice(word: str) -> str:
    """What somebody who wrote a flag that there is not may have meant."""
    name = re.sub("[-_.]", "", word)
    if name == "dryrun":
        return "use `entrypoint plan`: it prints what run will do"
    if name == "secret":
        return "a secret does not belong on a command line: use --secret-file FILE, or ENTRYPOINT_SECRET"
    for field in specs.fields():
        if name in (re.sub("[-_.]", "", part) for part in (field.path, *field.flags)) and word.startswith("--"):
            return f"use {field.flags[-1]}" if field.flags else f"set {field.path} in the spec, or {field.env}"
    return "put -- before the program: -- python train.py"


def parser(spec: str | None = None) -> argparse.ArgumentParser:
    """The command line: `action` is the command's name, the rest are its options; `spec` is the default of --spec.

    Raises UsageError where a flag is wrong.
    """
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
    )
    _spec_arguments(run, spec)
    text = "only run PROGRAM, as it is, where nothing describes a job"
    run.add_argument("--passthrough", action="store_true", help=text)

    plan = _command(
        commands,
        "plan [options] [-- PROGRAM ARGUMENT ...]",
        "print what run will do, with the origin of each value; no network, no writes",
    )
    _spec_arguments(plan, spec)
    plan.add_argument("--json", action="store_true", help="as JSON")

    render = _command(
        commands, "render --out DIR [options]", "write run_mpi.sh, torchrun.sh, torchlaunch.sh and sshd_config"
    )
    _spec_arguments(render, spec)
    render.add_argument("--out", required=True, metavar="DIR", help="folder to write into")

    deploy = _command(
        commands,
        "deploy TARGET --image IMAGE [options] [-- PROGRAM ARGUMENT ...]",
        "print the file that another system runs the job from",
    )
    deploy.add_argument("target", choices=registry.names("deploy"))
    _spec_arguments(deploy, spec)
    deploy.add_argument("--image", required=True, help="image with the toolkit in it")
    deploy.add_argument("--nodes", metavar="N", help="number of nodes, where the spec names no hosts")
    deploy.add_argument("--resource", action="append", default=[], metavar="NAME=N", help="of each node (Kubernetes)")
    deploy.add_argument("--out", metavar="FILE", help="file to write; stdout where not given")

    _ranktable_commands(commands)
    _command(commands, "health", "for probes: 0 once the job has started on this node, else 1")
    _command(commands, "schema", "print the job spec's JSON Schema, for editors")
    return parser


def _ranktable_commands(commands: argparse._SubParsersAction[Any]) -> None:
    both = _command(commands, "ranktable convert|make|check ...", "work on the rank tables of Ascend jobs")
    verbs = both.add_subparsers(dest="verb", metavar="convert|make|check", required=True)
    usage = "ranktable convert FILE [--to v1.0|v0.1] [--out FILE]"
    convert = _command(verbs, usage, "write a rank table of any form in another", "convert")
    convert.add_argument("file", metavar="FILE", help="rank table of form v1.0, v1.2, v0.1 (jobstart_hccl.json) or lab")
    usage = "ranktable make --server-id IP (--hccn-conf FILE | --addresses IP,IP) ... [--to v1.0|v0.1] [--out FILE]"
    make = _command(verbs, usage, "make a rank table of the servers given, in their order", "make")
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
    check = _command(verbs, "ranktable check FILE [--me NAME]", "print servers, devices and ranks", "check")
    check.add_argument("file", metavar="FILE", help="rank table of any form")
    check.add_argument("--me", metavar="NAME", help="mark the devices of this pod, server or address")


def _of(kind: str) -> Callable[[str], tuple[str, str]]:
    return lambda given: (kind, given)


def _command(
    commands: argparse._SubParsersAction[Any], usage: str, text: str, name: str = ""
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
    parser.set_defaults(action=usage.split()[0])
    return parser


def _spec_arguments(parser: argparse.ArgumentParser, spec: str | None) -> None:
    parser.add_argument("--spec", "-s", metavar="FILE", default=spec, help="job spec, YAML (or ENTRYPOINT_SPEC)")
    for field in specs.fields():
        if field.flags:
            names = ", ".join(specs.adapters(field))
            text = f"{field.description.split(';')[0].rstrip('.')}{f': {names}' if names else ''}"
            help_text = f"{text} (or {field.env})".replace("%", "%%")
            parser.add_argument(
                *field.flags, dest=field.path, metavar=field.path.rsplit(".", 1)[-1].upper(), help=help_text
            )
    parser.add_argument(
        "--env", "-e", action="append", metavar="NAME=VALUE", help="variable for the program, on every node"
    )


def _exit_codes() -> str:
    """The table of exit statuses, as errors.py documents it."""
    table = (errors.__doc__ or "").split("\n\n")[1:3]
    variables = "Every field of the spec has a variable, ENTRYPOINT_<FIELD>, such as ENTRYPOINT_SSH_PORT."
    return "\n\n".join([*table, f"{variables} See docs/reference/spec.md."])
