"""YAML text + environment + flags -> JobSpec, with every problem at once.

    flag > ENTRYPOINT_<FIELD> > documented variable of another tool > spec file > (platform, later)
    > default

Each candidate becomes an Item (a value and its place), each Item is validated by the rule of its
field, and only then does the order above select one: a mistake in the file is reported even if a
flag overrides it.
"""

from __future__ import annotations

import contextlib
import functools
import re
import shlex
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

from entrypoint.base import values
from entrypoint.base.secret import HIDDEN, Secret, hides, is_secret, weakness
from entrypoint.base.text import brief, quoted
from entrypoint.base.values import frozen
from entrypoint.spec.former import FORMER, REMOVED, former_entries
from entrypoint.spec.items import Item, Place, ProblemList
from entrypoint.spec.jobspec import PREFIX, SHORT, JobSpec, leaf_path, variable
from entrypoint.spec.rules import (
    FOLDER,
    HOW,
    SECRET,
    FieldInfo,
    checked,
    expanded,
    plain_path,
    suggestion,
)
from entrypoint.spec.table import RESERVED, entries, fields, former_fields, is_service


def removed(name: str) -> str | None:
    """Return a hint if this is a setting of earlier releases: a field, or its variable or flag."""
    letters = letters_of(name.removeprefix(PREFIX)).lower()
    hints = {
        path: f"set {former.now} in the spec, or {variable(former.now)}"
        for path, former in FORMER.items()
    } | REMOVED
    return next((hint for field, hint in hints.items() if letters_of(field) == letters), None)


def letters_of(name: str) -> str:
    """Return a field's path or a flag's name without what their spellings differ in."""
    return re.sub("[-_.]", "", name)


@frozen
class Override:
    """A value from the command line: its text, or the list of texts of a flag given many times, and
    the flag's name."""

    value: str | list[str]
    where: str


def load(
    text: str | None,
    file: str,
    env: Mapping[str, str],
    flags: Mapping[str, Override],
    folders: Mapping[str, str] = MappingProxyType({}),
    here: bool = True,
) -> JobSpec:
    """Return the job spec from a spec file, the environment and the command line.

    `text` is the file's content (None: there is no file) and `file` its name in positions; `flags`
    maps dotted paths to values of the command line. A variable that is empty counts as unset.
    `folders`: where relative paths start, for each origin (`spec`, `env`, `flag`); without one they
    stay as they are. A platform's folder is expanded `here` alone. Sources: `JobSpec.source(path)`.

    Raises SpecError with every problem of all three, sorted: file by position, then variables, then
    flags.
    """
    assert flags.keys() <= {field.path for field in fields()}
    env = {name: value for name, value in env.items() if not is_service(name, value)}
    report = ProblemList()
    root = _yaml(text, file, report) if text is not None else None
    written = dict(_leaves(root, JobSpec(), "", report)) if root else {}
    chosen: dict[str, Any] = {}
    # the selected one, of every field and every entry of a mapping that is set
    items: dict[str, Item] = {}
    for field in (*fields(), *former_fields().values()):
        flag = None
        if given := flags.get(field.path):
            flag = _from_text(field, given.value, Place(2, where=given.where), report)
        for item in filter(None, (flag, _from_env(field, env, report), written.get(field.path))):
            folder = folders.get(item.place.source.origin, "")
            value = _expanded(field, checked(field, item, report), env if here else {}, folder)
            _choose(field.path, item, value, chosen, items)
    _unknown_variables(env, report)
    secret = _secret(env, chosen, items, report)
    if text is None or root is not None:  # a broken file would look like a contradiction
        for path, summary, detail, hint in _contradictions(chosen, items):
            report.add(items[path].place, path, summary, detail, hint, "EP104")
    if report:
        raise report.error()
    sources = {path: item.place.source for path, item in items.items()}
    former = {path: chosen.pop(path) for path in FORMER if path in chosen}
    empty = JobSpec(_sources=sources, _secret=secret, _more=former)
    return functools.reduce(_with, chosen.items(), empty)


def _choose(
    path: str, item: Item, value: Any, chosen: dict[str, Any], items: dict[str, Item]
) -> None:
    """Add a value and its item, unless one of a higher origin is there."""
    items.setdefault(path, item)
    if isinstance(value, dict):  # entry by entry, each with its own origin
        chosen[path] = {**value, **chosen.get(path, {})}
        for name, entry in item.value.items():
            items.setdefault(f"{path}.{name}", entry)
    elif value is not None:
        chosen.setdefault(path, value)


def _expanded(field: FieldInfo, value: Any, env: Mapping[str, str], folder: str) -> Any:
    """Return the value; in a command or a path, a platform's folder is expanded as a shell would do
    it, and a relative path starts at `folder`."""
    if field.path == "command" and value:
        return tuple(expanded(argument, env) for argument in value)
    if not field.rule.is_path or not value:
        return value
    path = expanded(value, env)
    if not folder or path.startswith("/") or FOLDER.match(path):
        return path
    # `hides` looks only at what was given, not at the folder
    return f"{folder}/./{path}" if hides(field.path, path) else plain_path(f"{folder}/{path}")


def _with(section: Any, chosen: tuple[str, Any]) -> Any:
    """Return the spec, or a section of it, with a value at its path."""
    name, _, rest = chosen[0].partition(".")
    rest = rest or (SHORT.get(name, "") if isinstance(section, JobSpec) else "")
    value = _with(getattr(section, name), (rest, chosen[1])) if rest else chosen[1]
    return values.replace(section, **{name: value})


def _leaves(
    item: Item, section: Any, prefix: str, report: ProblemList
) -> Iterator[tuple[str, Item]]:
    """Yield every field that the file sets; a null sets nothing."""
    if not isinstance(item.value, dict):
        if item.value is not None:
            hint = (
                f"indent its keys under `{prefix[:-1]}:`"
                if prefix
                else "write one `key: value` a line"
            )
            has_secret = prefix and any(is_secret(prefix + name) for name in entries(section))
            shown = HIDDEN if has_secret else item.shown
            report.add(
                item.place, prefix[:-1], "a mapping of keys to values is needed", shown, hint
            )
        return
    kind = item.value.get("kind")
    if not prefix and "apiVersion" in item.value and kind:
        summary = "this is a manifest of Kubernetes, not a job spec"
        hint = (
            "`entrypoint deploy kubernetes` makes manifests from a job spec, `entrypoint init` that"
        )
        report.add(kind.place, "", summary, f"kind: {kind.shown}", hint, "EP101")
        return
    present = entries(section)
    expected = former_entries(prefix) | present
    for key, child in item.value.items():
        path = prefix + key
        if key not in expected:
            names = list(present or expected)
            _unknown_key(key, path, child.key or child.place, names, report)
        elif values.is_dataclass(expected[key]) and not (
            path in SHORT and isinstance(child.value, str)
        ):
            yield from _leaves(child, expected[key], f"{path}.", report)
        elif child.value is not None:
            yield leaf_path(prefix[:-1], key), child


def _unknown_key(
    key: str, path: str, place: Place, expected: list[str], report: ProblemList
) -> None:
    # A key is searched here, then in every section: `port`, `ssh_port` and `grace` each belong to
    # one.
    homes = {path.rpartition(".")[2]: former.now for path, former in FORMER.items()}
    homes |= {field.path.rpartition(".")[2]: field.path for field in reversed(fields())}
    homes |= {field.path.replace(".", "_"): field.path for field in fields()}
    homes |= {name: name for name in expected}
    import difflib

    if is_secret(key) and not difflib.get_close_matches(key[:100], homes, 1, 0.8):
        summary = "a secret does not belong in a file that is shared"
        report.add(place, path, summary, "", f"use secret_file or {SECRET}", "EP105")
        return
    hint = removed(path) or suggestion(key, homes, expected)
    if key.startswith("-"):
        hint = f"add it to the command: [..., {brief(key)}, VALUE]"
    report.add(place, path, "unknown key", f"`{brief(key)}`", hint, "EP102")


def _from_env(field: FieldInfo, env: Mapping[str, str], report: ProblemList) -> Item | None:
    for name in (field.env, *field.aliases):
        if env.get(name):
            return _from_text(field, env[name], Place(1, where=name), report)
    return None


def _unknown_variables(env: Mapping[str, str], report: ProblemList) -> None:
    settings = {
        name.removeprefix(PREFIX): name
        for name in (*map(variable, FORMER), *(field.env for field in fields()), *RESERVED)
    }
    for name in env:
        if name.startswith(PREFIX) and env[name] and name not in settings.values():
            names = ["the names in docs/reference/spec.md"]
            hint = removed(name) or suggestion(name.removeprefix(PREFIX), settings, names)
            report.add(Place(1, where=name), "", "no such setting", "", hint, "EP102")


def _from_text(
    field: FieldInfo, text: str | list[str], place: Place, report: ProblemList
) -> Item | None:
    """Return the Item of a variable or a flag; None if its text is not valid, which is then in the
    report."""
    try:
        if field.kind == "mapping":
            return _json(text, place) if isinstance(text, str) else _assignments(text, place)
        if isinstance(text, list):
            return Item([Item(entry, place) for entry in text], place)
        if field.kind == "list":
            return _list(field.path, text, place, report)
        return Item(text, place)
    except ValueError as error:
        # Only a list of shell words may be shown, such as a command, unless it seems to contain a
        # password.
        shown = (
            quoted(text)
            if isinstance(text, str) and field.kind == "list" and not is_secret(text)
            else ""
        )
        report.add(place, field.path, f"{field.needs}: {brief(str(error))}", shown, HOW[field.kind])
        return None


def _assignments(assignments: list[str], place: Place) -> Item:
    entries = {}
    for text in assignments:
        name, sign, value = text.partition("=")
        if not sign:
            raise ValueError(
                "`=` is missing" + ("" if is_secret(text) else f" after {quoted(name)}")
            )
        entries[name] = Item(value, place)  # of two the later wins, as in a shell
    return Item(entries, place)


def _list(path: str, text: str, place: Place, report: ProblemList) -> Item | None:
    if not text.lstrip().startswith("["):
        texts = (
            re.split(r"[,\s]+", text.strip(", \t\r\n")) if path == "hosts" else shlex.split(text)
        )
        return Item([Item(entry, place) for entry in texts], place)
    # JSON first, since YAML does not accept its tabs
    with contextlib.suppress(ValueError):
        return _json(text, place)
    item = _yaml(text, place.where, report, place.group, path)
    return item and values.replace(item, place=place)


def _json(text: str, place: Place) -> Item:
    import json  # slow to import, and most starts read none

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        result: dict[str, Any] = {}
        for name, value in pairs:
            if name in result:
                raise ValueError(f"{quoted(name)} is given twice")
            result[name] = value
        return result

    def item(value: Any) -> Item:
        if isinstance(value, list):
            return Item([item(entry) for entry in value], place)
        if isinstance(value, dict):
            return Item({name: item(entry) for name, entry in value.items()}, place)
        return Item(json.dumps(value) if isinstance(value, bool) else value, place)

    try:
        # Numbers remain text.
        return item(
            json.loads(
                text, object_pairs_hook=once, parse_int=str, parse_float=str, parse_constant=str
            )
        )
    except json.JSONDecodeError as error:
        raise ValueError(f"this is not JSON at character {error.pos + 1}") from None
    except RecursionError:
        raise ValueError("nested too deep") from None


def _yaml(*text: Any) -> Item | None:
    from entrypoint.spec import yamlfile  # PyYAML takes 10 ms, and most starts read no YAML

    return yamlfile.Reader(*text).read()


def _contradictions(
    chosen: Mapping[str, Any], items: Mapping[str, Item]
) -> Iterator[tuple[str, str, str, str]]:
    """Yield field, summary, detail and hint of values that contradict each other."""
    general = chosen.get("network.interface")
    mpi = chosen.get("mpi.interface")
    if general not in (None, "auto") and mpi not in (None, general):
        detail = f"{quoted(general)}, and {quoted(mpi)} ({items['mpi.interface'].place.source})"
        yield "network.interface", "mpi.interface contradicts it", detail, "remove one of them"
    if chosen.get("ssh.compat") == "baked-keys":
        if "ssh.client_key" not in items:
            hint = "name the image's own private key there, such as /home/ma-user/.ssh/id_rsa"
            yield "ssh.compat", "ssh.client_key is needed too", "", hint
        for rival in ("secret", "secret_file", "ssh.host_key", "ssh.known_hosts"):
            if rival in items:
                detail = str(items[rival].place.source)
                yield (
                    "ssh.compat",
                    f"{rival} is given too",
                    detail,
                    f"remove ssh.compat, or {rival}",
                )
        return
    keys = ("ssh.client_key", "ssh.host_key")
    for one, other in (keys, keys[::-1]):
        if one in items and other not in items:
            yield one, f"{other} is needed too", "", f"set {other}, or remove {one}"


def _secret(
    env: Mapping[str, str], chosen: dict[str, Any], items: dict[str, Item], report: ProblemList
) -> Secret | None:
    """Return ENTRYPOINT_SECRET; of a secret and a secret file the one with the higher origin
    wins."""
    text = env.get(SECRET)
    if not text:
        return None
    place = Place(1, where=SECRET)
    if weak := weakness(text.encode(errors="surrogateescape")):
        report.add(place, "", *weak, "create one with: openssl rand -hex 32", "EP301")
    rival = items.get("secret_file")
    if rival and rival.place.source.origin == "flag":
        return None
    if rival and rival.place.source.origin == "env":
        report.add(
            place,
            "",
            f"one secret is needed, {rival.place.where} is set too",
            hint="unset one of them",
            id="EP103",
        )
    elif rival:
        del items["secret_file"]
        chosen.pop("secret_file", None)
    items["secret"] = Item("", place)
    return Secret(text)
