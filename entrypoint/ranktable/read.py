"""Text -> RankTable: four forms, distinguished by their keys.

A table with `rank_list` is v2.0; one with `server_list` is v1.0, or v1.2 by its version; one with
`group_list` is v0.1, whose ranks follow from the numbers at the end of the pods' names.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar

from entrypoint.base.errors import ConfigError
from entrypoint.base.interfaces import ip
from entrypoint.base.text import brief, is_utf16, some
from entrypoint.base.values import frozen, replace
from entrypoint.ranktable.table import CardEntry, Form, NotReady, RankTable, Server, pod_number

_FIX = "fix the table"
_Value = TypeVar("_Value")
_NUMBER = re.compile(r"[0-9]{1,9}")


def parse(text: str, where: str) -> RankTable:
    """Return the rank table in `text`; `where` is its file, for messages.

    Raises NotReady while it may still be written (empty, incomplete JSON, a status that is not
    "completed"), and ConfigError, with the place in the JSON, for errors that waiting cannot fix.
    """
    document = _document(text, where)
    if "rank_list" in document.values:
        return _from_ranks(document, text)
    if "server_list" in document.values or "version" in document.values:
        return _from_servers(document)
    if "group_list" in document.values:
        return _from_groups(document)
    raise _unknown(where, "it has neither server_list, rank_list nor group_list")


def _unknown(where: str, detail: str) -> ConfigError:
    hint = "give a v1.0, v1.2, v2.0 or v0.1 table, see docs/reference/ranktables.md"
    return ConfigError(f"EP701 rank table {where} has an unknown form", detail, hint)


@frozen
class _Object:
    """An object of the JSON with its place, such as server_list[0].device[1]. All numbers in it are
    text."""

    where: str
    path: str
    values: dict[str, Any]

    def at(self, key: str) -> str:
        return f"{self.path}.{key}" if self.path else key

    def wrong(self, key: str, problem: str, hint: str, detail: str = "") -> ConfigError:
        """Return the error of the value at a key, which is the detail if there is no other."""
        summary = f"EP700 rank table {self.where}: {self.at(key)} {problem}"
        return ConfigError(summary, detail or _shown(self.values.get(key)), hint)

    def missing(self, key: str) -> ConfigError:
        return self.wrong(
            key,
            "is missing",
            "add it",
            f"there are {', '.join(map(_shown, self.values)) or 'no fields'}",
        )

    def get(self, key: str) -> str:
        """Return the text of a key, "" if it is missing."""
        value = self.values.get(key)
        if value is None:
            return ""
        if not isinstance(value, str):
            raise self.wrong(key, "is neither a text nor a number", "write a text")
        if not value.isprintable():
            raise self.wrong(key, "has characters that cannot be printed", "write a plain name")
        return value

    def text(self, key: str) -> str:
        if not (value := self.get(key)):
            raise self.missing(key)
        return value

    def number(self, key: str) -> int:
        if not _NUMBER.fullmatch(value := self.text(key)):
            raise self.wrong(key, "is not a whole number", "write a number from 0 on")
        return int(value)

    def addresses(self, key: str) -> str:
        """Return one IP address, or several separated by commas, or ""."""
        value = self.get(key)
        if value and not all(map(ip, value.split(","))):
            raise self.wrong(key, "is not an IP address", "write an IPv4 or IPv6 address")
        return value

    def objects(self, key: str, may_be_empty: bool = False) -> list[_Object]:
        value = self.values.get(key)
        if not value and may_be_empty:
            return []
        if value is None:
            raise self.missing(key)
        if not isinstance(value, list) or not value:
            raise self.wrong(key, "is not a list with entries", "list what belongs there")
        result = []
        for index, entry in enumerate(value):
            if not isinstance(entry, dict):
                raise self.wrong(
                    f"{key}[{index}]", "is not an object", "write {...}", _shown(entry)
                )
            result.append(_Object(self.where, self.at(f"{key}[{index}]"), entry))
        return result

    def counts(self, key: str, listed: int) -> None:
        """Check that the count, if the table has one, agrees with the list."""
        if self.get(key) and (count := self.number(key)) != listed:
            raise self.wrong(
                key,
                "disagrees with the list",
                "fix one of the two",
                f"{count}, and the list has {listed}",
            )

    def take(self, key: str, value: _Value, places: dict[_Value, str], hint: str) -> None:
        """Note the place of a value that only one object may have."""
        if value in places:
            raise self.wrong(key, "is taken", hint, f"{value}, also at {places[value]}")
        places[value] = self.at(key)

    def rest(self, *keys: str) -> dict[str, str]:
        """Return the texts of all other keys, unchanged."""
        return {
            key: value
            for key, value in self.values.items()
            if key not in keys and isinstance(value, str)
        }


@frozen
class _Entry:
    """A parsed device, with its object."""

    device: _Object
    server_id: str
    card: CardEntry


def _document(text: str, where: str) -> _Object:
    text = text.removeprefix("\ufeff")
    if not text.strip():
        raise NotReady(where, "it is empty")
    if is_utf16(text):
        raise ConfigError(
            f"EP701 rank table {where} is UTF-16 text", _shown(text[:4]), "save it as UTF-8"
        )
    try:
        # Numbers remain text: a platform may write "0" or 0, "1.0" or 1.0.
        document = json.loads(text, parse_int=str, parse_float=str, parse_constant=str)
    except json.JSONDecodeError as error:
        raise NotReady(
            where, f"no whole JSON: {error.msg} at line {error.lineno} column {error.colno}"
        ) from None
    except RecursionError:
        raise ConfigError(
            f"EP701 rank table {where} is nested too deep", "more than Python reads", _FIX
        ) from None
    if not isinstance(document, dict):
        raise ConfigError(f"EP701 rank table {where} is not a JSON object", _shown(document), _FIX)
    status = document.get("status")
    if status != "completed":
        raise NotReady(
            where, "it has no status" if status is None else f"its status is {_shown(status)}"
        )
    return _Object(where, "", document)


def _from_ranks(document: _Object, text: str) -> RankTable:
    """Return a v2.0 table, which lists ranks and names no servers: a node ends before the next rank
    with a `local_id` that it has."""
    if document.text("version") != "2.0":
        hint = "a table with rank_list is of version 2.0"
        raise document.wrong("version", "is unknown", hint)
    listed = document.objects("rank_list")
    document.counts("rank_count", len(listed))
    entries: list[_Entry] = []
    node, taken = 0, set[int]()
    for rank in sorted(listed, key=lambda entry: entry.number("rank_id")):
        if (local := rank.number("local_id")) in taken:
            node, taken = node + 1, set()
        taken.add(local)
        card = CardEntry(device_id=rank.number("device_id"), rank_id=rank.number("rank_id"))
        entries.append(_Entry(rank, f"node-{node}", card))
    return _table(document, "v2.0", entries, {}, text)


def _from_servers(document: _Object) -> RankTable:
    version = document.text("version")
    if version not in ("1.0", "1.2"):
        raise document.wrong("version", "is unknown", "give a table of version 1.0 or 1.2")
    entries: list[_Entry] = []
    more: dict[str, dict[str, str]] = {}
    listed = document.objects("server_list")
    document.counts("server_count", len(listed))
    for server in listed:
        server_id = server.text("server_id")
        if server_id in more:
            raise server.wrong("server_id", "is listed twice", "list each server once")
        for key in ("host_ip", "container_ip"):
            server.addresses(key)
        more[server_id] = server.rest("server_id")
        for device in server.objects("device"):
            card = _card(device, device.number("rank_id"))
            if version == "1.2":
                device.text("super_device_id")
            entries.append(_Entry(device, server_id, card))
    form: Form = "v1.2" if version == "1.2" else "v1.0"
    table = _table(document, form, entries, more)
    pods = _super_pods(document, list(more)) if form == "v1.2" else {}
    return replace(table, super_pods=pods)


def _super_pods(document: _Object, server_ids: Sequence[str]) -> dict[str, tuple[str, ...]]:
    super_pods: dict[str, tuple[str, ...]] = {}
    remaining = list(server_ids)
    for pod in document.objects("super_pod_list"):
        name = pod.text("super_pod_id")
        if name in super_pods:
            raise pod.wrong("super_pod_id", "is listed twice", "list each super-pod once")
        for server in pod.objects("server_list"):
            server_id = server.text("server_id")
            if server_id not in remaining:
                problem = (
                    "is in two super-pods" if server_id in server_ids else "is not in server_list"
                )
                raise server.wrong("server_id", problem, "name each server of server_list once")
            remaining.remove(server_id)
            super_pods[name] = (*super_pods.get(name, ()), server_id)
    if remaining:
        detail = f"not {some(remaining, 4)}"
        raise document.wrong(
            "super_pod_list", "does not name every server", "add each to one", detail
        )
    return super_pods


def _from_groups(document: _Object) -> RankTable:
    groups = document.objects("group_list")
    document.counts("group_count", len(groups))
    entries: list[_Entry] = []
    for group in groups:
        instances = group.objects("instance_list", may_be_empty=True)
        group.counts("instance_count", len(instances))
        devices = list(_pods(instances, len(entries)))
        group.counts("device_count", len(devices))
        entries += devices
    _no_pod_twice(entries)
    return _table(document, "v0.1", entries, {})


def _pods(instances: Sequence[_Object], rank: int) -> Iterator[_Entry]:
    """Yield the devices, with ranks from `rank` on, in the order of the numbers in the pods' names:
    10 after 9."""
    numbered: dict[int | None, _Object] = {}
    for instance in instances:
        if "rank_id" in instance.values:
            raise _unknown(instance.where, f"{instance.path} has a rank_id: the lab form of 2019")
        name = instance.text("pod_name")
        number = pod_number(name)
        if number is None and len(instances) > 1:
            raise instance.wrong(
                "pod_name", "does not end in a number", "name pods such as job-worker-0"
            )
        if number in numbered:
            detail = f"{name} and {numbered[number].text('pod_name')}"
            raise instance.wrong(
                "pod_name", "ends in a number that another pod has", "number a group's pods", detail
            )
        numbered[number] = instance
    for _, instance in sorted(numbered.items(), key=lambda entry: entry[0] or 0):
        for device in instance.objects("devices", may_be_empty=True):
            server_id = instance.text("server_id")
            yield _Entry(device, server_id, _card(device, rank, instance.text("pod_name")))
            rank += 1


def _no_pod_twice(entries: Sequence[_Entry]) -> None:
    owners: dict[str, str] = {}
    for entry in entries:
        instance = entry.device.path.rpartition(".")[0]
        if owners.setdefault(entry.card.pod, instance) != instance:
            detail = f"{_shown(entry.card.pod)}, also at {owners[entry.card.pod]}"
            raise _Object(entry.device.where, instance, {}).wrong(
                "pod_name", "is in two groups", "name each pod once", detail
            )


def _card(device: _Object, rank: int, pod: str = "") -> CardEntry:
    device.addresses("backup_device_ip")
    return CardEntry(
        device_id=device.number("device_id"),
        rank_id=rank,
        device_ip=device.addresses("device_ip"),
        super_device_id=device.get("super_device_id"),
        pod=pod,
        more=device.rest("device_id", "rank_id", "device_ip", "super_device_id"),
    )


def _table(
    document: _Object,
    form: Form,
    entries: Sequence[_Entry],
    more: Mapping[str, Mapping[str, str]],
    text: str = "",
) -> RankTable:
    """Return the table, after the checks that apply to all forms. `more`: other fields of the
    servers."""
    if not entries:
        raise ConfigError(
            f"EP700 rank table {document.where} has no devices",
            "its lists of devices are empty",
            "list the devices of each pod",
        )
    ranks = _places_of_ranks(entries, need_ip=form not in ("v1.2", "v2.0"))
    if missing := sorted(set(range(len(entries))) - set(ranks)):
        raise ConfigError(
            f"EP700 rank table {document.where}: the rank ids do not run from 0 to"
            f" {len(entries) - 1}",
            f"no {some(map(str, missing), 8)}",
            "number the ranks without a gap",
        )
    cards: dict[str, list[CardEntry]] = {}
    for entry in sorted(entries, key=lambda entry: entry.card.rank_id):
        cards.setdefault(entry.server_id, []).append(entry.card)
    servers = tuple(Server(id, tuple(of_it), more.get(id, {})) for id, of_it in cards.items())
    return RankTable(form, servers, where=document.where, text=text)


def _places_of_ranks(entries: Sequence[_Entry], need_ip: bool) -> dict[int, str]:
    """Return rank -> its place in the document. Raises ConfigError for what is there twice, or
    lacks an address."""
    devices: set[tuple[str, int]] = set()
    ranks: dict[int, str] = {}
    addresses: dict[str, str] = {}
    is_many = len({entry.server_id for entry in entries}) > 1
    for entry in entries:
        card = entry.card
        device = entry.device
        if (entry.server_id, card.device_id) in devices:
            detail = f"device {card.device_id} of {entry.server_id}"
            raise device.wrong(
                "device_id", "is a device listed before", "list each device once", detail
            )
        devices.add((entry.server_id, card.device_id))
        device.take("rank_id", card.rank_id, ranks, "give each device a rank of its own")
        if is_many and need_ip and not card.device_ip:
            raise device.wrong(
                "device_ip",
                "is missing",
                "give each device's address, see hccn_tool -ip -g",
                "many servers",
            )
        for address in card.device_ip.split(",") if card.device_ip else ():
            device.take("device_ip", address, addresses, "give each device's own address")
    return ranks


def _shown(value: Any) -> str:
    return brief(json.dumps(value))
