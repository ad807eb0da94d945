"""YAML text + environment + flags -> JobSpec, with every problem at once.

    flag > ENTRYPOINT_<FIELD> > documented variable of another tool > spec file > (platform, later) > default

Each candidate becomes an Item (a value and its place), each Item is checked by what its field needs, and only then does
the order above pick the one that counts: a mistake in the file is reported even where a flag overrides it.
"""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from entrypoint.model import Origin, Source
from entrypoint.secret import Secret, is_secret, weakness
from entrypoint.spec.checks import checked
from entrypoint.spec.items import Item, Odd, Place, Report, one_line
from entrypoint.spec.jobspec import JobSpec
from entrypoint.spec.rules import suggestion
from entrypoint.spec.table import PREFIX, RESERVED, SECRET, FieldInfo, entries, fields, is_service
from entrypoint.spec.texts import from_text, from_yaml

_ORIGINS: tuple[Origin, ...] = ("spec", "env", "flag")  # by Place.group


@dataclass(frozen=True)
class Override:
    """A value from the command line: its text, or the list of texts of a flag given many times, and the flag's name."""

    value: str | list[str]
    where: str


def load(text: str | None, file: str, env: Mapping[str, str], flags: Mapping[str, Override]) -> JobSpec:
    """The job that a spec file, the environment and the command line ask for together.

    `text` is the file's content (None: there is no file) and `file` its name in positions; `flags` maps dotted paths to
    what the command line gave. A variable that is empty counts as unset. Sources are in `JobSpec.source(path)`.

    Raises SpecError with every problem of all three, sorted: file by position, then variables, then flags.
    """
    assert flags.keys() <= {field.path for field in fields()}
    env = {name: value for name, value in env.items() if not is_service(name, value)}
    report = Report()
    root = from_yaml(text, file, report) if text is not None else None
    written = dict(_leaves(root, JobSpec(), "", report)) if root else {}
    chosen: dict[str, Any] = {}
    items: dict[str, Item] = {}  # the one that counts, of every field that was given
    sources: dict[str, Source] = {}
    for field in fields():
        flag = flags.get(field.path)
        from_flag = from_text(field, flag.value, Place(2, 0, 0, flag.where), report) if flag else None
        for item in (from_flag, _from_env(field, env, report), written.get(field.path)):
            if item is None:
                continue
            value = checked(field, item, report)
            items.setdefault(field.path, item)
            sources.setdefault(field.path, _source(item))
            if field.kind == "mapping" and value is not None:  # entry by entry, each with its own origin
                value = {**value, **chosen.get(field.path, {})}
                for name, entry in item.value.items():
                    sources.setdefault(f"{field.path}.{name}", _source(entry))
                chosen[field.path] = value
            elif value is not None:
                chosen.setdefault(field.path, value)
    _unknown_variables(env, report)
    secret = _secret(env, chosen, sources, report)
    if text is None or root is not None:  # half a file would look like a contradiction
        _contradictions(chosen, items, sources, report)
    if report:
        raise report.error()
    spec: JobSpec = _filled(JobSpec(_sources=MappingProxyType(sources), _secret=secret), chosen, "")
    return spec


def _filled(section: Any, chosen: Mapping[str, Any], prefix: str) -> Any:
    """The spec, or a section of it, with the values chosen."""
    values = {
        name: _filled(value, chosen, f"{prefix}{name}.")
        if dataclasses.is_dataclass(value)
        else chosen.get(prefix + name, value)
        for name, value in entries(section).items()
    }
    return dataclasses.replace(section, **values)


# ---------------------------------------------------------------------------------------------------------------
# From where a value may come


def _source(item: Item) -> Source:
    return Source(_ORIGINS[item.place.group], item.place.where)


def _leaves(item: Item, section: Any, prefix: str, report: Report) -> Iterator[tuple[str, Item]]:
    """Every field that the file sets; a null sets nothing."""
    if not isinstance(item.value, dict):
        if item.value not in (None, Odd.REPORTED):
            do = f"indent its keys under `{prefix[:-1]}:`" if prefix else "write one `key: value` a line"
            report.add(item.place, prefix[:-1], "a mapping of keys to values is needed", item.seen, do)
        return
    known = entries(section)
    for key, child in item.value.items():
        path = prefix + key
        if key not in known:
            _unknown_key(key, path, child.key or child.place, list(known), report)
        elif dataclasses.is_dataclass(known[key]):
            yield from _leaves(child, known[key], f"{path}.", report)
        elif child.value is not None:
            yield path, child


def _unknown_key(key: str, path: str, place: Place, known: list[str], report: Report) -> None:
    # A key is looked for here, then in every section: `port`, `ssh_port` and `grace` all have one home.
    homes = {field.path.rpartition(".")[2]: field.path for field in reversed(fields())}
    homes |= {field.path.replace(".", "_"): field.path for field in fields()}
    homes |= {name: name for name in known}
    if is_secret(key) and not difflib.get_close_matches(key[:100], homes, 1, 0.8):
        do = f"use secret_file or {SECRET}"
        report.add(place, path, "a secret does not belong in a file that is shared", "", do)
        return
    report.add(place, path, "unknown key", f"`{one_line(key)}`", suggestion(key, homes, known))


def _from_env(field: FieldInfo, env: Mapping[str, str], report: Report) -> Item | None:
    for name in (field.env, *field.aliases):
        if env.get(name):
            return from_text(field, env[name], Place(1, 0, 0, name), report)
    return None


def _unknown_variables(env: Mapping[str, str], report: Report) -> None:
    known = {name.removeprefix(PREFIX): name for name in (*(field.env for field in fields()), *RESERVED)}
    for name in env:
        if name.startswith(PREFIX) and env[name] and name not in known.values():
            near = suggestion(name.removeprefix(PREFIX), known, ["the names in docs/reference/spec.md"])
            report.add(Place(1, 0, 0, name), "", "no such setting", "", near)


# ---------------------------------------------------------------------------------------------------------------
# What only the whole shows


def _contradictions(
    chosen: Mapping[str, Any], items: Mapping[str, Item], sources: Mapping[str, Source], report: Report
) -> None:
    """Values that are fine alone and wrong together."""
    rank, hosts = chosen.get("node_rank"), chosen.get("hosts")
    if rank is not None and hosts and rank >= len(hosts):
        what = f"the last of {len(hosts)} hosts is number {len(hosts) - 1}"
        report.add(items["node_rank"].place, "node_rank", what, str(rank), "count from 0, or add hosts")
    keys = ("ssh.client_key", "ssh.host_key")
    if chosen.get("ssh.compat") == "baked-keys":
        if "ssh.client_key" not in items:
            do = "name the image's own private key there, such as /home/ma-user/.ssh/id_rsa"
            report.add(items["ssh.compat"].place, "ssh.compat", "ssh.client_key is needed too", "", do)
        for rival in ("secret", "secret_file", "ssh.host_key", "ssh.known_hosts"):
            if rival in sources:
                do = f"remove ssh.compat, or {rival}"
                report.add(items["ssh.compat"].place, "ssh.compat", f"{rival} is given too", str(sources[rival]), do)
        return
    for one, other in (keys, keys[::-1]):
        if one in items and other not in items:
            report.add(items[one].place, one, f"{other} is needed too", "", f"set {other}, or remove {one}")


def _secret(
    env: Mapping[str, str], chosen: dict[str, Any], sources: dict[str, Source], report: Report
) -> Secret | None:
    """ENTRYPOINT_SECRET; of a secret and a secret file the one with the higher origin counts."""
    text = env.get(SECRET)
    if not text:
        return None
    place = Place(1, 0, 0, SECRET)
    if wrong := weakness(text.encode(errors="surrogateescape")):
        report.add(place, "", *wrong, "make one with: openssl rand -hex 32")
    rival = sources.get("secret_file")
    if rival and rival.origin == "flag":
        return None
    if rival and rival.origin == "env":
        report.add(place, "", f"one secret is needed, {rival.where} is set too", "", "unset one of them")
    elif rival:
        chosen.pop("secret_file", None)
        del sources["secret_file"]
    sources["secret"] = Source("env", SECRET)
    return Secret(text)
