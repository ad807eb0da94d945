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
    if _CONFIG in clues.facts.files:
        _read_file(clues, clues.facts.files[_CONFIG])
    elif clues.env.get("SM_HOSTS"):
        _read_toolkit(clues)
    clues.take_slots("SM_NUM_GPUS")
    clues.take_job("TRAINING_JOB_NAME")


def _read_file(clues: Clues, text: str) -> None:
    config = _json(text)
    if not isinstance(config, dict):
        _unclear(clues, f"{_CONFIG} is no JSON object", repr(text[:60]))
        return
    hosts = _hosts(config.get("hosts"))
    if not hosts:
        _unclear(
            clues, f"{_CONFIG} has no list of hosts", f"hosts is {str(config.get('hosts'))[:60]}"
        )
    else:
        clues.take("hosts", hosts, _CONFIG)
        _take_index(clues, str(config.get("current_host", "")), f"current_host of {_CONFIG}")


def _read_toolkit(clues: Clues) -> None:
    text = clues.env["SM_HOSTS"]
    hosts = _hosts(_json(text))
    if not hosts:
        _unclear(clues, "SM_HOSTS is no JSON list of hosts", repr(text[:60]))
        return
    clues.take("hosts", hosts, "SM_HOSTS")
    current = clues.env.get("SM_CURRENT_HOST", "").strip().strip('"')  # some write it as JSON
    _take_index(clues, current, "SM_CURRENT_HOST")


def _take_index(clues: Clues, current: str, origin: str) -> None:
    """Take the place of this host. Whole names are compared: algo-1 is not algo-10."""
    if current in clues.hosts:
        clues.take("index", clues.hosts.index(current), origin)
    else:
        shown = some((host[:60] for host in clues.hosts), 4)
        clues.no_index(
            "this node is none of the hosts",
            f"{origin} is {current[:60]!r}, the hosts are {shown}",
            "set ENTRYPOINT_NODE_RANK (0 for worker-0)",
        )


def _unclear(clues: Clues, summary: str, detail: str) -> None:
    """Note that the hosts and the index of this one are unknown."""
    hint = "set ENTRYPOINT_HOSTS and ENTRYPOINT_NODE_RANK"
    clues.no_hosts(summary, detail, hint)
    clues.no_index(summary, detail, hint)


def _json(text: str) -> Any:
    try:
        return from_json(text)
    except ValueError:
        return None


def _hosts(entries: Any) -> tuple[str, ...]:
    """Return the names, sorted by their numbers; none if it is no list of names."""
    if not isinstance(entries, list) or not all(isinstance(host, str) and host for host in entries):
        return ()
    return tuple(sorted(entries, key=by_number))
