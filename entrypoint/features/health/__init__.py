"""The health of a node: one probe and one judge for each fact, asked at three moments.

- Before a boot, `run` and `plan` judge limits, /dev/shm and the run directory's disk, which each
  start pays with less than a millisecond: system/preflight.py reads, plan/limits.py judges.
- Before an attempt, the gate (admission, gate) judges the same once more, asks the cards' tool,
  waits for their memory and runs the site's executables, during the roll call: twice `gate.seconds`
  and `gate.memory` at most. A job without restarts, spares and such a folder has no gate.
- `entrypoint check` runs all probes (probe, kernel, programs) within `--limit` seconds; judge and
  cards judge a node, nodes what differs between them, findings has the texts, report prints. After
  a failed boot, `run` shows what those probes find that start no program, in some milliseconds.

Only system/smi.py asks nvidia-smi and npu-smi: for the last two, and once a rank has failed. Which
gates the leader waits for, and what follows, is in job/gate.py.
"""

EFFECTS = ("admission", "gate", "kernel", "probe", "programs")
"""Modules with effects; all others of this package are pure."""
