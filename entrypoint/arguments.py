"""The command line: every command with its options, and advice for flags that there are not."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from typing import Any, TypeAlias

from entrypoint import __version__, errors, registry, secret
from entrypoint.errors import UsageError
from entrypoint.host.speaker import answer, width
from entrypoint.spec import fields

_EXIT_STATUSES = "\n\n".join((errors.__doc__ or "").split("\n\n")[1:3])
_EPILOG = f"""{_EXIT_STATUSES}

Every field of the spec has a variable, ENTRYPOINT_<FIELD>, such as ENTRYPOINT_SSH_PORT. See docs/reference/spec.md."""


def _look(prog: str) -> argparse.HelpFormatter:
    return argparse.RawDescriptionHelpFormatter(prog, width=width())


class _Parser(argparse.ArgumentParser):
    def __init__(self, **options: Any) -> None:
        super().__init__(**options, epilog=_EPILOG, formatter_class=_look, allow_abbrev=False)

    def error(self, message: str) -> None:  # type: ignore[override]
        _, unknown, words = message.partition("unrecognized arguments: ")
        do = _advice(words.split(" ")[0].partition("=")[0]) if unknown else f"try: {self.prog} --help"
        raise UsageError(" ".join(secret.masked_words(message.split(" "))), "", do)

    def _print_message(self, message: str, file: object = None) -> None:  # --help and --version
        answer(message)


_Commands: TypeAlias = "argparse._SubParsersAction[_Parser]"


def _advice(word: str) -> str:
    """What somebody who wrote a flag that there is not may have meant."""
    name = re.sub("[-_.]", "", word)
    if name == "dryrun":
        return "use `entrypoint plan`: it prints what run will do"
    if name == "secret":
        return "a secret does not belong on a command line: use --secret-file FILE, or ENTRYPOINT_SECRET"
    for field in fields():
        if name in (re.sub("[-_.]", "", part) for part in (field.path, *field.flags)) and word.startswith("--"):
            return f"use {field.flags[-1]}" if field.flags else f"set {field.path} in the spec, or {field.env}"
    return "put -- before the program: -- python train.py"


def parser(spec: str | None = None, words: Sequence[str] = ()) -> argparse.ArgumentParser:
    """The command line: `action` is the command's name, the rest are its options; `spec` is the default of --spec.

    Where `words` begin with a command, it is the only one that is made, since all take time. Raises UsageError where a
    flag is wrong.
    """
    about = "Boots a training job: `entrypoint run --spec job.yaml`, the same on every node."
    parser = _Parser(prog="entrypoint", description=about)
    parser.add_argument("--version", action="version", version=f"entrypoint {__version__}")
    commands = parser.add_subparsers(prog="entrypoint", metavar="COMMAND", required=True)
    named = [_COMMANDS[word] for word in words[:1] if word in _COMMANDS]
    for make in named or _COMMANDS.values():
        make(commands, spec)
    return parser


_PROGRAM = "[options] [-- PROGRAM ARGUMENT ...]"
DEPLOY = {
    "image": ("IMAGE", "image with the toolkit in it; slurm can do without"),
    "nodes": ("N", "number of nodes, where the spec names no hosts"),
    "resource": ("NAME=N", "of each node: nvidia.com/gpu=8; not for modelarts. May be repeated"),
    "kind": ("KIND", "form of the job: job, jobset, mpijob, trainjob or volcano; job where not given (kubernetes)"),
    "patch": ("FILE", "changes to the rendered objects, as kustomize has them, YAML (kubernetes). May be repeated"),
    "runtime": ("NAME", "what starts the image: pyxis or apptainer; none without an image (slurm)"),
    "time": ("LIMIT", "time limit of the job, as sbatch takes it: 12:00:00 (slurm)"),
    "flavor": ("ID", "kind of the instances (modelarts)"),
    "pool": ("ID", "dedicated resource pool (modelarts)"),
    "code": ("OBS", "OBS folder with the program: obs://bucket/folder/ (modelarts)"),
    "logs": ("OBS", "OBS folder for the job's logs (modelarts)"),
}
"""The options of `deploy` beside those of the job: metavar and help. A target says which it takes: `TAKES`."""


def _run(commands: _Commands, spec: str | None) -> None:
    run = _command(commands, "run", _PROGRAM, "boot this node's part of the job and end with its result")
    _job_arguments(run, spec)
    text = "only run PROGRAM, as it is, where nothing describes a job"
    run.add_argument("--passthrough", action="store_true", help=text)


def _plan(commands: _Commands, spec: str | None) -> None:
    text = "print what run will do, with the origin of each value; no network, no writes"
    plan = _command(commands, "plan", _PROGRAM, text)
    _job_arguments(plan, spec)
    plan.add_argument("--json", action="store_true", help="as JSON")


def _render(commands: _Commands, spec: str | None) -> None:
    text = "write run_mpi.sh, torchrun.sh, torchlaunch.sh and sshd_config"
    render = _command(commands, "render", "--out DIR [options]", text)
    _job_arguments(render, spec)
    render.add_argument("--out", required=True, metavar="DIR", help="folder to write into")


def _deploy(commands: _Commands, spec: str | None) -> None:
    text = "print the file that another system runs the job from"
    deploy = _command(commands, "deploy", f"TARGET --image IMAGE {_PROGRAM}", text)
    _job_arguments(deploy, spec)
    deploy.add_argument("target", choices=registry.names("deploy"))
    deploy.add_argument("--out", metavar="FILE", help="file to write; stdout where not given")
    for name, (metavar, words) in DEPLOY.items():
        more: dict[str, Any] = {"action": "append"} if name in ("resource", "patch") else {}
        deploy.add_argument(f"--{name}", metavar=metavar, help=words, **more)


def _ranktable(commands: _Commands, spec: str | None) -> None:
    both = _command(commands, "ranktable", "convert|make|check ...", "work on the rank tables of Ascend jobs")
    verbs = both.add_subparsers(dest="verb", metavar="convert|make|check", required=True)

    options = "[--to v1.0|v0.1] [--out FILE]"
    convert = _command(verbs, "ranktable convert", f"FILE {options}", "write a rank table of any form in another")
    convert.add_argument("file", metavar="FILE", help="rank table of form v1.0, v1.2, v0.1 (jobstart_hccl.json) or lab")

    usage = f"--server-id IP (--hccn-conf FILE | --addresses IP,IP) ... {options}"
    make = _command(verbs, "ranktable make", usage, "make a rank table of the servers given, in their order")
    make.add_argument("--server-id", action="append", required=True, metavar="IP", help="a server; may be repeated")
    devices: dict[str, Any] = {"action": "append", "dest": "devices", "default": []}
    file, addresses = "its /etc/hccn.conf", "its devices' addresses, device 0 first"
    make.add_argument("--hccn-conf", metavar="FILE", help=file, type=lambda it: ("hccn-conf", it), **devices)
    make.add_argument("--addresses", metavar="IP,IP", help=addresses, type=lambda it: ("addresses", it), **devices)
    for verb in (convert, make):
        verb.add_argument("--to", choices=["v1.0", "v0.1"], default="v1.0", help="form to write; v1.0 if not given")
        verb.add_argument("--out", metavar="FILE", help="file to write; stdout where not given")

    check = _command(verbs, "ranktable check", "FILE [--me NAME]", "print servers, devices and ranks")
    check.add_argument("file", metavar="FILE", help="rank table of any form")
    check.add_argument("--me", metavar="NAME", help="mark the devices of this pod, server or address")


def _health(commands: _Commands, spec: str | None) -> None:
    _command(commands, "health", "", "for probes: 0 once the job has started on this node, else 1")


def _facts(commands: _Commands, spec: str | None) -> None:
    text = "print which platforms match this container, the one that is taken, and the variables it reads"
    _job_arguments(_command(commands, "facts", "[options]", text), spec)


def _schema(commands: _Commands, spec: str | None) -> None:
    _command(commands, "schema", "", "print the job spec's JSON Schema, for editors")


_COMMANDS = {
    "run": _run, "plan": _plan, "render": _render, "deploy": _deploy, "ranktable": _ranktable, "health": _health,
    "facts": _facts, "schema": _schema,
}  # fmt: skip


def _command(commands: _Commands, name: str, usage: str, text: str) -> _Parser:
    """One command, or the `name`'s last word as a verb of one."""
    action, verb = name.split()[0], name.split()[-1]
    usage, about = f"entrypoint {name} {usage}".rstrip(), f"{text[0].upper()}{text[1:]}."
    parser = commands.add_parser(verb, usage=usage, help=text, description=about)
    parser.set_defaults(action=action)
    return parser


def _job_arguments(parser: _Parser, spec: str | None) -> None:
    """What every command takes that works on a job."""
    parser.add_argument("--spec", "-s", metavar="FILE", default=spec, help="job spec, YAML (or ENTRYPOINT_SPEC)")
    for field in fields():
        if field.flags:
            names = ", ".join(field.adapters)
            text = f"{field.description.split(';')[0].rstrip('.')}{f': {names}' if names else ''} (or {field.env})"
            metavar = field.path.rsplit(".", 1)[-1].upper()
            parser.add_argument(*field.flags, dest=field.path, metavar=metavar, help=text.replace("%", "%%"))
    text = "variable for the program, on every node"
    parser.add_argument("--env", "-e", action="append", metavar="NAME=VALUE", help=text)
