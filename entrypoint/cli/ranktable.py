"""`entrypoint ranktable`: convert, make or check the rank tables of Ascend jobs."""

from __future__ import annotations

import argparse
from functools import partial
from typing import Any

from entrypoint.base.errors import UsageError
from entrypoint.cli import inputs, outputs
from entrypoint.cli.parser import Command
from entrypoint.output.log import Logger, show

_OUTPUT = "[--to v1.0|v0.1] [--out FILE]"


def _of_kind(kind: str, value: str) -> tuple[str, str]:
    return kind, value


_OUTPUT_OPTIONS = (
    "--to FORM  form to write; v1.0 if not given",
    "--out FILE  file to write; stdout if not given",
)
_FORMS: dict[str, Any] = {"to": {"choices": ["v1.0", "v0.1"], "metavar": None, "default": "v1.0"}}
# Either option may describe a server's devices: what it is, and its value.
_DEVICES: dict[str, Any] = {
    kind: {"dest": "devices", "type": partial(_of_kind, kind)}
    for kind in ("hccn-conf", "addresses")
}
COMMAND = Command(
    "convert, make or check rank tables of Ascend jobs",
    "convert|make|check ...",
    is_of_job=False,
    verbs={
        "convert": Command(
            "convert a rank table of any form to another form",
            f"FILE {_OUTPUT}",
            (
                "file FILE  rank table of form v1.0, v1.2 or v0.1 (jobstart_hccl.json)",
                *_OUTPUT_OPTIONS,
            ),
            is_of_job=False,
            more=_FORMS,
        ),
        "make": Command(
            "make a rank table for these servers, in their order",
            f"--server-id IP (--hccn-conf FILE | --addresses IP,IP) ... {_OUTPUT}",
            (
                "--server-id IP ...  a server; may be repeated",
                "--hccn-conf FILE ...  its /etc/hccn.conf",
                "--addresses IP,IP ...  its devices' addresses, device 0 first",
                *_OUTPUT_OPTIONS,
            ),
            is_of_job=False,
            defaults={"devices": []},
            more={"server-id": {"required": True}, **_DEVICES, **_FORMS},
        ),
        "check": Command(
            "print servers, devices and ranks",
            "FILE [--me NAME]",
            (
                "file FILE  rank table of any form",
                "--me NAME  mark the devices of this pod, server or address",
            ),
            is_of_job=False,
        ),
    },
)


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
