#!/usr/bin/env bash
# Rendered by entrypoint VERSION from the job's spec.
#
#   bash torchrun.sh train.py --epochs 5
#
# Run it on every node; it needs bash, Python and torch (1.13 or newer), nothing else. `python train.py`, `-m package.module`
# and a program that is not Python work as well as a script does.
# Each setting is a variable, docs/reference/torchrun.md has them; what is unset comes from ModelArts' variables, else from the job spec.
set -euo pipefail
self=torchrun.sh
extra_name=TORCHRUN_EXTRA_ARGS

fail() { # exit status, what failed, what was seen, what to do
  local words=("${@//[[:cntrl:]]/?}") # what a variable holds moves no terminal's cursor
  echo "$self: EP650 ${words[1]} | ${words[2]} | ${words[3]}" >&2
  exit "$1"
}
missing() { # exit status of the Python that looked for a package, and the package
  local python
  python=$(type -P -- "$PYTHON") || python=$PYTHON
  case $1 in
    78) fail 78 "$2 is not installed in $python" "$self needs it" "install it there, or set PYTHON to the one that has it" ;;
    126 | 127) fail "$1" "$python cannot be started" "it is to start $2" "set PYTHON to another" ;;
    *) fail 78 "$2 cannot be imported by $python" "its own error is above" "correct its installation, or set PYTHON to another" ;;
  esac
}
whole() { # variable that is to hold a whole number; 08 is 8
  case ${!1} in '' | *[!0-9]* | ??????????*) fail 78 "$1 is not a whole number" "'${!1}'" "set $1" ;; esac
  printf -v "$1" %d "$((10#${!1}))"
}

stage=${ENTRYPOINT_STAGE:-} # "launch" where the entrypoint started this, "plan" where it only asks for the line
shown=
if [ "$stage" = plan ]; then stage=launch shown=yes; fi
unset ENTRYPOINT_STAGE
# As scripts of ModelArts' documents name the program.
if [ $# -eq 0 ] && [ -n "${PYTHON_SCRIPT:-}" ]; then
  read -r -d '' -a words <<<"${PYTHON_ARGS:-}" || true
  set -- "$PYTHON_SCRIPT" "${words[@]}"
fi

# Where the job runs. By hand, ModelArts' variables know better than whoever rendered this.
hosts=(
  modelarts-job-8f-worker-0.modelarts-job-8f
  modelarts-job-8f-worker-1.modelarts-job-8f
)
NNODES=${NNODES:-${MA_NUM_HOSTS:-}}
if [ -n "$NNODES" ]; then whole NNODES; fi
if [ "$stage" = launch ]; then
  : # they are the roll call's, in its order
elif [ -n "${VC_WORKER_HOSTS:-}" ]; then
  list=${VC_WORKER_HOSTS#[} # as TensorFlow's lists, it may come in brackets and with ports
  IFS=', ' read -r -a hosts <<<"${list%]}"
  for i in "${!hosts[@]}"; do
    case ${hosts[i]} in *:*:*) ;; *) hosts[i]=${hosts[i]%:*} ;; esac
  done
elif [ -n "${MA_VJ_NAME:-}" ] && [ "${NNODES:-1}" -gt 1 ]; then
  hosts=()
  for ((i = 0; i < NNODES; i++)); do hosts+=("$MA_VJ_NAME-${MA_TASK_NAME:-worker}-$i.$MA_VJ_NAME"); done
fi
known=${#hosts[@]}
NNODES=${NNODES:-$((known > 0 ? known : 1))}
NODE_RANK=${NODE_RANK:-${MA_TASK_INDEX:-${VC_TASK_INDEX:-${VK_TASK_INDEX:-}}}}
if [ "$NNODES" -eq 1 ]; then
  NODE_RANK=0
  MASTER_ADDR=${MASTER_ADDR:-127.0.0.1}
elif [ "$NNODES" -ne "$known" ]; then
  hosts=() # of another job than this one
fi
if [ -z "$NODE_RANK" ]; then
  own=${SLURMD_NODENAME:-$HOSTNAME} # srun passes HOSTNAME of the batch script's node on to all others
  found=
  for i in "${!hosts[@]}"; do
    # Whole names, or whole first labels: worker-1 must not be taken for worker-10.
    if [ "${hosts[i]}" = "$own" ] || [ "${hosts[i]%%.*}" = "${own%%.*}" ]; then found+=" $i"; fi
  done
  case $found in
    '' | ' '*' '*)
      fail 78 "node index unknown: $NNODES nodes are given and no index" "host name $own" "set NODE_RANK (0 for worker-0)"
      ;;
  esac
  NODE_RANK=${found# }
fi
whole NODE_RANK
if [ "$NODE_RANK" -ge "$NNODES" ]; then
  fail 78 "NODE_RANK is beyond the last node" "$NODE_RANK of $NNODES" "count from 0, or set NNODES"
fi
MASTER_ADDR=${MASTER_ADDR:-${hosts[0]:-}}
if [ -z "$MASTER_ADDR" ]; then
  fail 78 "worker-0 has no address" "$NNODES nodes, and no list of as many hosts" "set MASTER_ADDR, or VC_WORKER_HOSTS"
fi
case $MASTER_ADDR in
  *:*:*) ;;
  *:*) fail 78 "MASTER_ADDR has a port in it" "'$MASTER_ADDR'" "give the port by MASTER_PORT" ;;
esac
MASTER_PORT=${MASTER_PORT:-6060}
whole MASTER_PORT
NODE_ADDR=${NODE_ADDR:-${hosts[NODE_RANK]:-${MA_CURRENT_IP:-}}}
# 0 is what ModelArts says on a node without accelerators.
NPROC_PER_NODE=${NPROC_PER_NODE:-${NGPUS_PER_NODE:-${MA_NUM_GPUS:-2}}}
case $NPROC_PER_NODE in auto | cpu | gpu | xpu) ;; *) whole NPROC_PER_NODE ;; esac
if [ "$NPROC_PER_NODE" = 0 ]; then NPROC_PER_NODE=1; fi

# What to run: a script, `-m module`, either after its interpreter, or a program that is not Python.
if [ $# -eq 0 ]; then fail 64 "there is no program to run" "no arguments" "bash $self train.py --epochs 5"; fi
if [ -z "${PYTHON:-}" ]; then
  if type -P python >/dev/null; then PYTHON=python; else PYTHON=python3; fi
fi
form=()
program=("$@")
case ${1##*/} in
  python | python[0-9] | python[0-9].[0-9]*)
    PYTHON=$1
    program=("${program[@]:1}")
    # torch adds -u itself.
    if [ "${program[0]:-}" = -u ]; then program=("${program[@]:1}"); fi
    case ${program[0]:-} in
      -m) form=(--module) program=("${program[@]:1}") ;;
      -* | '') form=(--no_python) program=("$@") ;; # options that torch would not hand to the interpreter
    esac
    ;;
  -m) form=(--module) program=("${program[@]:1}") ;;
  *.py) ;;
  *) if type -P -- "$1" >/dev/null; then form=(--no_python); fi ;;
esac
# The spelling of some options depends on torch's version; its metadata tell it without the second an import takes.
TORCH_VERSION=${TORCH_VERSION:-''}
if [ -z "$TORCH_VERSION" ]; then
  TORCH_VERSION=$("$PYTHON" -c '"""Prints the version of torch; without torch it exits with 78. Carried by torchrun.sh and
torchlaunch.sh, at each start on each node: torch takes a second to import, importlib.metadata
30 ms."""

from importlib.util import find_spec
from os.path import dirname

spec = find_spec("torch")
if spec is None:
    raise SystemExit(78)
try:
    with open(dirname(spec.origin or "") + "/version.py") as file:
        rest = file.read().partition("__version__ = '"'"'")[2]
    print(rest[: rest.index("'"'"'")])
except Exception:
    import torch

    print(torch.__version__)
') || missing $? torch
fi
case $TORCH_VERSION in [0-9]*.[0-9]*) ;; *) fail 78 "TORCH_VERSION is no version" "'$TORCH_VERSION'" "write for example 2.1" ;; esac
minor=${TORCH_VERSION#*.}
torch=$((${TORCH_VERSION%%.*} * 100 + ${minor%%[!0-9]*})) # 2.1 is 201

# More options for the launcher: the job spec's, each as it is, then the variable's, split at white space.
extra=()
read -r -d '' -a words <<<"${!extra_name:-}" || true
extra+=("${words[@]}")
reserved=(
  'nnodes NNODES'
  'node_rank NODE_RANK'
  'nproc_per_node NPROC_PER_NODE'
  'master_addr MASTER_ADDR'
  'master_port MASTER_PORT'
  'local_addr NODE_ADDR'
  'standalone NNODES=1'
  'rdzv_backend RDZV_BACKEND'
  'rdzv_endpoint MASTER_ADDR and MASTER_PORT'
  'rdzv_id JOB_ID'
  'rdzv_conf RDZV_CONF'
)
for word in "${extra[@]}"; do
  name=${word%%=*}
  name=${name//-/_}
  case $word in --*) ;; *) continue ;; esac
  for pair in "${reserved[@]}"; do
    # torch takes any beginning of an option for the option.
    if [[ ${pair%% *} == "${name#__}"* ]]; then
      fail 64 "--${pair%% *} is set by this script" "$word among the options" "remove it, and set ${pair#* }"
    fi
  done
done
# torch reads PET_<OPTION> too, stumbles over empty ones, and some would undo what is settled here.
for name in "${!PET_@}"; do
  if [ -z "${!name}" ]; then unset "$name"; fi
done
for pair in "${reserved[@]}"; do
  name=${pair%% *}
  unset "PET_${name^^}"
done

# What runs torch's launcher: its own text says why.
agent='"""Runs a launcher of torch'"'"'s, torch.distributed.run or .launch; torchrun.sh and torchlaunch.sh
carry this text.

Alone, they end with 1 whatever a program ended with. This ends with the status of the first program
that failed on this node, 128+n for one that signal n ended; their own report is printed all the
same. And at SIGTERM they may hear nothing for minutes, while they ask a store on a node that is
gone, or look up their own name in a network that is gone: a thread tells the ranks then, and does
not wait for more than those.

    python -c TEXT SCRATCH NODE_RANK EXIT_BARRIER EXIT_TOGETHER NAME MODULE OPTION ...

SCRATCH: folder to remove at the end, or "". EXIT_BARRIER: seconds that the launcher, whose programs
  have all ended
well, waits for those of the other nodes, or "" for its own 300. EXIT_TOGETHER: not "" where the
store of all nodes is all that tells them of each other: the first node that fails tells the others,
and none ends with 0 before all have ended well. NAME: what its report calls the program, or "" for
what it runs. Python 3.7 may run it.
"""

import functools
import gc
import os
import runpy
import shutil
import signal
import sys
import threading
import time
import traceback
from contextlib import suppress

gc.disable()  # an import of torch makes no garbage, and collections take an eighth of its time
heard, set_handler = threading.Event(), signal.signal
woken, waker = os.pipe()
os.set_blocking(waker, False)
signal.set_wakeup_fd(waker)
scratch, node_rank, exit_barrier, together, program = sys.argv[1:6]
del sys.argv[:6]
agents = []  # torch'"'"'s own, whose store the other nodes share
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
    tidy()
    os._exit(status)


def tidy():
    if scratch:
        shutil.rmtree(scratch, ignore_errors=True)


def watch_agents():
    """Have torch'"'"'s agent wait as long as was asked, for which it has no option, and remember it."""
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
            75, f"EP632 the other nodes cannot be asked how they are | {seen} | see worker-0'"'"'s log"
        )
    return Elsewhere(
        69,
        f"EP633 no word of the other nodes | {seen} | see that all run; timeouts.peers is the wait",
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
    """Wait until every node has ended well; torch'"'"'s own wait ends as if they had, whatever happened
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
                f"EP633 {ended} of {nodes} nodes have ended well | no word of the others within"
                f" {limit:g}s"
            )
            raise Elsewhere(69, f"{what} | see the others'"'"' logs")
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
try:
    watch_agents()
    gc.freeze()
    gc.enable()
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
    elif not isinstance(error, Elsewhere):
        traceback.print_exc()
    if together and type(error).__name__ in UNHEARD:
        error = unheard(error)
    if isinstance(error, Elsewhere):
        code = error.status
        print(f"torch'"'"'s launcher: {error}", file=sys.stderr)
    if together:
        tell(code)
        part()
with suppress(OSError, ValueError):
    sys.stdout.flush()
    sys.stderr.flush()
leave(code)
'

# Lines on the console that name the node and the rank, for who asks for them; before 2.2 torch only knows a prefix of its
# own, with the local rank.
prefix="[worker-$NODE_RANK rank \${rank}] "
export TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE=${TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE:-$prefix}

# Without a folder torch makes one in /tmp at each start, and leaves it.
LOG_DIR=${LOG_DIR:-${PET_LOG_DIR:-}}
scratch=
if [ -z "$LOG_DIR" ]; then
  if [ -n "$stage" ]; then LOG_DIR=$ENTRYPOINT_RUN_DIR/tmp/torch; else LOG_DIR=$(mktemp -d) scratch=$LOG_DIR; fi
fi

# Under the entrypoint each process starts through what tells it of its start and end; by hand, and where torch's own
# options say what to run, as torch does it.
kept=$stage${PET_MODULE:-}${PET_NO_PYTHON:-}${PET_RUN_PATH:-}
for word in "${extra[@]}"; do
  case $word in -m | --mod* | --no[-_]py* | --run[-_]p*) kept=no ;; esac
done
if [ "$kept" != launch ]; then kept=; fi

# start MODULE OPTION ...: become torch's launcher. `rank_option` has each process get its local rank by that option.
rank_option=
start() {
  # torch expands $ in every word it hands to a process, which a doubled $ survives; it leaves the program's name alone.
  local dollars='$$' name='' tag='' words
  words=("${program[@]//\$/$dollars}")
  if [ -n "$rank_option" ]; then words=("${words[0]}" "$rank_option=\${local_rank}" "${words[@]:1}"); fi
  if [ -n "$kept" ]; then
    local python=${PYTHON_EXEC:-$PYTHON} run_dir=$ENTRYPOINT_RUN_DIR
    case ${form[*]} in
      --module) words=("${python//\$/$dollars}" -u -m "${words[@]}") ;;
      '') words=("${python//\$/$dollars}" -u "${words[@]}") ;;
    esac
    form=(--no_python) name=${program[0]}
    if [ "${PET_TEE:-0}" != 0 ]; then tag=$TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE; fi
    unset PET_TEE
    words=(sh "${run_dir//\$/$dollars}/rank.sh" "$tag" "${words[@]}")
  elif [ "${form[*]}" = --no_python ]; then
    words[0]=${program[0]}
  fi
  # What runs torch's launcher is left out: its options are what a reader looks for.
  if [ -n "$shown" ]; then
    printf '%s\0' "$PYTHON" -m "$@" --log_dir="$LOG_DIR" "${extra[@]}" "${form[@]}" -- "${words[@]}" && exit
  fi
  line=("$PYTHON" -c "$agent" "$scratch" "$NODE_RANK" "${EXIT_BARRIER:-}" "${EXIT_TOGETHER:-}" "$name" "$@" --log_dir="$LOG_DIR")
  exec "${line[@]}" "${extra[@]}" "${form[@]}" -- "${words[@]}"
}

JOB_ID=${JOB_ID:-${MA_VJ_NAME:-modelarts-job-8f}}
NNODES_MIN=${NNODES_MIN:-} # of an elastic job, whose most is NNODES
if [ -n "$NNODES_MIN" ]; then
  whole NNODES_MIN
  # With one store for all, a node that comes later is never told where it is (torch 2.13).
  export TORCH_DISABLE_SHARE_RDZV_TCP_STORE=${TORCH_DISABLE_SHARE_RDZV_TCP_STORE:-1}
fi
RDZV_BACKEND=${RDZV_BACKEND:-auto}
RDZV_TIMEOUT=${RDZV_TIMEOUT:-600}
MAX_RESTARTS=${MAX_RESTARTS:-${PET_MAX_RESTARTS:-0}}
whole RDZV_TIMEOUT
whole MAX_RESTARTS

# With the static rendezvous nodes start as soon as all are there, in the order of the hosts. c10d has them look again after a
# second, and numbers them by the spelling of their addresses, where worker-10 comes before worker-2. But with c10d alone all
# nodes restart their processes together, and may come and go. For torch 2.1 the platform's documents ask for the static one.
if [ "$RDZV_BACKEND" = auto ]; then
  RDZV_BACKEND=static
  if [ -n "$NNODES_MIN" ]; then
    RDZV_BACKEND=c10d
  elif [ "$torch" -ne 201 ] && { [ "$NNODES" -eq 1 ] || [ "$MAX_RESTARTS" -gt 0 ]; }; then
    RDZV_BACKEND=c10d
  fi
fi

line=(torch.distributed.run --nnodes="${NNODES_MIN:+$NNODES_MIN:}$NNODES" --nproc_per_node="$NPROC_PER_NODE" --rdzv_id="$JOB_ID")
case $RDZV_BACKEND in
  static)
    line+=(--rdzv_backend=static --master_addr="$MASTER_ADDR" --master_port="$MASTER_PORT" --node_rank="$NODE_RANK")
    line+=(--rdzv_conf="timeout=$RDZV_TIMEOUT${RDZV_CONF:+,$RDZV_CONF}")
    ;;
  c10d)
    if [ "$NNODES" -eq 1 ]; then
      # One node meets itself, on any free port.
      endpoint=127.0.0.1:0 NODE_ADDR=127.0.0.1
    else
      endpoint=$MASTER_ADDR:$MASTER_PORT
      case $MASTER_ADDR in *:*) endpoint="[$MASTER_ADDR]:$MASTER_PORT" ;; esac
    fi
    # Left to itself, torch guesses from host names who is the host, and waits no more than a minute for it.
    if [ "$NODE_RANK" -eq 0 ]; then is_host=1; else is_host=0; fi
    conf="is_host=$is_host,join_timeout=$RDZV_TIMEOUT,read_timeout=$RDZV_TIMEOUT"
    # The roll call has waited for more nodes than the least: torch waits only for those that start a little later.
    if [ -n "$NNODES_MIN" ]; then conf+=,last_call_timeout=10; fi
    line+=(--rdzv_backend=c10d --rdzv_endpoint="$endpoint" --rdzv_conf="$conf${RDZV_CONF:+,$RDZV_CONF}")
    # The others may have to reach this node; its host name, which torch would tell them, need not be known to them.
    if [ -n "$NODE_ADDR" ] && [ "$torch" -ge 200 ]; then line+=(--local_addr="$NODE_ADDR"); fi
    ;;
  *) fail 64 "RDZV_BACKEND is no rendezvous of ours" "'$RDZV_BACKEND'" "set it to auto, c10d or static" ;;
esac

start "${line[@]}" --max_restarts="$MAX_RESTARTS"
