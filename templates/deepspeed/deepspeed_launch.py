# Rendered by entrypoint {{ version | comment }}.
#
# This is DeepSpeed's launcher of one node with some of its habits changed:
#
#     python deepspeed_launch.py '{"node-0": 8, "node-1": 8}' OPTIONS train.py ...
#
# Each process starts through rank.sh, which tells this node's entrypoint how it ended. Alone, the
# launcher tells its processes of SIGTERM one after another, kills each 30 s later, and makes 256-n
# of signal n. Here whoever tells this launcher of SIGTERM tells its processes too; they have the
# whole grace, and signal n makes it 128+n.
import base64
import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from types import SimpleNamespace

try:
    from deepspeed.launcher import launch
except ModuleNotFoundError as error:
    what = f"{error.name} is not installed in {sys.executable}"
    do = "install it there, or start the program with the Python that has it"
    print(f"deepspeed_launch.py: EP650 {what} | DeepSpeed needs it | {do}", file=sys.stderr)
    sys.exit(78)

started, stopped = [], []
rank_script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "rank.sh")


def start(command, **options):
    started.append(subprocess.Popen(["sh", rank_script, *command], **options))
    return started[-1]


def noting(number, handler):
    """As signal.signal; a handler that a signal calls, and not the launcher itself, notes that."""

    def called(*given):
        stopped.append(number)
        handler(*given)

    return signal.signal(number, called)


def let_end(pid):
    """Instead of ending a process: told to stop, wait for all; after a failure leave, and the
    entrypoint ends them."""
    for each in started if stopped else ():
        # it has ended, and the launcher knows; not by each.wait(), which has a lock
        with suppress(ChildProcessError):
            os.waitid(os.P_PID, each.pid, os.WEXITED | os.WNOWAIT)


launch.subprocess = SimpleNamespace(Popen=start)
launch.signal = SimpleNamespace(signal=noting, SIGINT=signal.SIGINT, SIGTERM=signal.SIGTERM)
launch.terminate_process_tree = let_end
slots = json.loads(sys.argv[1])
hosts = {host: list(range(count)) for host, count in slots.items()}
sys.argv[1] = "--world_info=" + base64.urlsafe_b64encode(json.dumps(hosts).encode()).decode()
status = 0
try:
    launch.main()
except SystemExit as end:
    if isinstance(end.code, str):
        print(end.code, file=sys.stderr)
        end.code = 1
    status = 128 + stopped[0] if stopped else end.code or 0
with suppress(OSError, ValueError):
    sys.stdout.flush()
    sys.stderr.flush()
# at once: taking a Python with torch in it apart takes long
os._exit(status if status >= 0 else 128 - status)
