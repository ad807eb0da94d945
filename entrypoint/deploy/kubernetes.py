"""A Kubernetes Job of one Pod a node, with stable names: Indexed completion, a headless Service, and a failure policy.

Source: kubernetes.io, "Jobs" (completion mode, Pod failure policy) and "DNS for Services and Pods". Kubernetes 1.31 or
newer, where the failure policy is stable.
"""

from __future__ import annotations

import contextlib
import math

import yaml

from entrypoint import registry
from entrypoint.deploy._options import Options, own_command, resources, settings
from entrypoint.errors import RETRIED, ConfigError, UsageError
from entrypoint.render import Raw
from entrypoint.render import render as render_template
from entrypoint.spec import HostEntry, JobSpec

__all__ = ["Options", "render"]

_SECRET = "/run/secrets/entrypoint"
_SPEC = "/etc/entrypoint/job"
# What machines or the network did, and a node that was told to stop with its job: a new start may do better.
_RESTARTED = [*RETRIED, 128 + 15]
_RESTARTS = 3  # of the whole job
_PROBE = 10  # seconds between two
_HOOKS = 3600  # seconds that start hooks may take before nodes look for each other
_LABEL = 63  # characters that DNS allows
# The rendered file says these itself.
_OWN = {"ENTRYPOINT_HOSTS", "ENTRYPOINT_SECRET_FILE", "ENTRYPOINT_SPEC", "ENTRYPOINT_NAME"}


def render(spec: JobSpec, options: Options) -> str:
    """The manifests' text: Service, ConfigMap with the spec, Job. The secret is a Secret that the user makes.

    Raises ConfigError when the number of nodes or cards is unknown, the job's name can't be one here, or the spec holds
    secrets, which everybody would read in the ConfigMap; UsageError when a resource is not NAME=QUANTITY.
    """
    nodes = len(spec.hosts) or options.nodes
    if not nodes:
        raise ConfigError(
            "how many Pods should there be?", "the spec has no hosts", "add --nodes 2, or hosts: with any names"
        )
    _check_name(spec.name, nodes)
    if names := spec.written_secrets():
        do = f"take them out, and give them in the Secret {spec.name}-env, whose keys are variables of every Pod"
        raise ConfigError("a ConfigMap is no place for secrets", f"env of the spec: {', '.join(names)}", do)
    # As the nodes that the spec names by other names, each has its own slots.
    slots = [HostEntry.of(host).slots for host in spec.hosts] or [None] * nodes
    service = f".{spec.name}" if nodes > 1 else ""  # one Pod needs none
    hosts = [f"{spec.name}-{rank}{service}" + (f":{own}" if own else "") for rank, own in enumerate(slots)]
    command = own_command(spec)
    return render_template(
        "kubernetes/job.yaml.j2",
        {
            "origin": options.spec_name,
            "name": spec.name,
            "nodes": nodes,
            "image": options.image,
            "settings": [{"name": name, "value": _expanded(value)} for name, value in _settings(spec, hosts).items()],
            "args": [_expanded(word) for word in ("entrypoint", "run", "--", *command)] if command else [],
            "spec_text": _block(options.spec_text),
            "spec_folder": _SPEC,
            "secret_folder": _SECRET,
            "port": spec.ssh.port,
            "limits": _limits(spec, options),
            "grace": round(spec.timeouts.grace) + 10,
            "restarted": _RESTARTED,
            "restarts": _RESTARTS,
            "probe": _PROBE,
            "probes": math.ceil((spec.timeouts.peers + _HOOKS) / _PROBE),
        },
    )


def _check_name(name: str, nodes: int) -> None:
    last = f"{name}-{nodes - 1}"
    if not name[0].isalpha():
        raise ConfigError("a Service's name begins with a letter", f"name: {name}", f"use for example j{name}")
    if len(last) > _LABEL:
        seen = f"{last} has {len(last)} characters, DNS allows {_LABEL}"
        raise ConfigError("the job's name is too long for its Pods' host names", seen, "shorten name")


def _settings(spec: JobSpec, hosts: list[str]) -> dict[str, str]:
    """Variables of every Pod: where things are, then what flags and variables said of the job here."""
    if spec.source("secret_file").origin == "flag":
        do = f"leave {spec.source('secret_file').where} out, and make the Secret {spec.name} of that file"
        raise UsageError("the Pods take the job's secret from a Secret", spec.secret_file or "", do)
    own = {"ENTRYPOINT_NAME": spec.name, "ENTRYPOINT_HOSTS": ",".join(hosts)}
    if len(hosts) > 1:
        own["ENTRYPOINT_SECRET_FILE"] = f"{_SECRET}/secret"
    return {name: value for name, value in settings(spec, own).items() if name in own or name not in _OWN}


def _limits(spec: JobSpec, options: Options) -> dict[str, str]:
    """Resources of each Pod: those asked for, and the cards that the spec speaks of."""
    limits = resources(options)
    card = registry.access(spec.device).resource if spec.device else ""
    if not card or any("/" in name for name in limits):  # a resource of a device plugin's is named already
        return limits
    slots = {spec.slots_of(rank) for rank in range(len(spec.hosts) or 1)}
    if len(slots) > 1:
        seen = f"device: {spec.device}, slots {', '.join(sorted(map(str, slots)))}"
        raise ConfigError("all Pods of a Job get as many cards", seen, f"add --resource {card}=N, the most of a node")
    if slots == {None}:
        seen = f"device: {spec.device}, and no slots"
        raise ConfigError("how many cards has each node?", seen, f"add slots: 8, or --resource {card}=8")
    return {card: str(slots.pop()), **limits}


def _expanded(text: str) -> str:
    """As it must stand in args and variables, where Kubernetes replaces $(NAME) and makes one $ of two."""
    return text.replace("$", "$$")


def _block(text: str) -> str:
    """The spec as people wrote it, where YAML's block form holds just that; else one quoted line."""
    block = "|\n" + "\n".join(f"    {line}" if line else "" for line in text.removesuffix("\n").split("\n"))
    plain = all(line.isprintable() and line == line.rstrip() for line in text.split("\n"))
    with contextlib.suppress(yaml.YAMLError):
        if plain and yaml.safe_load(f"  job.yaml: {block}\n") == {"job.yaml": text}:
            return Raw(block)
    return text
