"""Options of `entrypoint deploy` that the spec does not have, and the variables of the
containers."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping, Sequence
from typing import Any

from entrypoint.base.errors import ConfigError, UsageError
from entrypoint.base.text import words_from_json
from entrypoint.base.values import frozen
from entrypoint.spec import JobSpec, given, paths_in_file

DEFAULT = ("image", "nodes", "resource")
"""The flags of `deploy` for a target without `TAKES`."""
RESTARTS = 3  # of the whole job
TOOLKIT = "/opt/entrypoint"  # folder of the toolkit in each container
# What the targets mount in each container.
_OWN_PATHS = ("/run/secrets/entrypoint", "/etc/entrypoint/job", "/job", "/tmp", "/dev/shm", TOOLKIT)
_IMAGE = re.compile(r"\w[\w.-]*(:\d+)?(/[\w.-]+)*(:\w[\w.-]*)?(@sha256:[0-9a-f]{64})?")


@frozen
class Mount:
    """Storage in each container, such as for checkpoints."""

    source: str  # the target's name for it
    path: str  # in the containers
    read_only: bool = False

    def __str__(self) -> str:
        return f"{self.source}:{self.path}{':ro' * self.read_only}"


@frozen
class Options:
    """Options from the command line of `entrypoint deploy`, by the names of their flags, and the
    spec's file."""

    image: str = ""  # "" only for a target that needs none: NEEDS_IMAGE = False
    folder: str = ""  # absolute path of the folder that holds the spec
    spec_name: str = "job.yaml"  # name of the spec's file in that folder
    spec_text: str = ""
    nodes: int | None = None  # if the spec names no hosts
    resource: Sequence[str] = ()  # NAME=QUANTITY of each node
    runtime: str = ""  # the container runtime, if the target has a choice
    time: str = ""  # the job's time limit, in the target's form
    flavor: str = ""  # the platform's name for a kind of instance
    pool: str = ""  # the platform's name for dedicated instances
    code: str = ""  # folder of an object store with the program
    logs: str = ""  # folder of an object store for logs
    kind: str = ""  # form of the job, if the platform has several
    mount: Sequence[Mount] = ()
    inject: str = ""  # the toolkit, for an image without it: an image, a folder or an archive
    inject_as: str = ""  # how an image is injected, if the target has a choice
    start: str = ""  # the image's own ENTRYPOINT, which is to run first: a JSON list


def check(given: Mapping[str, Any]) -> None:
    """Raise UsageError if an option about the image is given without what it needs, or is not in
    its form."""
    if given.get("inject_as") and not given.get("inject"):
        raise UsageError("EP805 --inject-as needs the toolkit's image", "", "add --inject IMAGE")
    start = given.get("start", "")
    if start and not given.get("image"):
        hint = "add --image IMAGE, or leave --start out"
        raise UsageError("EP805 --start needs an image", f"--start {start}", hint)
    if start and not words_from_json(start):
        hint = "write --start '[\"/entrypoint.sh\"]', as `docker inspect` prints it"
        raise UsageError("EP804 an ENTRYPOINT is a JSON list of words", f"--start {start}", hint)


def toolkit_image(options: Options) -> str:
    """Return the image of the toolkit, if it is injected. Raises UsageError if it is none."""
    if options.inject and not _IMAGE.fullmatch(options.inject):
        hint = "write --inject entrypoint-toolkit:TAG"
        raise UsageError("EP806 not the name of an image", f"--inject {options.inject}", hint)
    return options.inject


def settings(spec: JobSpec, options: Options, variables: dict[str, str]) -> dict[str, str]:
    """Return the variables of every container: the target's, then settings from flags and variables
    of this command.

    Raises UsageError for the flag of the node index, which each container has on its own.
    """
    if spec.source("node_rank").origin == "flag":
        detail = f"{spec.source('node_rank').where} {spec.node_rank}"
        raise UsageError(
            "EP803 every container gets an index of its own", detail, "leave the flag out"
        )
    if options.start:
        variables = {**variables, "ENTRYPOINT_IMAGE_START": options.start}
    return variables | given(spec)[0] | variables


def number_of_nodes(spec: JobSpec, options: Options, system: str = "") -> int:
    """Return the number of the job's nodes. `system`: its name, if it chooses the hosts itself.

    Raises ConfigError if the number is unknown, UsageError if a flag or variable names hosts that
    the system chooses.
    """
    nodes = len(spec.hosts) or options.nodes
    if not nodes:
        raise ConfigError("EP800 number of nodes unknown", "the spec has no hosts", "add --nodes 2")
    hosts = spec.source("hosts")
    if system and hosts.origin in ("flag", "env"):
        detail = f"{hosts.where} {','.join(spec.hosts)}"
        hint = f"leave it out and use --nodes {nodes}"
        raise UsageError(f"EP803 {system} chooses the hosts", detail, hint)
    return nodes


def own_command(spec: JobSpec) -> list[str]:
    """Return the command after --; empty without it, since the containers have that of the spec."""
    return list(spec.command) if spec.source("command").origin == "flag" else []


def start_command(spec: JobSpec, options: Options, toolkit: str = TOOLKIT) -> list[str]:
    """Return what every container runs instead of the image's ENTRYPOINT and CMD: an image without
    the toolkit then fails, and cannot end with 0. `toolkit`: the folder of an injected one."""
    program = f"{toolkit}/bin/entrypoint" if options.inject else "entrypoint"
    command = own_command(spec)
    return [program, "run", *(["--", *command] if command else [])]


def relative_paths(spec: JobSpec) -> dict[str, str]:
    """Return the relative paths of the spec's file as variables, which start at the containers'
    working directory."""
    paths = paths_in_file(spec)
    return {name: path for name, path in paths.items() if path and not path.startswith("/")}


def metrics_address(spec: JobSpec) -> dict[str, str]:
    """Return the variable with which each node serves its metrics to a Prometheus elsewhere, unless
    the spec has an address."""
    is_default = spec.source("metrics.address").origin == "default"
    return {"ENTRYPOINT_METRICS_ADDRESS": "0.0.0.0"} if spec.metrics.port and is_default else {}


def same_slots(
    spec: JobSpec, summary: str, hint: str = "give all hosts as many slots"
) -> int | None:
    """Return the ranks of each node, which must be the same on all nodes; None if the spec does not
    set them.

    Raises ConfigError with this summary if nodes differ.
    """
    slots = {spec.slots_of(rank) for rank in range(len(spec.hosts) or 1)}
    if len(slots) > 1:
        detail = f"slots {', '.join(sorted(map(str, slots)))}"
        raise ConfigError(f"EP801 {summary}", detail, hint)
    return slots.pop()


def unknown_cards(device: str | None, hint: str) -> ConfigError:
    """Return the error of a job whose cards the target has to count, and cannot."""
    detail = f"device: {device}, and no slots"
    return ConfigError("EP801 number of cards per node unknown", detail, hint)


def mounts(texts: Sequence[str]) -> list[Mount]:
    """Return the values of --mount. Raises UsageError if one is not SOURCE:PATH, if several have
    the same path, or if one would hide what the containers have of the job."""
    found = {text: re.fullmatch(r"(.+):(/[^:\s]+?)/?(:ro)?", text) for text in texts}
    if invalid := [text for text, match in found.items() if not match]:
        hint = "write --mount SOURCE:/out; `entrypoint deploy --help` says what SOURCE is"
        raise UsageError("EP804 a mount is SOURCE:PATH", ", ".join(invalid), hint)
    given = [Mount(match[1], match[2], bool(match[3])) for match in found.values() if match]
    paths = [mount.path for mount in given]
    if twice := sorted({path for path in paths if paths.count(path) > 1}):
        hint = "write each path in the containers once"
        raise UsageError("EP804 a path has several mounts", ", ".join(twice), hint)
    hidden = [
        f"{path} ({own})"
        for path in (posixpath.normpath(f"/{path.strip('/')}") for path in paths)
        for own in _OWN_PATHS
        if f"{own}/".startswith(posixpath.join(path, ""))
    ]
    if hidden:
        hint = "choose another path, such as /out"
        raise UsageError("EP804 a mount hides what the job has there", ", ".join(hidden), hint)
    return given


def unmountable(mounts: Sequence[object], hint: str) -> UsageError:
    """Return the error of mounts whose source the target cannot mount."""
    return UsageError("EP806 this path cannot be mounted", ", ".join(map(str, mounts)), hint)


def resources(options: Options, form: str = r"[^=\s]+=[0-9.]+[A-Za-z]*") -> dict[str, str]:
    """Return the values of --resource as name -> quantity.

    Raises UsageError if one does not match the target's form of NAME=QUANTITY.
    """
    invalid = [text for text in options.resource if not re.fullmatch(form, text)]
    if invalid:
        raise UsageError(
            "EP804 a resource is NAME=QUANTITY",
            ", ".join(invalid),
            "write --resource nvidia.com/gpu=8",
        )
    return dict(text.split("=") for text in options.resource)
