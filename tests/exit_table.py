"""Every way a program can end, by table, run through a way to start it; also a script, for inside a
container.

    python exit_table.py codes|signals all|some|few WORKERS WORD...    prints {"value": status} of `WORD... -- PROGRAM`

The statuses wanted are written down here, none is computed.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor

OWN = 40  # what the program exits with when a signal did not end it
# Signal -> status, on Linux (signal(7)). What is ignored by default, and what stops until SIGCONT,
# ends nothing.
SIGNALS = {
    1: 129, 2: 130, 3: 131, 4: 132, 5: 133, 6: 134, 7: 135, 8: 136, 9: 137, 10: 138, 11: 139, 12: 140, 13: 141,
    14: 142, 15: 143, 16: 144, 17: OWN, 18: OWN, 19: OWN, 20: OWN, 21: OWN, 22: OWN, 23: OWN, 24: 152, 25: 153,
    26: 154, 27: 155, 28: OWN, 29: 157, 30: 158, 31: 159,
}  # fmt: skip
CODES = {
    "all": range(256),
    "some": (0, 1, 2, 7, 63, 64, 75, 126, 127, 128, 137, 143, 255),
    "few": (0, 7, 75, 255),
}
CHOSEN = {"all": tuple(SIGNALS), "some": (1, 2, 6, 9, 11, 15), "few": (9, 15)}

# The program stops itself for some signals; its child wakes it then, and goes when it is not
# needed.
_SIGNAL = """
( until grep -q '^State:.T' /proc/$$/status; do sleep 0.02; kill -0 $$ || exit; done; kill -CONT $$ ) >/dev/null 2>&1 &
kill -{signal} $$; kill $! 2>/dev/null; exit {own}"""


def wanted(kind: str, size: str) -> dict[int, int]:
    """Exit code or signal -> the status it must become; `size` is all, some or few."""
    return (
        {code: code for code in CODES[size]}
        if kind == "codes"
        else {n: SIGNALS[n] for n in CHOSEN[size]}
    )


def program(kind: str, value: int) -> list[str]:
    """A program that ends that way."""
    return [
        "sh",
        "-c",
        f"exit {value}" if kind == "codes" else _SIGNAL.format(signal=value, own=OWN),
    ]


def run(
    kind: str, values: Iterable[int], words: list[str], env: Mapping[str, str], workers: int
) -> dict[int, int]:
    """The status of each, as a shell would say it: 128+n for one that signal n ended."""

    def one(value: int) -> int:
        with tempfile.TemporaryDirectory(prefix="table-") as folder:
            # torch.distributed.launch takes its port on one node too, and several run at one time.
            own = {
                **env,
                "ENTRYPOINT_RUN_DIR": f"{folder}/run",
                "ENTRYPOINT_PORT": str(20_000 + value),
            }
            argv = [*words, "--", *program(kind, value)]
            done = subprocess.run(
                argv, env=own, cwd=folder, capture_output=True, timeout=300, check=False
            )
        return done.returncode if done.returncode >= 0 else 128 - done.returncode

    values = list(values)
    with ThreadPoolExecutor(workers) as pool:
        return dict(zip(values, pool.map(one, values), strict=True))


if __name__ == "__main__":
    kind, size, workers = sys.argv[1:4]
    print(json.dumps(run(kind, wanted(kind, size), sys.argv[4:], os.environ, int(workers))))
