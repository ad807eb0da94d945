"""New rank tables: from the addresses of one server's devices, and from several servers' tables.

Each is written as JSON and parsed again, so that it is validated like any other table.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from entrypoint.base.errors import ConfigError
from entrypoint.base.interfaces import ip
from entrypoint.base.values import replace
from entrypoint.ranktable.read import parse
from entrypoint.ranktable.table import CardEntry, RankTable, Server
from entrypoint.ranktable.write import to_v1

_ADDRESS = re.compile(r"\s*address_([0-9]{1,9})\s*=\s*(\S+)\s*")


def from_hccn_conf(text: str, server_id: str, where: str = "/etc/hccn.conf") -> RankTable:
    """Return a one-server v1.0 table from the lines address_N=IP of hccn.conf, ranks by N.

    Raises ConfigError if there is no such line, or one is wrong.
    """
    addresses = [
        (int(line[1]), line[2]) for line in map(_ADDRESS.fullmatch, text.splitlines()) if line
    ]
    if not addresses:
        hint = "run hccn_tool on the server, or give --addresses"
        raise ConfigError(f"EP707 {where} names no device", "no line address_N=IP", hint)
    return _one_server(server_id, addresses, where)


def from_addresses(addresses: Sequence[str], server_id: str, where: str) -> RankTable:
    """Return a one-server v1.0 table: device and rank 0 has the first address, 1 the second, ...

    Raises ConfigError if there is none, or one is wrong.
    """
    return _one_server(server_id, list(enumerate(addresses)), where)


def merge(tables: Sequence[RankTable]) -> RankTable:
    """Return one table of all servers, in this order, with new ranks. Super-pods are not supported.

    Raises ConfigError if a server or an address is in two of them.
    """
    servers = [server for table in tables for server in table.servers]
    where = " + ".join(dict.fromkeys(table.where for table in tables))
    if any(table.super_pods for table in tables):
        raise ConfigError(
            f"EP707 rank tables {where} cannot be merged",
            "one has super-pods (v1.2)",
            "merge v1.0 tables",
        )
    merged: list[Server] = []
    for server in servers:
        start = sum(len(before.devices) for before in merged)
        cards = tuple(
            replace(card, rank_id=start + index) for index, card in enumerate(server.devices)
        )
        merged.append(replace(server, devices=cards))
    return parse(to_v1(RankTable("v1.0", tuple(merged))), where)


def _one_server(server_id: str, addresses: Sequence[tuple[int, str]], where: str) -> RankTable:
    cards = tuple(
        CardEntry(device_id, rank, address)
        for rank, (device_id, address) in enumerate(sorted(addresses))
    )
    for card in cards:
        if not ip(card.device_ip):
            summary = f"EP707 {where}: device {card.device_id} has no IP address"
            raise ConfigError(summary, json.dumps(card.device_ip), "fix the address")
    return parse(to_v1(RankTable("v1.0", (Server(server_id, cards),))), where)
