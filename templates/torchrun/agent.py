"""Runs a launcher of torch's, torch.distributed.run or .launch; torchrun.sh and torchlaunch.sh carry this text.

Alone, they end with 1 whatever a program ended with. This ends with the status of the first program that failed on this
node, 128+n for one that signal n ended; their own report is printed all the same.
And at SIGTERM they may hear nothing for minutes, while they ask a store on a node that is gone, or look up their own
name in a network that is gone: a thread tells the ranks then, and does not wait for more than those.

    python -c TEXT SCRATCH NODE_RANK EXIT_BARRIER NAME MODULE OPTION ...

SCRATCH: folder to remove at the end, or "". EXIT_BARRIER: seconds that the launcher, whose programs have all ended
well, waits for those of the other nodes, or "" for its own 300. NAME: what its report calls the program, or "" for what
it runs. Python 3.7 may run it.
"""

import functools
import os
import runpy
import shutil
import signal
import sys
import threading
import time
import traceback
from contextlib import suppress

heard, set_handler = threading.Event(), signal.signal
woken, waker = os.pipe()
os.set_blocking(waker, False)
signal.set_wakeup_fd(waker)
scratch, node_rank, exit_barrier, program = sys.argv[1:5]
del sys.argv[:5]
agents = []  # of torch's, whose programs have all ended well


def noting(number, handler):
    """As signal.signal; a handler of SIGTERM notes that it was called."""

    def called(*given):
        heard.set()
        return handler(*given)

    return set_handler(number, called if number == signal.SIGTERM and callable(handler) else handler)


def ranks():
    """Our children that have not ended. What ends while it is looked at has no file any more."""
    found = []
    for task in os.listdir("/proc/self/task"):
        with suppress(OSError), open(f"/proc/self/task/{task}/children") as file:
            found += map(int, file.read().split())
    for pid in found:
        with suppress(OSError), open(f"/proc/{pid}/stat") as stat:
            if stat.read().rpartition(")")[2].split()[0] != "Z":
                yield pid


def stand_in():
    """Tell the ranks of a SIGTERM that Python has not handled within a second, and go a second after they are gone."""
    while os.read(woken, 1)[0] != signal.SIGTERM:
        pass
    if not heard.wait(1):
        for pid in ranks():
            with suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGTERM) if os.getpgid(pid) == pid else os.kill(pid, signal.SIGTERM)
    while list(ranks()):
        time.sleep(0.1)
    time.sleep(1)
    leave(128 + signal.SIGTERM)


def leave(status):
    """End at once: taking a Python with torch in it apart takes long."""
    tidy()
    os._exit(status)


def tidy():
    if scratch:
        shutil.rmtree(scratch, ignore_errors=True)


def watch_agents():
    """Have torch's agent wait as long as was asked, for which it has no option, and remember it."""
    try:
        from torch.distributed.elastic.agent.server.local_elastic_agent import LocalElasticAgent as Agent
    except ImportError:
        return
    if exit_barrier:
        Agent.__init__ = functools.partialmethod(Agent.__init__, exit_barrier_timeout=float(exit_barrier))
    wait = Agent._exit_barrier

    def waiting(agent):
        agents.append(agent)
        wait(agent)

    Agent._exit_barrier = waiting


def part():
    """The store of all nodes goes with the launcher on the first one: it stays until the others ask no more."""
    for agent in agents:
        with suppress(Exception):
            others, deadline = agent._worker_group.group_world_size - 1, time.monotonic() + 5
            if node_rank != "0":
                agent._store.add("parted", 1)
            while node_rank == "0" and agent._store.add("parted", 0) < others and time.monotonic() < deadline:
                time.sleep(0.02)


signal.signal = noting
threading.Thread(target=stand_in, daemon=True).start()
code = 0
try:
    watch_agents()
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
    part()
except SystemExit:  # options that it does not take
    tidy()
    raise
except Exception as error:
    code = 1
    if hasattr(error, "sigval"):  # of SIGTERM it has said all there is to say
        code = 128 + error.sigval
    elif hasattr(error, "get_first_failure"):
        if program:
            error.name = program
            error.args = (error.format_msg(),)
        traceback.print_exc()
        code = error.get_first_failure()[1].exitcode
        code = code if code > 0 else 128 - code
    else:
        traceback.print_exc()
with suppress(OSError, ValueError):
    sys.stdout.flush()
    sys.stderr.flush()
leave(code)
