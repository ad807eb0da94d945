"""The health of a node: one probe and one judge for each fact, asked at three moments.

- Before a boot, `run` and `plan` judge limits, /dev/shm and the run directory's disk, which each
  start pays with less than a millisecond: system/preflight.py reads, plan/limits.py judges.
- Before an attempt, the gate judges the same once more, asks the cards' tool, waits for their
  memory and runs the site's executables, during the roll call: four times `gate.seconds` at most.
  A job without restarts, spares and such a folder has no gate.
- `entrypoint check` runs all probes within `--limit` seconds. Each is one class (probe, probes/):
  what it reads, how that is judged, what must be alike on all nodes, and the texts of its findings.
  report prints them. After a failed boot, `run` shows what those find that start no program, in
  some milliseconds.

Only system/smi.py asks nvidia-smi and npu-smi: for the last two, and once a rank has failed. Which
gates the leader waits for, and what follows, is in job/gate.py.
"""

from entrypoint.spec import JobSpec

EFFECTS = (
    "gate",
    "probes/__init__",
    "probes/accelerators",
    "probes/container",
    "probes/image",
    "probes/network",
)
"""Modules with effects; all others of this package are pure."""


def asks_cards(spec: JobSpec) -> bool:
    """Return whether the tools of cards are asked before each attempt, where they are installed."""
    if spec.device == "cpu" or spec.gate.cards == "never":
        return False
    return spec.gate.cards == "always" or spec.restarts.most > 0 or spec.spares > 0
