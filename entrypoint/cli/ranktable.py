"""`entrypoint ranktable`: convert, make or check the rank tables of Ascend jobs."""

from __future__ import annotations

import argparse
from typing import Any

from entrypoint.base.errors import UsageError
from entrypoint.cli import inputs, outputs
from entrypoint.cli.parser import Commands, command
from entrypoint.output.log import Logger, show

_OUTPUT = "[--to v1.0|v0.1] [--out FILE]"


def arguments(commands: Commands, spec: str | None) -> None:
    """Add the command and its options to the command line."""
    both = command(
        commands,
        "ranktable",
        "convert|make|check ...",
        "convert, make or check rank tables of Ascend jobs",
    )
    verbs = both.add_subparsers(dest="verb", metavar="convert|make|check", required=True)

    convert = command(
        verbs,
        "ranktable convert",
        f"FILE {_OUTPUT}",
        "convert a rank table of any form to another form",
    )
    text = "rank table of form v1.0, v1.2, v0.1 (jobstart_hccl.json) or lab"
    convert.add_argument("file", metavar="FILE", help=text)
    for verb in (convert, _make(verbs)):
        verb.add_argument(
            "--to",
            choices=["v1.0", "v0.1"],
            default="v1.0",
            help="form to write; v1.0 if not given",
        )
        verb.add_argument("--out", metavar="FILE", help="file to write; stdout if not given")

    check = command(
        verbs, "ranktable check", "FILE [--me NAME]", "print servers, devices and ranks"
    )
    check.add_argument("file", metavar="FILE", help="rank table of any form")
    check.add_argument(
        "--me", metavar="NAME", help="mark the devices of this pod, server or address"
    )


def _make(verbs: Commands) -> argparse.ArgumentParser:
    usage = f"--server-id IP (--hccn-conf FILE | --addresses IP,IP) ... {_OUTPUT}"
    make = command(
        verbs, "ranktable make", usage, "make a rank table for these servers, in their order"
    )
    make.add_argument(
        "--server-id",
        action="append",
        required=True,
        metavar="IP",
        help="a server; may be repeated",
    )
    devices: dict[str, Any] = {"action": "append", "dest": "devices", "default": []}
    file, addresses = "its /etc/hccn.conf", "its devices' addresses, device 0 first"
    make.add_argument(
        "--hccn-conf", metavar="FILE", help=file, type=lambda path: ("hccn-conf", path), **devices
    )
    make.add_argument(
        "--addresses",
        metavar="IP,IP",
        help=addresses,
        type=lambda text: ("addresses", text),
        **devices,
    )
    return make


def act(args: argparse.Namespace, log: Logger) -> int:
    """Convert, make or check a rank table. Returns 0."""
    from entrypoint import ranktable

    if args.verb == "make":
        if len(args.server_id) != len(args.devices):
            detail = f"{len(args.server_id)} --server-id, {len(args.devices)} of the others"
            hint = "give them in pairs"
            raise UsageError(
                "EP110 each --server-id needs one --hccn-conf or --addresses", detail, hint
            )
        tables = [
            ranktable.from_hccn_conf(inputs.text(value), server, value)
            if kind == "hccn-conf"
            else ranktable.from_addresses(
                [part.strip() for part in value.split(",")], server, value
            )
            for server, (kind, value) in zip(args.server_id, args.devices, strict=True)
        ]
        table = ranktable.merge(tables)
    else:
        table = ranktable.parse(inputs.text(args.file), args.file)
    if args.verb == "check":
        show(ranktable.describe(table, args.me))
        return 0
    return outputs.give(ranktable.WRITERS[args.to](table), args.out, log)
