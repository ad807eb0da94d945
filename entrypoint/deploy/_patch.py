"""Patches on rendered objects: which objects each is for, what comes out, and whether the job can still do.

A patch is a part of an object with its `kind`, and perhaps its name (strategic merge: _merge.py), or a `target` with a
`patch`: a list of operations (RFC 6902), or such a part. Sources: kustomize, "patches"; RFC 6902.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import yaml

from entrypoint.deploy._dump import dump
from entrypoint.deploy._merge import directive, merge
from entrypoint.errors import ConfigError, Problem, SpecError
from entrypoint.render import comment
from entrypoint.secret import is_secret, masked
from entrypoint.spec import Patch

_END = "\n---\n"  # between two documents: the spec's own lines are indented
_OPERATION = ("op", "path")
_TARGET = ("group", "version", "kind", "name")
_OPTIONAL = ("NetworkPolicy",)  # a job does without them
_GROUPS = {"Job": "batch"}  # where no apiVersion is said: Volcano's is called so, too, and has its Pods elsewhere
# Fields that the job cannot do without, by their path; entries of lists have their name in it.
_NEEDED = re.compile(
    r"apiVersion|kind|metadata\.name|.*\bcontainers\.node\.name|.*\benv\.ENTRYPOINT_(HOSTS|NODE_RANK|NAME|SPEC)\..*"
    r"|.*\b(volumes|volumeMounts)\.spec\..*|.*\btemplate\.metadata\.labels\.app\.kubernetes\.io/(name|instance)"
    r"|.*\b(completions|completionMode|parallelism|replicas|numNodes|subdomain)"
)
_Object = Mapping[str, Any]


def patched(text: str, patches: Sequence[Patch]) -> str:
    """The documents of `text` with the patches in them, one after the other. Others stay as they were written.

    Raises SpecError, with the patch's place, when it is none, is for no object, fails, takes away what the job needs,
    or brings a secret.
    """
    documents = [f"{document}\n" for document in text.removesuffix("\n").split(_END)]
    objects: dict[int, _Object] = {at: yaml.safe_load(document) for at, document in enumerate(documents)}
    places: dict[int, list[str]] = {at: [] for at in objects}  # number of a document -> the patches that it got
    for patch in patches:
        try:
            found, change = _meant(patch.value, objects)
            for at in found:
                after = _checked(objects.pop(at), change)
                objects |= {at: after} if after else {}
                places[at].append(patch.where)
        except ConfigError as error:
            raise SpecError([Problem(patch.where, "", error.summary, error.detail, error.hint)]) from None
    left = [_document(documents[at], objects[at], places[at]) for at in sorted(objects)]
    return _END.join(each.removesuffix("\n") for each in left) + "\n"


def _document(text: str, made: _Object, places: Sequence[str]) -> str:
    """The document as it was written; one that was changed is written anew, under the comments that it began with."""
    if not places:
        return text
    head = "".join(f"{line}\n" for line in text.split("\n") if line.startswith("#"))
    return f"{head}# Patched, and so without its comments: {comment(', '.join(places))}\n{dump(made)}"


_Change = Callable[[_Object], Any]


def _meant(patch: _Object, objects: Mapping[int, _Object]) -> tuple[list[int], _Change]:
    """The objects that a patch is for, by number, and what it makes of each."""
    if "target" in patch:
        target, inner = patch["target"], patch.get("patch")
        if set(patch) != {"target", "patch"} or not isinstance(target, Mapping) or set(target) - set(_TARGET):
            do = f"write target: {{kind: Job}} and patch: [...]; a target has {', '.join(_TARGET)}"
            raise ConfigError("EP810 a patch with a target has a patch, and nothing else", ", ".join(patch), do)
        wanted = dict(target)
    else:
        meta, inner = patch.get("metadata"), patch
        wanted = {"kind": patch.get("kind"), "name": meta.get("name") if isinstance(meta, Mapping) else None}
        if "apiVersion" in patch:
            wanted["group"], _, wanted["version"] = str(patch["apiVersion"]).rpartition("/")
    if not isinstance(wanted.get("kind"), str):
        what, do = "EP810 whose patch is it?", "give it the object's kind, such as Job"
        raise ConfigError(what, f"it has {', '.join(patch) or 'nothing'}", do)
    if not {"group", "version"} & set(wanted) and wanted["kind"] in _GROUPS:
        wanted["group"] = _GROUPS[wanted["kind"]]
    found = [at for at, each in objects.items() if _is(each, wanted)]
    if not found:
        seen = ", ".join(f"{name} {value}" for name, value in wanted.items() if value)
        names = [
            f"{each['apiVersion']} {each['kind']} {each['metadata']['name']}" for _, each in sorted(objects.items())
        ]
        raise ConfigError("EP810 no rendered object is what this patch is for", seen, f"there are: {', '.join(names)}")
    return found, _change(inner)


def _is(each: _Object, wanted: Mapping[str, Any]) -> bool:
    group, _, version = each["apiVersion"].rpartition("/")
    own = {"kind": each["kind"], "name": each["metadata"]["name"], "group": group, "version": version}
    return all(value is None or own[name] == value for name, value in wanted.items())


def _change(patch: Any) -> _Change:
    """What the patch makes of an object: another one, or None where it deletes it."""
    if isinstance(patch, Mapping):
        return (lambda each: None) if directive(patch) == "delete" else lambda each: merge(each, patch)
    operations = patch if isinstance(patch, list) else [patch]
    if not all(isinstance(each, Mapping) and set(_OPERATION) <= set(each) for each in operations):
        do = "write a list of operations: [{op: add, path: /spec/suspend, value: true}], or a part of the object"
        raise ConfigError("EP810 this is no patch", "each operation has op and path", do)
    return lambda each: _operated(each, operations)


def _operated(each: _Object, operations: Sequence[_Object]) -> Any:
    import jsonpatch  # most patches need none

    for operation in operations:
        try:
            each = jsonpatch.apply_patch(each, [operation])
        except (jsonpatch.JsonPatchException, jsonpatch.JsonPointerException, TypeError, ValueError) as error:
            seen = f"{operation['op']} {operation['path']}: {str(error).partition(' in {')[0][:120]}"
            do = "see the object without this patch; a / in a name is written ~1"
            raise ConfigError("EP810 an operation fails", seen, do) from None
    return each


def _checked(before: _Object, change: _Change) -> _Object | None:
    """The changed object; None where it was deleted.

    Raises ConfigError when the job cannot do with it, or everybody who reads the file would have a secret.
    """
    after = change(before)
    name = f"{before['kind']} {before['metadata']['name']}"
    if after is None and before["kind"] in _OPTIONAL:
        return None
    kept = dict(_flat(after)) if isinstance(after, Mapping) else {}
    lost = [path for path, value in _flat(before) if _NEEDED.fullmatch(path) and kept.get(path) != value]
    if lost:
        do = "leave that as it is; the number of nodes is --nodes, the job's name is the spec's"
        raise ConfigError(f"EP811 the job needs what this patch takes from {name}", ", ".join(lost[:3]), do)
    if secrets := sorted({*_secrets(after)} - {*_secrets(before)}):
        do = "take it from a Secret: valueFrom: {secretKeyRef: {name: NAME, key: KEY}}"
        raise ConfigError("EP802 a manifest is no place for secrets", f"env {', '.join(secrets)}", do)
    return dict(after)


def _flat(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Path and value of everything in an object that holds nothing; entries of lists by their name, else by number."""
    if isinstance(value, Mapping):
        entries = [(str(name), each) for name, each in value.items()]
    elif isinstance(value, list):
        entries = [(_name(each, i), each) for i, each in enumerate(value)]
    else:
        yield path, value
        return
    for name, each in entries:
        yield from _flat(each, f"{path}.{name}" if path else name)


def _name(entry: Any, number: int) -> str:
    named = isinstance(entry, Mapping) and (entry.get("name") or entry.get("manager"))
    return str(named or number)


def _secrets(value: Any) -> Iterator[str]:
    """Names of variables that are written out, and may be secrets."""
    for each in value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ():
        yield from _secrets(each)
    if isinstance(value, Mapping) and value.get("name") and isinstance(text := value.get("value"), str):
        name = str(value["name"])
        yield from [name] if is_secret(name) or masked(text) != text else []
