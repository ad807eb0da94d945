"""A job on Kubernetes, one Pod a node with a stable name: as a Job, or in the form of an operator that is installed.

Sources: kubernetes.io, "Jobs" (completion mode, Pod failure policy), "DNS for Services and Pods", "Network Policies".
Kubernetes 1.31 or newer, where the failure policy is stable. For other forms see _kinds.py.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Mapping
from textwrap import indent
from typing import Any

import yaml

from entrypoint import registry
from entrypoint.deploy._dump import dump
from entrypoint.deploy._kinds import KINDS, host_names
from entrypoint.deploy._options import RESTARTS, Options, own_command, resources, settings
from entrypoint.errors import RETRIED, ConfigError, UsageError
from entrypoint.render import Raw
from entrypoint.render import render as render_template
from entrypoint.spec import HostEntry, JobSpec

__all__ = ["TAKES", "Options", "notes", "render"]

TAKES = ("image", "nodes", "resource", "kind")

_SECRET = "/run/secrets/entrypoint"
_SPEC = "/etc/entrypoint/job"
# What machines or the network did, and a node that was told to stop with its job: a new start may do better.
_RESTARTED = [*RETRIED, 128 + 15]
_PROBE = 10  # seconds between two
_HOOKS = 3600  # seconds that start hooks may take before nodes look for each other
# The rendered file says these itself.
_OWN = {"ENTRYPOINT_HOSTS", "ENTRYPOINT_SECRET_FILE", "ENTRYPOINT_SPEC", "ENTRYPOINT_NAME"}
# What a TrainJob takes of a Pod: from `trainer`, or as a runtime's patch.
_TRAINER = ("name", "image", "args", "env", "resources")
_PATCHED = ("securityContext", "volumeMounts")
_POD = ("containers", "securityContext", "volumes")


def render(spec: JobSpec, options: Options) -> str:
    """The manifests' text: Service, ConfigMap with the spec, NetworkPolicy, and the job in the form of `options.kind`.

    The secret is a Secret that the user makes. Raises ConfigError when the number of nodes or cards is unknown, the
    job's name can't be one here, or the spec holds secrets, which everybody would read in the ConfigMap; UsageError for
    a kind that there is not, and when a resource is not NAME=QUANTITY.
    """
    name, context = _kind(options), _context(spec, options)
    if name == "trainjob":
        pod = _pod(context)
        (container,) = pod["spec"]["containers"]
        patch = {field: value for field, value in container.items() if field in ("name", *_PATCHED)}
        kept = {field: value for field, value in pod["spec"].items() if field in _POD} | {"containers": [patch]}
        context["pod"] = _indented({**pod, "spec": kept}, 22)
        context["env"] = _indented(container["env"], 6)
    return render_template(f"kubernetes/{name}.yaml.j2", context)


def notes(spec: JobSpec, options: Options) -> list[str]:
    """What the form of `options.kind` cannot express, in words."""
    name = _kind(options)
    lines = list(KINDS[name].notes)
    if name == "trainjob":
        pod = _pod(_context(spec, options))["spec"]
        (container,) = pod["containers"]
        lost = [each for each in pod if each not in _POD]
        lost += [each for each in container if each not in (*_TRAINER, *_PATCHED)]
        do = "give a TrainingRuntime of your own what you need of it, or use --kind jobset"
        lines.append(f"EP808 a TrainJob cannot say all that a Pod has | left out: {', '.join(lost)} | {do}")
    return lines


def _kind(options: Options) -> str:
    name = options.kind or "job"
    if name not in KINDS:
        raise UsageError("EP803 there is no such kind", f"--kind {name}", f"use one of {', '.join(KINDS)}")
    return name


def _pod(context: Mapping[str, Any]) -> dict[str, Any]:
    """The template of every Pod, as a value."""
    made: dict[str, Any] = yaml.safe_load(render_template("kubernetes/pod.yaml.j2", context))
    return made


def _indented(value: Any, columns: int) -> Raw:
    return Raw(indent(dump(value), " " * columns).removesuffix("\n"))


def _context(spec: JobSpec, options: Options) -> dict[str, Any]:
    nodes = len(spec.hosts) or options.nodes
    if not nodes:
        raise ConfigError(
            "EP800 how many Pods should there be?", "the spec has no hosts", "add --nodes 2, or hosts: with any names"
        )
    name = _kind(options)
    kind = KINDS[name]
    names = host_names(name, spec.name, nodes)
    if secrets := spec.written_secrets():
        place = f"in the Secret {spec.name}-env, whose keys are variables of every Pod"
        place = place if kind.whole_pod else "with kustomize: docs/how-to/kustomize.md"
        do = f"take them out, and give them {place}"
        raise ConfigError("EP802 a ConfigMap is no place for secrets", f"env of the spec: {', '.join(secrets)}", do)
    # As the nodes that the spec names by other names, each has its own slots.
    own = [HostEntry.of(host).slots for host in spec.hosts] or [None] * nodes
    slots = [spec.slots_of(rank) for rank in range(len(spec.hosts) or 1)]
    if kind.counts_slots and None in slots:
        seen = f"--kind {name}, and no slots"
        raise ConfigError("EP801 how many ranks has each node? This kind counts them by itself", seen, "add slots: 8")
    command = own_command(spec)
    words = ["entrypoint", "run", *(["--", *command] if command else [])]
    given = _settings(spec, [host + (f":{each}" if each else "") for host, each in zip(names, own, strict=True)])
    return {
        "kind": kind,
        "origin": options.spec_name,
        "name": spec.name,
        "nodes": nodes,
        "slots": max(each or 0 for each in slots),
        "image": options.image,
        "settings": [{"name": name, "value": _expanded(value)} for name, value in given.items()],
        "args": [_expanded(word) for word in words] if command or kind.needs_words else [],
        "spec_text": _block(options.spec_text),
        "spec_folder": _SPEC,
        "secret_folder": _SECRET if spec.calls(nodes) else "",
        "port": spec.ssh.port,
        "limits": _limits(spec, options),
        "grace": round(spec.timeouts.grace) + 10,
        "restarted": _RESTARTED,
        "restarts": RESTARTS,
        "probe": _PROBE,
        "probes": math.ceil((spec.timeouts.peers + _HOOKS) / _PROBE),
    }


def _settings(spec: JobSpec, hosts: list[str]) -> dict[str, str]:
    """Variables of every Pod: where things are, then what flags and variables said of the job here."""
    if spec.source("secret_file").origin == "flag":
        do = f"leave {spec.source('secret_file').where} out, and make the Secret {spec.name} of that file"
        raise UsageError("EP802 the Pods take the job's secret from a Secret", spec.secret_file or "", do)
    own = {"ENTRYPOINT_NAME": spec.name, "ENTRYPOINT_HOSTS": ",".join(hosts)}
    if spec.calls(len(hosts)):
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
        raise ConfigError(
            "EP801 all Pods of a Job get as many cards", seen, f"add --resource {card}=N, the most of a node"
        )
    if slots == {None}:
        seen = f"device: {spec.device}, and no slots"
        raise ConfigError("EP801 how many cards has each node?", seen, f"add slots: 8, or --resource {card}=8")
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
