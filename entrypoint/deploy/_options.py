"""What the spec does not say of the place that runs it, and what the containers are told of it by variables."""

from __future__ import annotations

import re
from collections.abc import Mapping

from entrypoint.errors import ConfigError, UsageError
from entrypoint.spec import JobSpec, given
from entrypoint.values import dataclass

DEFAULT = ("image", "nodes", "resource")
"""The flags of `deploy` that a target takes which has no `TAKES`."""
RESTARTS = 3  # of the whole job


@dataclass(frozen=True)
class Options:
    """From the command line of `entrypoint deploy`."""

    image: str  # "" only for a target that needs none: NEEDS_IMAGE = False
    folder: str = ""  # absolute path of the folder that holds the spec
    spec_name: str = "job.yaml"  # name of the spec's file in that folder
    spec_text: str = ""
    nodes: int | None = None  # where the spec names no hosts
    resources: tuple[str, ...] = ()  # NAME=QUANTITY of each node
    runtime: str = ""  # what starts containers, where the target has a choice
    time: str = ""  # the job's time limit, as the target writes it
    flavor: str = ""  # the platform's name for a kind of instance
    pool: str = ""  # the platform's name for instances of one's own
    code: str = ""  # folder of an object store with the program
    logs: str = ""  # folder of an object store for logs
    kind: str = ""  # form of the job, where the platform has several


def settings(spec: JobSpec, own: Mapping[str, str]) -> dict[str, str]:
    """Variables of every container: the target's `own`, then what flags and variables said here of the job.

    Raises UsageError for a flag that no container could take from the target: each node has its own index.
    """
    if spec.source("node_rank").origin == "flag":
        seen = f"{spec.source('node_rank').where} {spec.node_rank}"
        raise UsageError("EP803 every container gets an index of its own", seen, "leave the flag out")
    return {**own, **{setting.names[0]: setting.value for setting in given(spec)}, **own}


def own_command(spec: JobSpec) -> list[str]:
    """What arguments after -- give in the command's place; empty without them: the containers find it in the spec."""
    return list(spec.command) if spec.source("command").origin == "flag" else []


def same_slots(spec: JobSpec, what: str) -> int | None:
    """Ranks of each node, where all nodes are alike; None where the spec does not say.

    Raises ConfigError with `what` when nodes differ.
    """
    slots = {spec.slots_of(rank) for rank in range(len(spec.hosts) or 1)}
    if len(slots) > 1:
        raise ConfigError(
            f"EP801 {what}", f"slots {', '.join(sorted(map(str, slots)))}", "give all hosts as many slots"
        )
    return slots.pop()


def resources(options: Options) -> dict[str, str]:
    """--resource as name -> quantity.

    Raises UsageError when one is not NAME=QUANTITY.
    """
    wrong = [word for word in options.resources if not re.fullmatch(r"[^=\s]+=[0-9.]+[A-Za-z]*", word)]
    if wrong:
        raise UsageError("EP804 a resource is NAME=QUANTITY", ", ".join(wrong), "write --resource nvidia.com/gpu=8")
    return {name: quantity for name, _, quantity in (word.partition("=") for word in options.resources)}
