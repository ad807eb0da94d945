# Rendered by entrypoint VERSION.
#
# This is msrun with two of its habits changed: `python msrun.py OPTIONS train.py ...`
# Alone, msrun ends with 1 whatever a process ended with, and on worker-0 three quarters of a minute
# after it, since the scheduler waits for processes that msrun has killed. Here it ends at once,
# with the status of the process that failed first on this node, 128+n where signal n ended it.
import runpy
import sys
import time
import traceback
from importlib.util import find_spec

if find_spec("mindspore") is None:
    what = f"mindspore is not installed in {sys.executable}"
    do = "install it there, or start the program with the Python that has it"
    print(f"msrun.py: EP650 {what} | msrun is a part of it | {do}", file=sys.stderr)
    sys.exit(78)

failed = []
try:
    from mindspore.parallel.cluster.process_entity import _api

    manager = _api._ProcessManager
    kill_workers, kill_tails = manager.kill_worker_processes, manager.kill_tail_log_processes

    def kill_all(self):
        failed.extend(process.returncode for process in self.cgn_processes if process.returncode)
        kill_workers(self)
        if self.msn_process:
            self.msn_process.kill()

    def let_tails_end(self):
        time.sleep(0.5)  # they pass on what the processes print, and are killed in the middle of it
        kill_tails(self)

    manager.kill_worker_processes, manager.kill_tail_log_processes = kill_all, let_tails_end
except (ImportError, AttributeError) as error:
    print(f"msrun.py: this MindSpore's msrun keeps its own habits: {error}", file=sys.stderr)

try:
    runpy.run_module("mindspore.parallel.cluster.run", run_name="__main__", alter_sys=True)
except RuntimeError:
    if not failed:
        raise
    traceback.print_exc()
    sys.exit(failed[0] if failed[0] > 0 else 128 - failed[0])
