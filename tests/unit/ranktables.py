"""The files of tests/ranktables, and how a test reads them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from entrypoint import ranktable
from entrypoint.ranktable import RankTable

TABLES = Path(__file__).parents[1] / "ranktables"


def read(name: str) -> RankTable:
    return ranktable.parse((TABLES / f"{name}.json").read_text(encoding="utf-8"), "<file>")


def rows(table: RankTable) -> list[list[Any]]:
    return [
        [server.server_id, card.device_id, card.device_ip, *([card.pod] if card.pod else [])]
        for server, card in table.cards
    ]


HCCN = """# written by the driver's installer
address_10=192.98.92.110
netmask_10=255.255.255.0
address_9 = 192.98.92.109
"""
