"""What the spec does not say of the place that runs it; each target takes what it needs."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Options:
    """From the command line of `entrypoint deploy`."""

    image: str
    folder: str = ""  # absolute path of the folder that holds the spec
    spec_name: str = "job.yaml"  # name of the spec's file in that folder
    spec_text: str = ""
    nodes: int | None = None  # where the spec names no hosts
    resources: tuple[str, ...] = ()  # NAME=QUANTITY of each node
