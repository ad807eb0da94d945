"""The values of a rank table, the same for all forms."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal

from entrypoint.base.errors import RetryError
from entrypoint.base.values import field, frozen

_POD_NUMBER = re.compile(r"(?:.*-)?([0-9]{1,9})", re.DOTALL)

Form = Literal["v1.0", "v0.1", "v1.2", "v2.0"]


class NotReady(RetryError):
    """The table is not complete yet: a waiter catches this error, and raises it at its deadline.

    Half-written JSON is such a case, and can't be distinguished from broken JSON.
    """

    def __init__(self, where: str, reason: str) -> None:
        self.where = where
        self.reason = reason
        super().__init__(
            f"EP705 rank table {where} is not complete",
            reason,
            "wait until the platform has written it, or fix the file",
        )


@frozen
class CardEntry:
    """One device (NPU die) and its rank."""

    device_id: int  # number on its server: N of /dev/davinciN
    rank_id: int  # 0 to RankTable.rank_size - 1
    # of the device's own network card; may be absent on one server; "," between two
    device_ip: str = ""
    super_device_id: str = ""  # only in v1.2
    pod: str = ""  # name of the pod that has the device; only in v0.1
    # other fields of the table, such as device_port
    more: Mapping[str, str] = field(default_factory=dict)


@frozen
class Server:
    """One machine, or a pod's part of it; its devices in rank order."""

    server_id: str
    devices: tuple[CardEntry, ...]
    # other fields of the table, such as host_ip
    more: Mapping[str, str] = field(default_factory=dict)

    @property
    def pods(self) -> tuple[str, ...]:
        """Names of the pods on it, in rank order; empty if the form has none."""
        return tuple(dict.fromkeys(card.pod for card in self.devices if card.pod))


@frozen
class RankTable:
    """Every device of a job, with its rank. Only `parse` and make.py create it, after
    validation."""

    form: Form  # the form that was parsed
    servers: tuple[Server, ...]  # by their lowest rank
    # Name -> ids of the servers whose devices share one memory fabric (v1.2).
    super_pods: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    where: str = ""  # its file, for messages
    # As it was read, of a form that HCCL reads and we can't write (v2.0); "" for the others.
    text: str = field(default="", repr=False)

    @property
    def cards(self) -> tuple[tuple[Server, CardEntry], ...]:
        """Every device with its server, in rank order."""
        pairs = [(server, card) for server in self.servers for card in server.devices]
        return tuple(sorted(pairs, key=lambda pair: pair[1].rank_id))

    @property
    def rank_size(self) -> int:
        """Devices, and so ranks, of the whole job (RANK_SIZE)."""
        return sum(len(server.devices) for server in self.servers)


def pod_number(name: str) -> int | None:
    """Return the number at the end of a pod's name, after a "-" or alone; None if there is none."""
    match = _POD_NUMBER.fullmatch(name)
    return int(match[1]) if match else None
