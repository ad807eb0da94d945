"""mpirun's agent: has the entrypoint start mpirun's daemon on another node, as ssh would.

    python agent.py RUN_DIR AFTER HOST COMMAND...

AFTER follows the command. The agent ends with the status of the daemon's start; 255 if there is
none.
"""

from __future__ import annotations

import os
import sys

# an isolated Python does not find our package
sys.path.append(os.path.abspath(f"{__file__}/../../.."))

from entrypoint.system.nodeclient import connect

# Hydra's agents stay as long as the job: a shell that waits needs less memory than a Python.
_WAIT = """
read -r status || exit 255
[ "$status" = null ] || exit "$status"
echo "mpirun's agent: EP650 $0 is not a node of this job | see the hostfile" >&2
exit 255
"""

if __name__ == "__main__":
    run_dir, after, host, *words = sys.argv[1:]
    wanted = os.fsencode(f"{host} {' '.join(words)}{after}")
    try:
        connection = connect(run_dir, f'["agent", "{wanted.hex()}"]')
    except OSError:
        sys.exit(255)  # the entrypoint has ended
    os.dup2(connection.fileno(), 0)
    os.execv("/bin/sh", ("sh", "-c", _WAIT, host))
