"""Amazon SageMaker training jobs.

Sources: SageMaker's documentation, "How Amazon SageMaker AI Provides Training Information"
(resourceconfig.json, which is in every container) and the SageMaker Training Toolkit (SM_*, only in
images that have it). Not documented, and derived here: the node with the lowest number is the
first, so algo-2 comes before algo-10, although the file may list them in the order of text.
"""

from __future__ import annotations

from typing import Any

from entrypoint.base.model import Facts
from entrypoint.base.text import from_json, some
from entrypoint.platforms._clues import Clues, by_number

_CONFIG = "/opt/ml/input/config/resourceconfig.json"
LAYER = 0
MARKS = ("TRAINING_JOB_NAME", "SM_HOSTS")
FILES = (_CONFIG,)
SECRET = "give ENTRYPOINT_SECRET in the job's environment"
READS_REASONS = True
ROWS = """
`sagemaker` | `resourceconfig.json` with `TRAINING_JOB_NAME`, or `SM_HOSTS` | that file,
    sorted by number | `current_host` | `SM_NUM_GPUS`, else the devices
"""


def matches(facts: Facts) -> bool:
    """Return whether there is a list of hosts: TRAINING_JOB_NAME alone may have another meaning."""
    return _CONFIG in facts.files or bool(facts.env.get("SM_HOSTS"))


def read(clues: Clues) -> None:
    """Take the hosts, the place of this one and its GPUs, from the file or the toolkit's
    variables.

    Raises ConfigError if SM_NUM_GPUS is not the number it has to be.
    """
    if matches(clues.facts):
        _take_hosts(clues, _CONFIG if _CONFIG in clues.facts.files else "SM_HOSTS")
    clues.take_slots("SM_NUM_GPUS")
    clues.take_job("TRAINING_JOB_NAME")


def _take_hosts(clues: Clues, origin: str) -> None:
    """Take the hosts, sorted by their numbers, and the place of this one. Whole names are compared:
    algo-1 is not algo-10."""
    text = clues.facts.files.get(origin) or clues.env.get(origin, "")
    listed = _json(text)
    name = "SM_CURRENT_HOST"
    current = clues.env.get(name, "").strip().strip('"')  # some write it as JSON
    if isinstance(listed, dict):  # the file has both
        name, current = f"current_host of {origin}", str(listed.get("current_host", ""))
        listed = listed.get("hosts")
    is_list = isinstance(listed, list) and all(isinstance(host, str) and host for host in listed)
    if not (listed and is_list):
        summary, detail = f"{origin} has no list of hosts", repr(text[:60])
        hint = "set ENTRYPOINT_HOSTS and ENTRYPOINT_NODE_RANK"
        clues.no_hosts(summary, detail, hint)
        clues.no_index(summary, detail, hint)
        return
    clues.take("hosts", tuple(sorted(listed, key=by_number)), origin)
    if current in clues.hosts:
        clues.take("index", clues.hosts.index(current), name)
    else:
        shown = some((host[:60] for host in clues.hosts), 4)
        clues.no_index(
            "this node is none of the hosts",
            f"{name} is {current[:60]!r}, the hosts are {shown}",
            "set ENTRYPOINT_NODE_RANK (0 for worker-0)",
        )


def _json(text: str) -> Any:
    try:
        return from_json(text)
    except ValueError:
        return None
