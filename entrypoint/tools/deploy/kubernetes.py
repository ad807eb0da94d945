"""A job on Kubernetes, one Pod a node with a stable name: as a Job, or in the form of an installed
operator.

Sources: kubernetes.io, "Jobs" (completion mode, Pod failure policy), "DNS for Services and Pods",
"Network Policies". Kubernetes 1.31 or newer, where the failure policy is stable. For other forms
see _kinds.py.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from textwrap import indent
from typing import Any

import yaml

from entrypoint.base import registry
from entrypoint.base.errors import RETRIED, ConfigError, UsageError
from entrypoint.base.render import Raw
from entrypoint.base.render import render as render_template
from entrypoint.base.secret import masked
from entrypoint.spec import HostEntry, JobSpec, written
from entrypoint.tools.deploy import _kinds
from entrypoint.tools.deploy._kinds import KINDS, Kind, host_names
from entrypoint.tools.deploy._options import (
    RESTARTS,
    TOOLKIT,
    Options,
    metrics_address,
    number_of_nodes,
    relative_paths,
    resources,
    same_slots,
    settings,
    start_command,
    toolkit_image,
    unknown_cards,
    unmountable,
)

ALSO = ("k8s", "k3s")  # other names
TAKES = ("image", "nodes", "resource", "kind", "mount", "inject", "inject-as", "start")

_SECRET = "/run/secrets/entrypoint"
_SPEC = "/etc/entrypoint/job"
# Failures of machines or the network, and a node that was stopped with its job: a restart may help.
_RESTARTED = [*RETRIED, 128 + 15]
_KILLED = 128 + 9  # a Pod that was killed: in a job that may start again, the others wait for it
_PROBE = 10  # seconds between two probes
_HOOKS = 3600  # seconds that start hooks may take before the roll call
# Set by the rendered file itself.
_OWN = {"ENTRYPOINT_HOSTS", "ENTRYPOINT_SECRET_FILE", "ENTRYPOINT_SPEC", "ENTRYPOINT_NAME"}
# Fields of a Pod that a TrainJob accepts as its runtime's patch; _kinds.py names the others.
_PATCHED = ("name", "securityContext", "volumeMounts")
_POD = ("containers", "securityContext", "volumes")
_PLAIN = re.compile(r"[A-Za-z/][A-Za-z0-9_./-]*")
_NOT_TEXT = {"y", "n", "yes", "no", "true", "false", "on", "off", "null"}  # for some readers
_WIDTH = 1 << 20  # no line is folded
_CLAIM = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")
# Of its own resources Kubernetes takes parts; of a device plugin's, whole numbers.
_LIMIT = (
    r"(?:cpu|memory|ephemeral-storage|hugepages-\w+)=\d+(?:\.\d+)?(?:m|[kMGTPE]|[KMGTPE]i)?"
    r"|[a-z0-9.-]+/[\w.-]+=\d+"
)
_MOST = 2**31 - 1  # of a number in a manifest


def render(spec: JobSpec, options: Options) -> str:
    """Return the manifests: Service, ConfigMap with the spec, NetworkPolicy, and the job in the
    form of `options.kind`.

    The user creates the Secret with the job's secret. Raises ConfigError if the number of nodes or
    cards is unknown, the job's name is not valid here, or the spec holds secrets, which everybody
    could read in the ConfigMap; UsageError for an unknown kind, and if a resource is not
    NAME=QUANTITY.
    """
    name = _kind(options)
    context = _context(spec, options)
    if name == "trainjob":
        pod: Any = yaml.safe_load(render_template("kubernetes/pod.yaml.j2", context))
        (container,) = pod["spec"]["containers"]
        patch = {field: value for field, value in container.items() if field in _PATCHED}
        kept = {field: value for field, value in pod["spec"].items() if field in _POD}
        context["pod"] = _indented({**pod, "spec": {**kept, "containers": [patch]}}, 22)
        if context["way"] == "copy":
            context["runtime"] = _indented(_runtime(**pod), 16)
        context["env"] = _indented(container["env"], 6)
    return render_template(f"kubernetes/{name}.yaml.j2", context)


def _runtime(metadata: Any, spec: dict[str, Any]) -> dict[str, Any]:
    """Return the Pod of a TrainJob's own runtime, which has what no patch can add: the init
    container."""
    (node,) = spec["containers"]
    own = {
        "securityContext": spec["securityContext"],
        "initContainers": spec["initContainers"],
        "containers": [{name: node[name] for name in ("name", "image", "securityContext")}],
        "volumes": [volume for volume in spec["volumes"] if volume["name"] == "toolkit"],
    }
    return {"metadata": metadata, "spec": own}


def notes(spec: JobSpec, options: Options) -> list[str]:
    """Return warnings: what the form of `options.kind` cannot express, and what everybody could
    read."""
    lines = _kinds.notes(_kind(options))
    if masked(options.spec_text) != options.spec_text:
        lines.append(
            "EP802 the ConfigMap may contain a secret | it has the whole spec, with its comments |"
            " take the secret out of it, and give it to the Pods in a Secret"
        )
    return lines


def _kind(options: Options) -> str:
    name = options.kind or "job"
    if name not in KINDS:
        raise UsageError(
            "EP803 there is no such kind", f"--kind {name}", f"use one of {', '.join(KINDS)}"
        )
    return name


def _way(options: Options) -> str:
    """Return how the toolkit reaches the Pods; "" if the image has it."""
    way = options.inject and (options.inject_as or "copy")
    if way not in ("", "copy", "image"):
        raise UsageError(
            "EP803 there is no such way", f"--inject-as {way}", "use one of copy, image"
        )
    return way


class _Dumper(yaml.SafeDumper):
    def ignore_aliases(self, data: Any) -> bool:
        return True

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, False)


def _text(dumper: _Dumper, text: str) -> yaml.ScalarNode:
    plain = _PLAIN.fullmatch(text) and text.lower() not in _NOT_TEXT
    # PyYAML ends a document after a block that ends with an empty line
    lines = "\n" in text and not f"\n{text}".endswith("\n\n")
    is_block = lines and all(map(str.isprintable, text.split("\n")))
    style = None if plain else "|" if is_block else '"'
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text)


def _indented(value: Any, columns: int) -> Raw:
    """Return the value as YAML, fields in their order, with the same meaning for every reader of
    YAML: ambiguous text is quoted."""
    text = yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=_WIDTH)
    return Raw(indent(text, " " * columns).removesuffix("\n"))


def _refuse_secrets(spec: JobSpec, kind: Kind) -> None:
    if secrets := written(spec)[1]:
        place = f"in the Secret {spec.name}-env, whose keys are variables of every Pod"
        place = place if kind.whole_pod else "with kustomize: docs/how-to/kustomize.md"
        hint = f"take them out, and give them {place}"
        raise ConfigError(
            "EP802 a ConfigMap must not contain secrets",
            f"in the spec: {', '.join(secrets)}",
            hint,
        )


def _context(spec: JobSpec, options: Options) -> dict[str, Any]:
    nodes = number_of_nodes(spec, options)
    name = _kind(options)
    kind = KINDS[name]
    names = host_names(name, spec.name, nodes)
    _refuse_secrets(spec, kind)
    slots = [spec.slots_of(rank) for rank in range(len(spec.hosts) or 1)]
    if kind.counts_slots and None in slots:
        detail = f"--kind {name}, and no slots"
        raise ConfigError(
            "EP801 number of ranks per node unknown: this kind counts them itself",
            detail,
            "add slots: 8",
        )
    variables = _settings(spec, options, _hosts(spec, names))
    again = spec.restarts.most > 0 or spec.spares > 0
    return {
        "kind": kind,
        "origin": options.spec_name,
        "name": spec.name,
        "nodes": nodes,
        "slots": max(number or 0 for number in slots),
        "image": options.image,
        **_toolkit(spec, options),
        # in commands and variables Kubernetes replaces $(NAME), and $$ by $
        "settings": [
            {"name": name, "value": value.replace("$", "$$")} for name, value in variables.items()
        ],
        "spec_text": _block(options.spec_text),
        "spec_folder": _SPEC,
        "secret_folder": _SECRET if spec.calls(nodes) else "",
        "port": 0 if spec.ssh.port == "auto" else spec.ssh.port,
        "metrics": _metrics(spec, nodes),
        "limits": _limits(spec, options),
        "claims": _claims(options, kind),
        "mounts": options.mount,
        "grace": round(spec.timeouts.grace) + 10,
        # the API server takes them in this order alone
        "restarted": sorted([*_RESTARTED, *[_KILLED] * again]),
        "again": again,
        # how often a Pod may be started again; a job that counts its restarts itself ends by that
        "restarts": min(max(RESTARTS, spec.restarts.most), _MOST),
        "probe": _PROBE,
        "probes": min(math.ceil((spec.timeouts.peers + _HOOKS) / _PROBE), _MOST),
    }


def _toolkit(spec: JobSpec, options: Options) -> dict[str, Any]:
    """Return how the Pods get the toolkit, and start it."""
    way = _way(options)
    # below a mounted image, whose folder no containerd before 2.2 mounts alone
    folder = f"{TOOLKIT}{TOOLKIT}" if way == "image" else TOOLKIT
    limits = _limits(spec, options).items()
    return {
        "toolkit": toolkit_image(options),
        "toolkit_folder": TOOLKIT,
        "way": way,
        "runtime": "",
        "plain_limits": {name: limit for name, limit in limits if "/" not in name},
        "args": [word.replace("$", "$$") for word in start_command(spec, options, folder)],
    }


def _claims(options: Options, kind: Kind) -> dict[str, str]:
    """Return PersistentVolumeClaim -> the name of its volume; a Pod has each claim once.

    Raises UsageError for a source of --mount that cannot be a claim's name, and for a claim with
    several paths, if the kind cannot express it.
    """
    if invalid := [mount for mount in options.mount if not _CLAIM.fullmatch(mount.source)]:
        hint = "write --mount CLAIM:/out, with the name of a PersistentVolumeClaim"
        raise unmountable(invalid, hint)
    claims = dict.fromkeys(mount.source for mount in options.mount)
    if len(claims) < len(options.mount) and not kind.whole_pod:
        detail = ", ".join(map(str, options.mount))
        hint = "mount it once, at a folder above both paths; or use --kind jobset"
        raise UsageError("EP804 this kind mounts each claim once", detail, hint)
    return {claim: f"mount-{number}" for number, claim in enumerate(claims)}


def _metrics(spec: JobSpec, nodes: int) -> int | None:
    """Return the port of the metrics, if others can reach it.

    Raises ConfigError if sshd has the same one.
    """
    if nodes > 1 and spec.metrics.port == spec.ssh.port:
        hint = "set one of them to another port"
        raise ConfigError("EP104 metrics.port is sshd's, too", f"ssh.port: {spec.ssh.port}", hint)
    is_own = spec.metrics.address == "::1" or spec.metrics.address.startswith("127.")
    return spec.metrics.port if metrics_address(spec) or not is_own else None


def _hosts(spec: JobSpec, names: Sequence[str]) -> list[str]:
    """Return the Pods' names with the slots of the spec's hosts, whose names differ."""
    slots = [HostEntry.of(host).slots for host in spec.hosts] or [None] * len(names)
    return [
        name + (f":{number}" if number else "") for name, number in zip(names, slots, strict=True)
    ]


def _settings(spec: JobSpec, options: Options, hosts: list[str]) -> dict[str, str]:
    """Return the variables of every Pod: paths, then settings from flags and variables of this
    command."""
    if spec.source("secret_file").origin == "flag":
        hint = (
            f"leave {spec.source('secret_file').where} out, and make the Secret {spec.name} of that"
            " file"
        )
        raise UsageError(
            "EP802 the Pods take the job's secret from a Secret", spec.secret_file or "", hint
        )
    # The folder of the spec, where its relative paths start, is not in the Pods.
    variables = {name: path for name, path in relative_paths(spec).items() if name not in _OWN}
    variables |= metrics_address(spec)
    variables |= {"ENTRYPOINT_NAME": spec.name, "ENTRYPOINT_HOSTS": ",".join(hosts)}
    if spec.calls(len(hosts)):
        variables["ENTRYPOINT_SECRET_FILE"] = f"{_SECRET}/secret"
    return {
        name: value
        for name, value in settings(spec, options, variables).items()
        if name in variables or name not in _OWN
    }


def _limits(spec: JobSpec, options: Options) -> dict[str, str]:
    """Return the resources of each Pod: the requested ones, and the cards of the spec."""
    limits = resources(options, _LIMIT)
    card = registry.access(spec.device).resource if spec.device else ""
    # a device plugin's resource is already named
    if not card or any("/" in name for name in limits):
        return limits
    hint = f"add --resource {card}=N, the most of a node"
    slots = same_slots(spec, "all Pods of a Job get as many cards", hint)
    if slots is None:
        raise unknown_cards(spec.device, f"add slots: 8, or --resource {card}=8")
    return {card: str(slots), **limits}


def _block(text: str) -> Raw:
    """Return the spec as it was written, if YAML's block form preserves it; otherwise one quoted
    line."""
    return Raw(_indented({"job.yaml": text}, 2).removeprefix("  job.yaml: "))
