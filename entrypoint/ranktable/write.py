"""RankTable -> text: the forms for other tools, and a table for people."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from itertools import groupby
from typing import Any

from entrypoint.base.errors import ConfigError
from entrypoint.base.text import columns, count, json_document
from entrypoint.ranktable.node import find
from entrypoint.ranktable.table import CardEntry, RankTable, Server, pod_number


def for_hccl(table: RankTable) -> str:
    """Return the text that HCCL reads: v1.0 or v1.2, and a v2.0 table unchanged."""
    return table.text or to_v1(table)


def to_v1(table: RankTable) -> str:
    """Return the canonical v1.0 text (v1.2 for such a table): servers and devices in rank order,
    all values text.

    Raises ConfigError for a v2.0 table, which has no addresses of servers and devices.
    """
    if table.text:
        raise _cannot_be(table, "v1.0", f"its form is {table.form}")
    document: dict[str, Any] = {
        "status": "completed",
        "version": "1.2" if table.super_pods else "1.0",
        "server_count": str(len(table.servers)),
        "server_list": [_server(server) for server in table.servers],
    }
    if table.super_pods:
        document["super_pod_list"] = [
            {
                "super_pod_id": name,
                "server_list": [{"server_id": server_id} for server_id in server_ids],
            }
            for name, server_ids in table.super_pods.items()
        ]
    return json_document(document)


def to_v0(table: RankTable) -> str:
    """Return the v0.1 text with the same ranks. Pods keep their names; without names they are 0, 1,
    ...

    Raises ConfigError for a v1.2 table, whose super-pods it cannot contain, and for a v2.0 table.
    """
    if table.super_pods or table.text:
        reason = "it has super-pods (v1.2)" if table.super_pods else f"its form is {table.form}"
        raise _cannot_be(table, "v0.1", reason)
    # Readers sort a group's pods by number, so a number that does not rise, or none, begins a new
    # group.
    groups: list[list[dict[str, Any]]] = []
    highest: float = math.inf
    for index, ((server_id, pod), run) in enumerate(
        groupby(table.cards, lambda pair: (pair[0].server_id, pair[1].pod))
    ):
        number = pod_number(pod or str(index))
        if number is None or number <= highest:
            groups.append([])
        highest = math.inf if number is None else number
        devices = [
            _present({"device_id": str(card.device_id), "device_ip": card.device_ip})
            for _, card in run
        ]
        groups[-1].append(
            {"pod_name": pod or str(index), "server_id": server_id, "devices": devices}
        )
    return json_document(
        {
            "status": "completed",
            "group_count": str(len(groups)),
            "group_list": [
                {
                    "group_name": f"group-{index}",
                    "instance_count": str(len(group)),
                    "device_count": str(sum(len(instance["devices"]) for instance in group)),
                    "instance_list": group,
                }
                for index, group in enumerate(groups)
            ],
        }
    )


def _cannot_be(table: RankTable, form: str, reason: str) -> ConfigError:
    summary = f"EP706 rank table {table.where} cannot be written as {form}"
    return ConfigError(summary, reason, "keep it as it is")


WRITERS: Mapping[str, Callable[[RankTable], str]] = {"v1.0": to_v1, "v0.1": to_v0}
"""The values of `entrypoint ranktable convert --to`."""


def describe(table: RankTable, me: str | None = None) -> str:
    """Return servers, pods, devices and ranks in columns, without empty columns; those of the node
    `me` are marked.

    Raises ConfigError if no node, or more than one, has the name `me`.
    """
    own_ranks = {card.rank_id for card in find(table, {"--me": me}).devices} if me else set()
    super_pods = {
        server_id: name for name, server_ids in table.super_pods.items() for server_id in server_ids
    }
    rows = [("rank", "server", "super-pod", "pod", "device", "address", "own")]
    rows += [
        (
            str(card.rank_id),
            server.server_id,
            super_pods.get(server.server_id, ""),
            card.pod,
            str(card.device_id),
            card.device_ip,
            "*" if card.rank_id in own_ranks else "",
        )
        for server, card in table.cards
    ]
    used = [column for column in zip(*rows, strict=True) if any(column[1:])]
    lines = [
        f"{table.form}: {count(len(table.servers), 'server')}, {count(table.rank_size, 'device')}"
    ]
    return "\n".join([*lines, *columns(list(zip(*used, strict=True))), ""])


def _server(server: Server) -> dict[str, Any]:
    return {
        "server_id": server.server_id,
        **server.more,
        "device": [_card(card) for card in server.devices],
    }


def _card(card: CardEntry) -> dict[str, str]:
    values = {
        "device_id": str(card.device_id),
        "device_ip": card.device_ip,
        "super_device_id": card.super_device_id,
    }
    return {**_present(values), **card.more, "rank_id": str(card.rank_id)}


def _present(values: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in values.items() if value}
