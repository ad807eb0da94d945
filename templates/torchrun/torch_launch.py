# Rendered by entrypoint {{ version | comment }}.
#
# This is one of torch's launchers, torch.distributed.run or .launch, with some of its habits
# changed; `entrypoint run` starts it, and so does accelerate_launch.py.
#
#     python torch_launch.py MODULE OPTION ... -- sh rank.sh PROGRAM ...
#
# Alone, they end with 1 whatever a program ended with. This ends with the status of the first
# program that failed on this node, 128+n for one that signal n ended; their own report is printed
# all the same. And at SIGTERM they may hear nothing for minutes, while they ask a store on a node
# that is gone, or look up their own name in a network that is gone: a thread tells the ranks then,
# and does not wait for more than those. The variables that it reads:
#
#     EXIT_BARRIER   seconds that the launcher, whose programs have all ended well, waits for those
#                    of the other nodes; its own 300 where it is not set
#     EXIT_TOGETHER  set where the store of all nodes is all that tells them of each other: the
#                    first node that fails tells the others, and none ends with 0 before all have
#                    ended well
#
# Python 3.7 may run it.
import functools
import gc
import os
import runpy
import signal
import sys
import threading
import time
import traceback
from contextlib import suppress
from importlib.util import find_spec

gc.disable()  # an import of torch makes no garbage, and collections take an eighth of its time
heard, set_handler = threading.Event(), signal.signal
woken, waker = os.pipe()
os.set_blocking(waker, False)
signal.set_wakeup_fd(waker)
del sys.argv[0]  # MODULE is in its place now
sys.path[0] = os.getcwd()  # as for `python -m`, and not the folder of this file
node_rank, exit_barrier, together = map(
    os.environ.get, ("NODE_RANK", "EXIT_BARRIER", "EXIT_TOGETHER")
)
agents = []  # torch's own, whose store the other nodes share
# Keys of the store: which node failed first, how many have ended well, and what grows while any
# works.
FAILED, ENDED, WORKS = "entrypoint/failed", "entrypoint/ended", "entrypoint/works"
# What torch raises where other nodes, or their store, do not answer.
UNHEARD = (
    "RendezvousTimeoutError",
    "RendezvousConnectionError",
    "DistStoreError",
    "DistNetworkError",
)
# Options whose variables PET_<OPTION> would undo what the command line says.
SETTLED = ("standalone", "rdzv_endpoint", "module", "no_python", "run_path")


class Elsewhere(Exception):
    """Another node has ended this one: the exit status, and why."""

    def __init__(self, status, why):
        super().__init__(why)
        self.status = status


def noting(number, handler):
    """As signal.signal; a handler of SIGTERM notes that it was called."""

    def called(*given):
        heard.set()
        return handler(*given)

    return set_handler(
        number, called if number == signal.SIGTERM and callable(handler) else handler
    )


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
    """Tell the ranks of a SIGTERM that Python has not handled within a second, and go a second
    after they are gone."""
    while os.read(woken, 1)[0] != signal.SIGTERM:
        pass
    if not heard.wait(1):
        for pid in ranks():
            with suppress(ProcessLookupError):
                (
                    os.killpg(pid, signal.SIGTERM)
                    if os.getpgid(pid) == pid
                    else os.kill(pid, signal.SIGTERM)
                )
    while list(ranks()):
        time.sleep(0.1)
    time.sleep(1)
    leave(128 + signal.SIGTERM)


def leave(status):
    """End at once: taking a Python with torch in it apart takes long."""
    os._exit(status)


def check_package():
    package = sys.argv[0].partition(".")[0]
    if find_spec(package) is None:
        what = f"{package} is not installed in {sys.executable}"
        do = "install it there, or start the program with the Python that has it"
        print(f"torch_launch.py: EP650 {what} | the launcher needs it | {do}", file=sys.stderr)
        sys.exit(78)


def name_at():
    """Return where in the command line the program's name is: behind `sh rank.sh python -u -m`."""
    at = sys.argv.index("--") + 3
    if os.path.basename(sys.argv[at]).startswith("python") and sys.argv[at + 1] == "-u":
        at += 3 if sys.argv[at + 2] == "-m" else 2
    return at


def suit_torch():
    """Fit variables and options to the installed version of torch."""
    for name in [name for name in os.environ if name.startswith("PET_")]:
        if not os.environ[name] or name[4:].lower() in SETTLED:  # it stumbles over empty ones
            del os.environ[name]
    version = getattr(sys.modules.get("torch"), "__version__", "2")
    is_old = version.startswith(("0.", "1."))
    if sys.argv[0] == "torch.distributed.launch" and os.environ.get("TORCHLAUNCH_USE_ENV") == "0":
        option = "--local_rank" if is_old else "--local-rank"
        sys.argv.insert(name_at() + 1, option + "=${local_rank}")
    if is_old:
        sys.argv[:] = [word for word in sys.argv if not word.startswith("--local_addr=")]


def watch_agents():
    """Have torch's agent wait as long as was asked, for which it has no option, and remember it."""
    try:
        from torch.distributed.elastic.agent.server.local_elastic_agent import (
            LocalElasticAgent as Agent,
        )
    except ImportError:
        return
    if exit_barrier:
        Agent.__init__ = functools.partialmethod(
            Agent.__init__, exit_barrier_timeout=float(exit_barrier)
        )
    meet, wait, monitor = Agent._rendezvous, Agent._exit_barrier, Agent._monitor_workers

    def meeting(agent, *given):
        meet(agent, *given)
        agents[:] = [agent]  # at once: a SIGTERM may come before it looks after its programs

    def waiting(agent):
        (await_others if together else wait)(agent)

    def monitoring(agent, *given):
        result = monitor(agent, *given)
        if result.state.name == "HEALTHY":  # else this node has an end of its own
            look_elsewhere(agent)
            agent._store.add(WORKS, 1)
        return result

    Agent._rendezvous = meeting
    Agent._exit_barrier = waiting
    if together:
        Agent._monitor_workers = monitoring


def unheard(error):
    """Return what it means that the others, or their store, do not answer: they never came, or have
    gone."""
    seen = (str(error) or type(error).__name__).splitlines()[0][:200]
    if agents:
        return Elsewhere(
            75, f"EP632 the state of the other nodes is unknown | {seen} | see worker-0's log"
        )
    return Elsewhere(
        69,
        f"EP633 nothing was heard from the other nodes | {seen} | make sure that all nodes run, or"
        " increase timeouts.peers",
    )


def look_elsewhere(agent):
    """Raise Elsewhere where another node has failed, or has taken the store of all with it."""
    try:
        failed = agent._store.compare_set(FAILED, "", "").decode()
    except RuntimeError as error:
        raise unheard(error) from None
    if failed:
        node, status = map(int, failed.split())
        status = status if 0 < status < 256 else 1  # the store has no password
        raise Elsewhere(
            status,
            f"EP631 worker-{node} has failed | its launcher ended with {status} | see its log",
        )


def await_others(agent):
    """Wait until every node has ended well; torch's own wait ends as if they had, whatever happened
    to them."""
    if agent._worker_group.state.name != "SUCCEEDED":
        return  # older torch has a node that failed wait as well
    store = agent._store
    nodes = agent._worker_group.group_world_size
    limit = agent._exit_barrier_timeout
    look_elsewhere(agent)
    ended, heard, word = store.add(ENDED, 1), time.monotonic(), None
    while ended < nodes:
        if time.monotonic() - heard > limit:
            what = (
                f"EP633 {ended} of {nodes} nodes have exited with 0 | nothing was heard from the"
                f" others within {limit:g}s"
            )
            raise Elsewhere(69, f"{what} | see the others' logs")
        time.sleep(0.1)
        look_elsewhere(agent)
        ended, before, word = store.add(ENDED, 0), word, (ended, store.add(WORKS, 0))
        heard = heard if word == before else time.monotonic()


def tell(status):
    """Tell the other nodes that this one has failed; the first one that says so is why."""
    for agent in agents if together else ():
        with suppress(Exception):
            agent._store.compare_set(FAILED, "", f"{node_rank} {status}")


def part():
    """The store of all nodes goes with the launcher on the first one: it stays until the others ask
    no more."""
    for agent in agents:
        with suppress(Exception):
            # Older torch looks after its programs, and with that at the other nodes, every 5 s.
            others = agent._worker_group.group_world_size - 1
            deadline = time.monotonic() + (10 if together else 5)
            if node_rank != "0":
                agent._store.add("parted", 1)
            while (
                node_rank == "0"
                and agent._store.add("parted", 0) < others
                and time.monotonic() < deadline
            ):
                time.sleep(0.02)


signal.signal = noting
threading.Thread(target=stand_in, daemon=True).start()
code = 0
check_package()
program = sys.argv[name_at()].replace("$$", "$")
try:
    watch_agents()
    suit_torch()
    gc.freeze()
    gc.enable()
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
    part()
except Exception as error:
    code = 1
    if hasattr(error, "sigval"):  # of SIGTERM it has said all there is to say
        code = 128 + error.sigval
    elif hasattr(error, "get_first_failure"):
        error.name = program  # and not `sh`
        error.args = (error.format_msg(),)
        traceback.print_exc()
        code = error.get_first_failure()[1].exitcode
        code = code if code > 0 else 128 - code
    elif not isinstance(error, Elsewhere):
        traceback.print_exc()
    if together and type(error).__name__ in UNHEARD:
        error = unheard(error)
    if isinstance(error, Elsewhere):
        code = error.status
        print(f"torch's launcher: {error}", file=sys.stderr)
    if together:
        tell(code)
        part()
with suppress(OSError, ValueError):
    sys.stdout.flush()
    sys.stderr.flush()
leave(code)
