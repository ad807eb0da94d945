"""A strategic merge patch on plain values, as Kubernetes and kustomize know it.

Mappings are merged and null removes a field. Lists are merged by Kubernetes' own keys, in whatever object they are, so
that the Pod of a JobSet or a Volcano job takes the same patch as that of a Job; all other lists are replaced.
`$patch: delete`, `replace` and `merge` say otherwise.

Sources: kubernetes.io, "Update API Objects in Place Using kubectl patch"; x-kubernetes-patch-merge-key in its OpenAPI.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from entrypoint.errors import ConfigError

KEYS = {
    "containers": "name", "ephemeralContainers": "name", "initContainers": "name", "env": "name", "volumes": "name",
    "imagePullSecrets": "name", "resourceClaims": "name", "schedulingGates": "name", "volumeMounts": "mountPath",
    "volumeDevices": "devicePath", "ports": "containerPort", "hostAliases": "ip",
    "topologySpreadConstraints": "topologyKey", "evictionResponders": "name",
    # Of other kinds, by what their APIs call the key of the list.
    "replicatedJobs": "name", "tasks": "name", "runtimePatches": "manager",
}  # fmt: skip
"""Name of a list -> the field by which its entries are told apart."""

_DIRECTIVE = "$patch"


def merge(base: Any, patch: Any, name: str = "") -> Any:
    """`base` with `patch` in it; neither is changed. `name` is the field's.

    Raises ConfigError when the patch cannot be one.
    """
    if isinstance(patch, Mapping):
        return _mapping(base if isinstance(base, Mapping) else {}, patch)
    if isinstance(patch, list):
        return _list(base if isinstance(base, list) else [], patch, name)
    return patch


def directive(patch: Any) -> str:
    """What `$patch` of a mapping says, `merge` without one.

    Raises ConfigError for one that there is not.
    """
    if not isinstance(patch, Mapping):
        return "merge"
    unknown = [name for name in patch if name.startswith("$") and name != _DIRECTIVE]
    said = patch.get(_DIRECTIVE, "merge")
    if unknown or said not in ("merge", "replace", "delete"):
        seen = unknown[0] if unknown else f"{_DIRECTIVE}: {said}"
        raise ConfigError(
            "EP810 there is no such directive", seen, "use $patch: delete, $patch: replace or $patch: merge"
        )
    return str(said)


def _mapping(base: Mapping[str, Any], patch: Mapping[str, Any]) -> dict[str, Any]:
    made = {} if directive(patch) == "replace" else dict(base)
    for name, value in patch.items():
        if value is None or directive(value) == "delete":
            made.pop(name, None)
        elif name != _DIRECTIVE:
            made[name] = merge(made.get(name), value, name)
    return made


def _list(base: list[Any], patch: list[Any], name: str) -> list[Any]:
    key = KEYS.get(name, "")
    whole = [entry for entry in patch if directive(entry) == "replace"]
    if any(set(entry) != {_DIRECTIVE} for entry in whole):
        do = "write it as an entry of its own, with the new entries beside it"
        raise ConfigError("EP810 `$patch: replace` of a list stands alone", f"in {name}", do)
    entries = [entry for entry in patch if entry not in whole]
    deletes = any(directive(entry) == "delete" for entry in entries)
    if not deletes and (whole or not key or not base):
        return [merge(None, entry) for entry in entries]
    if whole or not key:
        do = "write all entries that it should have"
        raise ConfigError("EP810 no entry of this list can be deleted, since it is replaced as a whole", name, do)
    return _by_key(base, entries, name, key)


def _by_key(base: list[Any], patch: list[Any], name: str, key: str) -> list[Any]:
    made = list(base)
    for entry in patch:
        if not isinstance(entry, Mapping) or key not in entry:
            raise ConfigError(
                f"EP810 an entry of {name} is told by its {key}", f"one without {key}", f"give it its {key}"
            )
        at = next((i for i, each in enumerate(made) if isinstance(each, dict) and each.get(key) == entry[key]), None)
        if directive(entry) == "delete":
            if at is None:
                have = ", ".join(str(each.get(key)) for each in made if isinstance(each, dict)) or "none"
                raise ConfigError(
                    f"EP810 {name} has no such entry", f"{key}: {entry[key]}; it has {have}", "remove the patch"
                )
            del made[at]
        elif at is None:
            made.append(merge(None, entry))
        else:
            made[at] = merge(made[at], entry)
    return made
