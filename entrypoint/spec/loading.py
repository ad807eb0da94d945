"""YAML text + environment + flags -> JobSpec, with every problem at once.

    flag > ENTRYPOINT_<FIELD> > documented variable of another tool > spec file > (platform, later) > default

Each candidate becomes an Item (a value and its place), each Item is checked by what its field needs, and only then does
the order above pick the one that counts: a mistake in the file is reported even where a flag overrides it.
"""

from __future__ import annotations

import contextlib
import functools
import re
import shlex
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

from entrypoint import values
from entrypoint.secret import Secret, is_secret, weakness
from entrypoint.spec.items import Item, Place, ProblemList
from entrypoint.spec.jobspec import JobSpec
from entrypoint.spec.rules import HOW, SECRET, FieldInfo, checked, expanded, suggestion
from entrypoint.spec.table import PREFIX, RESERVED, entries, fields, is_service
from entrypoint.text import brief, count, quoted
from entrypoint.values import dataclass

_KUSTOMIZE = "adapt the manifests with kustomize, as docs/how-to/kustomize.md shows"
_NO_PORT = "remove it: the network check uses the roll call's connections, and free ports between pairs of nodes"
_REMOVED = {
    "kubernetes": _KUSTOMIZE,
    "ENTRYPOINT_KUBERNETES_PATCH": _KUSTOMIZE,
    "netcheck.port": _NO_PORT,
    "ENTRYPOINT_NETCHECK_PORT": _NO_PORT,
}
"""Keys and variables of earlier releases -> what to do instead."""


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
    report = ProblemList()
    root = _yaml(text, file, report) if text is not None else None
    written = dict(_leaves(root, JobSpec(), "", report)) if root else {}
    chosen: dict[str, Any] = {}
    items: dict[str, Item] = {}  # the one that counts, of every field that was given and of every entry of a mapping
    for field in fields():
        flag = flags.get(field.path)
        from_flag = _from_text(field, flag.value, Place(2, where=flag.where), report) if flag else None
        for item in filter(None, (from_flag, _from_env(field, env, report), written.get(field.path))):
            value = _expanded(field, checked(field, item, report), env)
            items.setdefault(field.path, item)
            if isinstance(value, dict):  # entry by entry, each with its own origin
                chosen[field.path] = {**value, **chosen.get(field.path, {})}
                items = {**{f"{field.path}.{name}": entry for name, entry in item.value.items()}, **items}
            elif value is not None:
                chosen.setdefault(field.path, value)
    _unknown_variables(env, report)
    secret = _secret(env, chosen, items, report)
    if text is None or root is not None:  # half a file would look like a contradiction
        for path, what, seen, do in _contradictions(chosen, items):
            report.add(items[path].place, path, what, seen, do, "EP104")
    if report:
        raise report.error()
    sources = {path: item.place.source for path, item in items.items()}
    empty = JobSpec(_sources=MappingProxyType(sources), _secret=secret)
    return functools.reduce(_with, chosen.items(), empty)


def _expanded(field: FieldInfo, value: Any, env: Mapping[str, str]) -> Any:
    """The value; in a command, and in a path, with what a shell would have made of a platform's folder."""
    if field.path == "command" and value:
        return tuple(expanded(word, env) for word in value)
    return expanded(value, env) if field.rule.is_path and value else value


def _with(section: Any, chosen: tuple[str, Any]) -> Any:
    """The spec, or a section of it, with a value at its path."""
    name, _, rest = chosen[0].partition(".")
    value = _with(getattr(section, name), (rest, chosen[1])) if rest else chosen[1]
    return values.replace(section, **{name: value})


def _leaves(item: Item, section: Any, prefix: str, report: ProblemList) -> Iterator[tuple[str, Item]]:
    """Every field that the file sets; a null sets nothing."""
    if not isinstance(item.value, dict):
        if item.value is not None:
            do = f"indent its keys under `{prefix[:-1]}:`" if prefix else "write one `key: value` a line"
            report.add(item.place, prefix[:-1], "a mapping of keys to values is needed", item.seen, do)
        return
    known = entries(section)
    for key, child in item.value.items():
        path = prefix + key
        if key not in known:
            _unknown_key(key, path, child.key or child.place, list(known), report)
        elif values.is_dataclass(known[key]):
            yield from _leaves(child, known[key], f"{path}.", report)
        elif child.value is not None:
            yield path, child


def _unknown_key(key: str, path: str, place: Place, known: list[str], report: ProblemList) -> None:
    # A key is looked for here, then in every section: `port`, `ssh_port` and `grace` all have one home.
    homes = {field.path.rpartition(".")[2]: field.path for field in reversed(fields())}
    homes |= {field.path.replace(".", "_"): field.path for field in fields()}
    homes |= {name: name for name in known}
    import difflib

    if is_secret(key) and not difflib.get_close_matches(key[:100], homes, 1, 0.8):
        do = f"use secret_file or {SECRET}"
        report.add(place, path, "a secret does not belong in a file that is shared", "", do, "EP105")
        return
    do = _REMOVED.get(path) or suggestion(key, homes, known)
    report.add(place, path, "unknown key", f"`{brief(key)}`", do, "EP102")


def _from_env(field: FieldInfo, env: Mapping[str, str], report: ProblemList) -> Item | None:
    for name in (field.env, *field.aliases):
        if env.get(name):
            place = Place(1, where=name)
            return _from_text(field, env[name], place, report)
    return None


def _unknown_variables(env: Mapping[str, str], report: ProblemList) -> None:
    known = {name.removeprefix(PREFIX): name for name in (*(field.env for field in fields()), *RESERVED)}
    for name in env:
        if name.startswith(PREFIX) and env[name] and name not in known.values():
            names = ["the names in docs/reference/spec.md"]
            do = _REMOVED.get(name) or suggestion(name.removeprefix(PREFIX), known, names)
            report.add(Place(1, where=name), "", "no such setting", "", do, "EP102")


def _from_text(field: FieldInfo, given: str | list[str], place: Place, report: ProblemList) -> Item | None:
    """The Item that a variable or a flag gives; None where the text itself is broken, which is then in the report."""
    try:
        if field.kind == "mapping":
            return _json(given, place) if isinstance(given, str) else _assignments(given, place)
        if isinstance(given, list):
            return Item([Item(word, place) for word in given], place)
        if field.kind == "list":
            return _list(field.path, given, place, report)
        return Item(given, place)
    except ValueError as error:
        # Only shell words may be shown: a command's, unless it seems to hold a password.
        shown = quoted(given) if isinstance(given, str) and field.kind == "list" and not is_secret(given) else ""
        report.add(place, field.path, f"{field.needs}: {brief(str(error))}", shown, HOW[field.kind])
        return None


def _assignments(words: list[str], place: Place) -> Item:
    entries = {}
    for word in words:
        name, sign, value = word.partition("=")
        if not sign:
            raise ValueError("`=` is missing" + ("" if is_secret(word) else f" after {quoted(name)}"))
        entries[name] = Item(value, place)  # given twice, the later wins, as in a shell
    return Item(entries, place)


def _list(path: str, text: str, place: Place, report: ProblemList) -> Item | None:
    if not text.lstrip().startswith("["):
        words = re.split(r"[,\s]+", text.strip(", \t\r\n")) if path == "hosts" else shlex.split(text)
        return Item([Item(word, place) for word in words], place)
    with contextlib.suppress(ValueError):  # JSON first, since its surrogate pairs and tabs are nothing to YAML
        return _json(text, place)
    item = _yaml(text, place.where, report, place.group, path)
    return item and values.replace(item, place=place)


def _json(text: str, place: Place) -> Item:
    import json  # most starts read none

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        made: dict[str, Any] = {}
        for name, value in pairs:
            if name in made:
                raise ValueError(f"{quoted(name)} is given twice")
            made[name] = value
        return made

    def item(value: Any) -> Item:
        if isinstance(value, list):
            return Item([item(entry) for entry in value], place)
        if isinstance(value, dict):
            return Item({name: item(entry) for name, entry in value.items()}, place)
        return Item(json.dumps(value) if isinstance(value, bool) else value, place)

    try:
        # Numbers stay as they were written.
        return item(json.loads(text, object_pairs_hook=once, parse_int=str, parse_float=str, parse_constant=str))
    except json.JSONDecodeError as error:
        raise ValueError(f"this is not JSON at character {error.pos + 1}") from None
    except RecursionError:
        raise ValueError("nested too deep") from None


def _yaml(*text: Any) -> Item | None:
    from entrypoint.spec import yamlfile  # here, since most starts read no YAML and PyYAML takes 10 ms

    return yamlfile.read(*text)


def _contradictions(chosen: Mapping[str, Any], items: Mapping[str, Item]) -> Iterator[tuple[str, str, str, str]]:
    """Values that are fine alone and wrong together: the field, what is wrong, what was seen, what to do."""
    rank, hosts = chosen.get("node_rank"), chosen.get("hosts")
    if rank is not None and hosts and rank >= len(hosts):
        what = f"the last of {count(len(hosts), 'host')} is number {len(hosts) - 1}"
        yield "node_rank", what, str(rank), "count from 0, or add hosts"
    one, other = chosen.get("network.interface"), chosen.get("mpi.interface")
    if one not in (None, "auto") and other not in (None, one):
        seen = f"{quoted(one)}, and {quoted(other)} ({items['mpi.interface'].place.source})"
        yield "network.interface", "mpi.interface says something else", seen, "remove one of them"
    if chosen.get("ssh.compat") == "baked-keys":
        if "ssh.client_key" not in items:
            do = "name the image's own private key there, such as /home/ma-user/.ssh/id_rsa"
            yield "ssh.compat", "ssh.client_key is needed too", "", do
        for rival in ("secret", "secret_file", "ssh.host_key", "ssh.known_hosts"):
            if rival in items:
                seen = str(items[rival].place.source)
                yield "ssh.compat", f"{rival} is given too", seen, f"remove ssh.compat, or {rival}"
        return
    keys = ("ssh.client_key", "ssh.host_key")
    for one, other in (keys, keys[::-1]):
        if one in items and other not in items:
            yield one, f"{other} is needed too", "", f"set {other}, or remove {one}"


def _secret(
    env: Mapping[str, str], chosen: dict[str, Any], items: dict[str, Item], report: ProblemList
) -> Secret | None:
    """ENTRYPOINT_SECRET; of a secret and a secret file the one with the higher origin counts."""
    text = env.get(SECRET)
    if not text:
        return None
    place = Place(1, where=SECRET)
    if wrong := weakness(text.encode(errors="surrogateescape")):
        report.add(place, "", *wrong, "make one with: openssl rand -hex 32", "EP301")
    rival = items.get("secret_file")
    if rival and rival.place.source.origin == "flag":
        return None
    if rival and rival.place.source.origin == "env":
        what = f"one secret is needed, {rival.place.where} is set too"
        report.add(place, "", what, "", "unset one of them", "EP103")
    elif rival:
        del items["secret_file"]
        chosen.pop("secret_file", None)
    items["secret"] = Item("", place)
    return Secret(text)
