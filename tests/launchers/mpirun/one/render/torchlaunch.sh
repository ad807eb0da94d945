#!/usr/bin/env bash
# Rendered by entrypoint VERSION from job.yaml.
#
#   bash torchlaunch.sh train.py --epochs 5
#
# Run it on every node; it needs bash, Python and torch (1.13 or newer), nothing else. `python train.py`, `-m package.module`
# and a program that is not Python work as well as a script does.
# Each setting is a variable: NNODES NODE_RANK NPROC_PER_NODE (or NGPUS_PER_NODE) MASTER_ADDR MASTER_PORT PYTHON TORCH_VERSION
# TORCHLAUNCH_USE_ENV (0: the program gets --local_rank=N, from torch 2.0 on --local-rank=N; else it reads LOCAL_RANK), and
# TORCHLAUNCH_EXTRA_ARGS for the launcher's own options. What is unset comes from ModelArts' MA_*, VC_* and VK_* variables,
# else from the job spec.
set -euo pipefail
self=torchlaunch.sh
extra_name=TORCHLAUNCH_EXTRA_ARGS

fail() { # exit status, what failed, what was seen, what to do
  echo "$self: $2 | $3 | $4" >&2
  exit "$1"
}
whole() { # name, value
  case $2 in '' | *[!0-9]*) fail 78 "$1 is not a whole number" "'$2'" "set $1" ;; esac
}

# Where the job runs. On ModelArts its variables know better than whoever rendered this.
hosts=(
  box
)
if [ -n "${VC_WORKER_HOSTS:-}" ]; then IFS=', ' read -r -a hosts <<<"$VC_WORKER_HOSTS"; fi
known=${#hosts[@]}
NNODES=${NNODES:-${MA_NUM_HOSTS:-$known}}
whole NNODES "$NNODES"
NODE_RANK=${NODE_RANK:-${MA_TASK_INDEX:-${VC_TASK_INDEX:-${VK_TASK_INDEX:-}}}}
if [ "$NNODES" -eq 1 ]; then
  NODE_RANK=0
  MASTER_ADDR=${MASTER_ADDR:-127.0.0.1}
elif [ "$NNODES" -ne "$known" ]; then
  hosts=() # of another job than this one
fi
if [ -z "$NODE_RANK" ]; then
  found=
  for i in "${!hosts[@]}"; do
    # Whole names, or whole first labels: worker-1 must not be taken for worker-10.
    if [ "${hosts[i]}" = "$HOSTNAME" ] || [ "${hosts[i]%%.*}" = "${HOSTNAME%%.*}" ]; then found+=" $i"; fi
  done
  case $found in
    '' | ' '*' '*)
      fail 78 "which of the $NNODES nodes is this one?" "host name $HOSTNAME, no index" "set NODE_RANK (0 for worker-0)"
      ;;
  esac
  NODE_RANK=${found# }
fi
whole NODE_RANK "$NODE_RANK"
if [ "$NODE_RANK" -ge "$NNODES" ]; then
  fail 78 "NODE_RANK is beyond the last node" "$NODE_RANK of $NNODES" "count from 0, or set NNODES"
fi
MASTER_ADDR=${MASTER_ADDR:-${hosts[0]:-}}
if [ -z "$MASTER_ADDR" ]; then
  fail 78 "worker-0 has no address" "$NNODES nodes, and no list of as many hosts" "set MASTER_ADDR, or VC_WORKER_HOSTS"
fi
MASTER_PORT=${MASTER_PORT:-6060}
whole MASTER_PORT "$MASTER_PORT"
# 0 is what ModelArts says on a node without accelerators.
NPROC_PER_NODE=${NPROC_PER_NODE:-${NGPUS_PER_NODE:-${MA_NUM_GPUS:-2}}}
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
# torch expands $ in every word it hands to a process, which a doubled $ survives; it leaves the program's name alone.
dollars='$$'
name=${program[0]:-}
program=("${program[@]//\$/$dollars}")
if [ "${form[*]}" = --no_python ]; then program[0]=$name; fi

# The spelling of some options depends on torch's version; its metadata tell it without the second an import takes.
TORCH_VERSION=${TORCH_VERSION:-''}
if [ -z "$TORCH_VERSION" ]; then
  TORCH_VERSION=$("$PYTHON" -c '
try:
    from importlib.metadata import version
    print(version("torch"))
except Exception:
    import torch
    print(torch.__version__)') || fail $(($? == 126 ? 126 : 127)) "torch cannot be started" "$PYTHON has none" "set PYTHON to the one that has it"
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

# Alone, torch's launchers end with 1 whatever a program ended with. This ends with the status of the first program that
# failed on this node, 128+n for one that signal n ended; PyTorch's own report is printed all the same.
# And at SIGTERM they may hear nothing for minutes, while they ask a store on a node that is gone, or look up their own name
# in a network that is gone: a thread tells the ranks then, and does not wait for more than those.
keep_status='
import os, runpy, signal, sys, threading, time, traceback
from contextlib import suppress

heard, set_handler = threading.Event(), signal.signal
woken, waker = os.pipe()
os.set_blocking(waker, False)
signal.set_wakeup_fd(waker)


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
        with suppress(OSError), open("/proc/self/task/" + task + "/children") as file:
            found += map(int, file.read().split())
    for pid in found:
        with suppress(OSError), open("/proc/%d/stat" % pid) as stat:
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
    os._exit(128 + signal.SIGTERM)


signal.signal = noting
threading.Thread(target=stand_in, daemon=True).start()
code = 0
del sys.argv[0]
try:
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
except Exception as error:
    if hasattr(error, "sigval"):  # of SIGTERM it has said all there is to say
        code = 128 + error.sigval
    elif hasattr(error, "get_first_failure"):
        traceback.print_exc()
        code = error.get_first_failure()[1].exitcode
        code = code if code > 0 else 128 - code
    else:
        raise
sys.stdout.flush()
sys.stderr.flush()
os._exit(code)  # taking a Python with torch in it apart takes long'

line=("$PYTHON" -c "$keep_status" torch.distributed.launch --nnodes="$NNODES" --node_rank="$NODE_RANK" --nproc_per_node="$NPROC_PER_NODE")
line+=(--master_addr="$MASTER_ADDR" --master_port="$MASTER_PORT")
# Without the option every torch so far adds the local rank to the program's arguments.
if [ "${TORCHLAUNCH_USE_ENV:-1}" != 0 ]; then
  if [ "$torch" -ge 200 ]; then line+=(--use-env); else line+=(--use_env); fi
elif [ "${form[*]}" = --no_python ]; then
  fail 64 "only a Python script can be given its local rank" "$1 with TORCHLAUNCH_USE_ENV=0" "unset TORCHLAUNCH_USE_ENV"
fi

unset ENTRYPOINT_STAGE
exec "${line[@]}" "${extra[@]}" "${form[@]}" -- "${program[@]}"
