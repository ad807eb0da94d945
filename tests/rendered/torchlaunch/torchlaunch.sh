#!/usr/bin/env bash
# Rendered by entrypoint VERSION from job.yaml: starts torch.distributed.launch on this node.
#
#   bash torchlaunch.sh train.py --epochs 5
#
# Run it on every node. It needs bash 4.4 or newer and a Python with torch. Set variables, do not edit it: docs/reference/torchrun.md
# Exit status: 1 if a process of this node failed; 0 if they all succeeded, even if another node failed (torch waits up
# to 300 s for it), and 1 without torch; 78 if a variable is missing or wrong; 127 without a Python. Torch's own PET_<OPTION> counts
# only for options that CMD, below, lacks. One status on all nodes, gate, restarts with spares, stalls, logs: `entrypoint run` alone.
set -euo pipefail

fail() { # what failed, what was seen, what to do; `entrypoint explain EP650` says more
  echo "torchlaunch.sh: EP650 $1 | $2 | $3" >&2
  exit 78
}

# Where the job runs: these names if set, else ModelArts' variables.
WORKER_0=${VC_WORKER_HOSTS:-${MA_VJ_NAME:+$MA_VJ_NAME-${MA_TASK_NAME:-worker}-0.$MA_VJ_NAME}} # all nodes, or by ModelArts' rule
MASTER_ADDR=${MASTER_ADDR:-${WORKER_0%%,*}}
if [ -z "${NNODES:-${MA_NUM_HOSTS:-${VC_WORKER_HOSTS:-}}}" ]; then # one node, unless a platform has started several
  if [[ -n ${MA_VJ_NAME:-} || ! ${PET_NNODES:-1} =~ ^1(:1)?$ ]] || ! [ "${WORLD_SIZE:-1}" -le "${LOCAL_WORLD_SIZE:-1}" ] 2>/dev/null; then
    seen="MA_VJ_NAME is '${MA_VJ_NAME:-}', WORLD_SIZE is '${WORLD_SIZE:-}', PET_NNODES is '${PET_NNODES:-}'"
    fail "the number of nodes is not known" "$seen" "set NNODES, such as 2"
  fi
fi
IFS=, read -r -a names <<<"${VC_WORKER_HOSTS:-this node}"
NNODES=${NNODES:-${MA_NUM_HOSTS:-${#names[@]}}}
MASTER_PORT=${MASTER_PORT:-6060}
NODE_RANK=${NODE_RANK:-${MA_TASK_INDEX:-${VC_TASK_INDEX:-${VK_TASK_INDEX:-}}}}
case $NNODES in *:*) fail "torch.distributed.launch has no range of nodes" "'$NNODES'" "set NNODES to one number, or use torchrun.sh" ;; esac
[[ $NNODES =~ ^[1-9][0-9]*$ ]] || fail "the number of nodes is not known" "'$NNODES'" "set NNODES, such as 2"
# One node meets no other. Where a platform gives a node's index as RANK, node 1 must not start as if it were the only one.
if [ "$NNODES" = 1 ]; then MASTER_ADDR=127.0.0.1 NODE_RANK=${NODE_RANK:-${RANK:-0}}; fi
case $NODE_RANK in '' | *[!0-9]*) fail "this node's index is not known" "'$NODE_RANK' of $NNODES" "set NODE_RANK (0 for worker-0)" ;; esac
[ "$NODE_RANK" -lt "${NNODES#*:}" ] 2>/dev/null || fail "no node of this job has this index" "$NODE_RANK of $NNODES" "set NNODES, and NODE_RANK from 0"
if [ -z "$MASTER_ADDR" ]; then fail "worker-0 is not known" "$NNODES nodes" "set MASTER_ADDR"; fi
NGPUS_PER_NODE=${NGPUS_PER_NODE:-${MA_NUM_GPUS:-2}}
if [ "$NGPUS_PER_NODE" = 0 ]; then NGPUS_PER_NODE=1; fi # a node without accelerators

# What to run: this script's arguments, else PYTHON_SCRIPT and PYTHON_ARGS, else the job's command.
if [ $# -eq 0 ] && [ -n "${PYTHON_SCRIPT:-}" ]; then
  read -r -d '' -a args <<<"${PYTHON_ARGS:-}" || true # split at white space and line ends, and nothing is expanded
  set -- "$PYTHON_SCRIPT" "${args[@]}"
fi
# shellcheck disable=SC2016
if [ $# -eq 0 ]; then set -- python train.py; fi
# PYTHON, if set, also replaces the Python that the command names.
case ${1##*/} in python | python[0-9]*) PYTHON=${PYTHON:-$1} && set -- "$PYTHON" "${@:2}" ;; esac
PYTHON=${PYTHON:-$(command -v python || echo python3)} # torch must be in it
case $1 in
  -m | [!-]*.py) set -- "$PYTHON" "$@" ;;
  -*) fail "an option is not a program" "$1" "name the program first; torch's: TORCHLAUNCH_EXTRA_ARGS" ;;
esac
export PYTHONUNBUFFERED=${PYTHONUNBUFFERED:-1}
# torch expands $name in arguments, so $ is doubled; the program's own name stays as it is.
dollars='$$'
CMD=("${@//\$/$dollars}")
CMD[0]=$1

read -r -d '' -a words <<<"${TORCHLAUNCH_EXTRA_ARGS:-}" || true # split as PYTHON_ARGS

CMD=("$PYTHON" -m torch.distributed.launch
  --nnodes="$NNODES"
  --node_rank="$NODE_RANK"
  --nproc_per_node="$NGPUS_PER_NODE"
  --master_addr="$MASTER_ADDR"
  --master_port="$MASTER_PORT"
  --use_env "${words[@]}" # ranks by variables, as under torchrun; the spec's options; the variable's
  --no_python -- "${CMD[@]}") # the program, with a Python of its own
if [ "$NNODES" != 1 ]; then
  echo "torchlaunch.sh: torch alone, node $NODE_RANK of $NNODES: a failure on another node may end this one with 0" >&2
fi
printf 'torchlaunch.sh:%s\n' "$(printf ' %q' "${CMD[@]}")" >&2
exec "${CMD[@]}"
