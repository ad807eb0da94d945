#!/usr/bin/env bash
# Rendered by entrypoint VERSION from job.yaml: starts torch.distributed.launch on this node.
#
#   bash torchlaunch.sh train.py --epochs 5
#
# Run it on every node: on ModelArts as it is, elsewhere with NNODES, and NODE_RANK and MASTER_ADDR for several nodes. It needs bash
# 4.4 or newer and a Python with torch. Set variables, do not edit it: docs/reference/torchrun.md
# Exit status: 1 if a process of this node failed; 0 if they all succeeded, even if another node failed (torch waits up
# to 300 s for it), and 1 without torch; 78 if a variable is missing or wrong; 127 without a Python. Torch's own PET_<OPTION> counts
# only for options that the command line, below, lacks. One status on all nodes, gate, restarts with spares, stalls, logs: `entrypoint run`
# alone.

ep_fail() { # what failed, what was seen, what to do; `entrypoint explain EP650` says more
  echo "torchlaunch.sh: EP650 $1 | $2 | $3" >&2
  exit 78
}

ep_count() { # whether $1 is a whole number from $2 to $3, without a sign
  [[ $1 =~ ^[0-9]{1,6}$ ]] && ((10#$1 >= $2 && 10#$1 <= $3))
}

ep_agree() { # whether the variable named $1 is unset, empty or $2, which the job has already
  local ep_given=${!1:-$2}
  [ "${ep_given,,}" = "${2,,}" ] || ep_fail "$1 contradicts $3" "'$ep_given', and '$2'" "unset $1, or render this script for this job"
}

ep_expand() { # ep_word: $1, in which MA_JOB_DIR is expanded at the beginning, as under `entrypoint run`
  ep_word=$1
  # shellcheck disable=SC2016
  case ${MA_JOB_DIR:+$1} in
    '$MA_JOB_DIR' | '$MA_JOB_DIR'/*) ep_word=${MA_JOB_DIR%/}${1#'$MA_JOB_DIR'} ;;
    '${MA_JOB_DIR}' | '${MA_JOB_DIR}'/*) ep_word=${MA_JOB_DIR%/}${1#'${MA_JOB_DIR}'} ;;
  esac
}

ep_nodes() { # ep_nnodes, ep_most, ep_master, ep_rank: how many nodes the job has, the first one, and this one's index
  local ep_name
  for ep_name in "${!VC_@}" "${!TF_@}"; do # a task index counts within one task
    case ${NODE_RANK:+known}${!ep_name:+$ep_name} in
      VC_WORKER_HOSTS | VC_WORKER_NUM) ;;
      VC_*_HOSTS | VC_*_NUM | TF_*_HOSTS) ep_fail "this job has more than one list of nodes" "$ep_name" "use \`entrypoint run\`, or render with hosts and set NODE_RANK" ;;
    esac
  done
  case ${NODE_RANK:+known}${MA_TASK_NAME:-} in ps) ep_fail "this node is a parameter server" "MA_TASK_NAME is ps" "use \`entrypoint run\`" ;; esac
  if [ -n "${ENTRYPOINT_HOSTS:-}" ]; then ep_fail "hosts are for \`entrypoint run\`" "ENTRYPOINT_HOSTS is set" "render with --hosts"; fi
  ep_nnodes='' ep_most='' ep_master=''
  # As ModelArts says it: the list of all nodes, or their number and the rule of their names.
  if [ -n "${VC_WORKER_HOSTS:-}" ]; then
    [[ $VC_WORKER_HOSTS =~ ^[A-Za-z0-9._-]+(,[A-Za-z0-9._-]+)*$ || $VC_WORKER_HOSTS =~ ^[0-9A-Fa-f]*:[0-9A-Fa-f.]*:[0-9A-Fa-f:.,]+$ ]] ||
      ep_fail "the list of nodes is not one of names" "VC_WORKER_HOSTS is '$VC_WORKER_HOSTS'" "use \`entrypoint run\`, or render with hosts"
    local ep_name ep_names ep_seen=
    IFS=, read -r -a ep_names <<<"$VC_WORKER_HOSTS"
    ep_most=${#ep_names[@]} ep_master=${ep_names[0]%.}
    for ep_name in "${ep_names[@],,}"; do
      [[ ,$ep_seen, != *,"$ep_name",* ]] || ep_fail "a node is named twice" "VC_WORKER_HOSTS is '$VC_WORKER_HOSTS'" "name each node once"
      ep_seen+=,$ep_name
    done
    ep_agree MA_NUM_HOSTS "$ep_most" VC_WORKER_HOSTS
    ep_agree VC_WORKER_NUM "$ep_most" VC_WORKER_HOSTS
  elif [ -n "${MA_NUM_HOSTS:-}" ]; then
    ep_count "$MA_NUM_HOSTS" 1 16384 || ep_fail "the number of nodes is not known" "MA_NUM_HOSTS is '$MA_NUM_HOSTS'" "set it to a number from 1"
    ep_most=$((10#$MA_NUM_HOSTS)) ep_master=${MA_VJ_NAME:+$MA_VJ_NAME-${MA_TASK_NAME:-worker}-0.$MA_VJ_NAME}
  fi
  ep_nnodes=$ep_most
  if [ -n "$ep_nnodes" ]; then ep_agree NNODES "$ep_nnodes" "the number of the job's nodes"; else ep_nnodes=${NNODES:-}; fi
  local ep_least=${ep_nnodes%:*}
  ep_most=${ep_nnodes#*:}
  case $ep_nnodes in *:*) ep_fail "torch.distributed.launch has no range of nodes" "'$ep_nnodes'" "set NNODES to one number, or use torchrun.sh" ;; esac
  if ! { [[ $ep_nnodes =~ ^([1-9][0-9]*:)?[1-9][0-9]*$ ]] && ep_count "$ep_most" 1 16384 && ep_count "$ep_least" 1 "$ep_most"; }; then
    ep_fail "the number of nodes is not known" "'$ep_nnodes'" "set NNODES, such as 2 (NNODES=1 for one node)"
  fi
  ep_rank=${NODE_RANK:-${ENTRYPOINT_NODE_RANK:-${MY_TASK_INDEX:-${MA_TASK_INDEX:-${VC_TASK_INDEX:-${VK_TASK_INDEX:-}}}}}}
  # One node meets no other. Where a platform gives a node's index as RANK, node 1 must not start as if it were the only one.
  if [ "$ep_most" = 1 ]; then ep_rank=${ep_rank:-${RANK:-0}}; fi
  case $ep_rank in '' | *[!0-9]*) ep_fail "this node's index is not known" "'$ep_rank' of $ep_nnodes" "set NODE_RANK (0 for worker-0)" ;; esac
  ep_count "$ep_rank" 0 $((ep_most - 1)) || ep_fail "no node of this job has this index" "$ep_rank of $ep_nnodes" "set NNODES, and NODE_RANK from 0"
  ep_rank=$((10#$ep_rank))
  if [ "$ep_most" = 1 ]; then
    case ${MASTER_ADDR:-} in '' | 127.0.0.1 | localhost) ;; *) echo "torchlaunch.sh: one node meets no other: MASTER_ADDR $MASTER_ADDR is not used" >&2 ;; esac
    ep_master=127.0.0.1
  elif [ -n "$ep_master" ]; then
    ep_agree MASTER_ADDR "$ep_master" "the first of the job's nodes"
  else
    ep_master=${MASTER_ADDR:-}
  fi
  if [ -z "$ep_master" ]; then ep_fail "worker-0 is not known" "$ep_nnodes nodes" "set MASTER_ADDR"; fi
}

ep_processes() { # ep_slots: the processes of this node
  ep_slots=${NGPUS_PER_NODE:-}
  if [ "${NGPUS_PER_NODE:-}" = 0 ]; then ep_slots=1; fi # a node without accelerators
  ep_slots=${ep_slots:-${ENTRYPOINT_SLOTS:-${MY_MPI_SLOTS:-''}}}
  if [ -z "$ep_slots" ]; then
    if [ -n "${MA_JOB_DIR:-}${MA_VJ_NAME:-}${MA_NUM_HOSTS:-}" ]; then ep_slots=${MA_NUM_GPUS:-0}; fi
    if [ "$ep_slots" = 0 ]; then ep_slots=1; fi
    if [ -z "$ep_slots" ] && [ -n "${MA_NUM_GPUS:-}" ]; then ep_fail "MA_NUM_GPUS counts on ModelArts alone" "$MA_NUM_GPUS, and MA_NUM_HOSTS is unset" "set NGPUS_PER_NODE"; fi
    if [ -z "$ep_slots" ]; then ep_cards; fi
  fi
  ep_count "$ep_slots" 1 4096 || ep_fail "the number of processes is not known" "'$ep_slots'" "set NGPUS_PER_NODE to a number from 1"
  ep_slots=$((10#$ep_slots))
}

ep_cards() { # ep_slots: this node's accelerators, 1 without any
  local ep_path ep_entry ep_found=0
  for ep_path in /dev/{nvidia,davinci}[0-9]*; do
    if [[ $ep_path =~ [a-z][0-9]+$ && -e $ep_path ]]; then ep_found=$((ep_found + 1)); fi
  done
  ep_slots=$((ep_found > 0 ? ep_found : 1))
  local ep_visible=${CUDA_VISIBLE_DEVICES-${ASCEND_RT_VISIBLE_DEVICES-all}}
  if [ "$ep_found" = 0 ] || [ "$ep_visible" = all ]; then return; fi
  ep_slots=0
  for ep_entry in ${ep_visible//,/ }; do
    [[ $ep_entry =~ ^(GPU|MIG)-[A-Za-z0-9/-]+$ ]] || ep_count "$ep_entry" 0 $((ep_found - 1)) || ep_fail "the number of processes is not known" "the visible cards are '$ep_visible'" "set NGPUS_PER_NODE"
    ep_slots=$((ep_slots + 1))
  done
}

ep_options() { # ep_extra: the user's own options of torch's launcher
  ep_extra=()
  local ep_text=${TORCHRUN_EXTRA_ARGS:-${TORCHLAUNCH_EXTRA_ARGS:-}}
  if [ -z "$ep_text" ]; then return; fi
  case $ep_text in *[\'\"\\]* | \[*) ep_fail "options with quotes are not read here" "$ep_text" "render with launcher_args" ;; esac
  local ep_words ep_option ep_at
  read -r -d '' -a ep_words <<<"$ep_text" || true
  ep_extra=()
  for ((ep_at = 0; ep_at < ${#ep_words[@]}; ep_at++)); do
    ep_word=${ep_words[ep_at]}
    ep_extra+=("$ep_word")
    case $ep_word in -m*) ep_word=module ;; --*) ep_word=${ep_word#--} ;; *) continue ;; esac
    ep_word=${ep_word%%=*}
    for ep_option in nnodes node_rank nproc_per_node master_addr master_port local_addr standalone rdzv_backend rdzv_endpoint rdzv_id module no_python run_path; do # argparse takes any beginning of an option for it
      if [[ $ep_option == "${ep_word//-/_}"* ]]; then ep_fail "--$ep_option is set by this script" "${ep_words[ep_at]}" "see docs/reference/torchrun.md"; fi
    done
  done
}

ep_program() { # ep_python, ep_command: the Python that has torch, and the program with its arguments
  local ep_name ep_at ep_dollars='$$'
  ep_python=${PYTHON:-}
  # What to run: this script's arguments, else PYTHON_SCRIPT and PYTHON_ARGS, else the job's command.
  if [ $# -eq 0 ] && [ -n "${PYTHON_SCRIPT:-}" ]; then
    read -r -d '' -a ep_command <<<"${PYTHON_ARGS:-}" || true # split at white space and line ends, and nothing is expanded
    set -- "$PYTHON_SCRIPT" "${ep_command[@]}"
  fi
  # shellcheck disable=SC2016
  if [ $# -eq 0 ]; then set -- python train.py; fi
  if [ $# -eq 0 ] || [ -z "$1" ]; then ep_fail "there is no program to run" "no arguments" "bash torchlaunch.sh train.py --epochs 5"; fi
  ep_command=()
  for ep_name in "$@"; do
    ep_expand "$ep_name"
    ep_command+=("$ep_word")
  done
  if [[ ${ep_command[0]##*/} =~ ^python[0-9.]*$ ]]; then
    ep_python=${ep_python:-${ep_command[0]}} # PYTHON, if set, also replaces the Python that the command names
    ep_command[0]=$ep_python
  elif [ -z "$ep_python" ]; then
    ep_python=python # torch must be in it
    if [ -z "$(type -P python)" ] && [ -n "$(type -P python3)" ]; then ep_python=python3; fi
  fi
  case ${ep_command[0]} in
    -m | [!-]*.py) ep_command=("$ep_python" "${ep_command[@]}") ;;
    -*) ep_fail "an option is not a program" "${ep_command[0]}" "name the program first; torch's: TORCHLAUNCH_EXTRA_ARGS" ;;
  esac
  case ${ep_command[0]##*/} in mpirun | mpiexec | orterun | prterun | srun | mpirun.openmpi | mpiexec.openmpi | mpiexec.hydra | mpiexec.mpich | mpirun.mpich | torchrun | accelerate | accelerate-launch | deepspeed | horovodrun | msrun | torchrun.sh | torchlaunch.sh | run_mpi.sh | ray) ep_fail "the program is a launcher itself" "${ep_command[0]}" "bash torchlaunch.sh train.py --epochs 5" ;; esac
  case "${ep_command[1]:-} ${ep_command[2]:-}." in "-m torch.distributed.run."* | "-m torch.distributed.launch."* | "-m torch.distributed.launcher."* | "-m accelerate.commands."* | "-m deepspeed.launcher."* | "-m horovod.run."* | "-m horovod.runner."* | "-m mindspore.parallel.cluster.run."* | "-m ray.scripts."*) ep_fail "the program is a launcher itself" "${ep_command[2]}" "bash torchlaunch.sh train.py --epochs 5" ;; esac
  # torch expands $name in arguments, so $ is doubled; the program's own name stays as it is.
  for ((ep_at = 1; ep_at < ${#ep_command[@]}; ep_at++)); do
    ep_command[ep_at]=${ep_command[ep_at]//\$/$ep_dollars}
  done
}

ep_environment() { # ep_env: what the program's environment has beside the container's, as words for env
  local ep_name
  ep_env=()
  # Torch reads these too; what the command line lacks would be theirs.
  for ep_name in "${!PET_@}"; do
    case ${!ep_name:+$ep_name} in '' | PET_STANDALONE | PET_RDZV_ENDPOINT | PET_MODULE | PET_NO_PYTHON | PET_RUN_PATH) ep_env+=(-u "$ep_name") ;; esac
  done
  if [ -z "${PYTHONUNBUFFERED:-}" ]; then ep_env+=(PYTHONUNBUFFERED=1); fi
}

ep_start() { # prints what this shell then runs, so that none of these names is a variable of the program's
  local ep_name ep_python ep_word ep_nnodes ep_most ep_master ep_rank ep_slots
  local -a ep_command ep_extra ep_env ep_line ep_rest
  for ep_name in COMMAND DEVICE ENV MPI_INTERFACE NETWORK_INTERFACE NODES PLATFORM SPARES SPEC TIMEOUTS_JOIN TIMEOUTS_PEERS WORKDIR LAUNCHER_ARGS TORCH_EXTRA_ARGS; do
    ep_word=ENTRYPOINT_$ep_name
    if [ -n "${!ep_word:-}" ]; then ep_fail "$ep_word is for \`entrypoint run\`" "it is set" "unset it, and render this script with its value"; fi
  done
  ep_nodes
  ep_processes
  ep_options
  ep_program "$@"
  ep_environment
  local ep_port=${ENTRYPOINT_PORT:-}
  case $ep_port in *://*) ep_port= ;; esac # Kubernetes sets it so for a Service of that name
  ep_port=${ep_port:-${ENTRYPOINT_TORCH_PORT:-${MASTER_PORT:-6060}}}
  ep_count "$ep_port" 1 65535 || ep_fail "this is not a port" "'$ep_port'" "set MASTER_PORT to a number from 1 to 65535"
  ep_rest=(--use_env) # ranks by variables, as under torchrun
  local ep_form=(--no_python --)
  local ep_use_env=${TORCHLAUNCH_USE_ENV:-}
  if [ "$ep_use_env" = 0 ]; then # torch gives a Python program --local-rank=N itself, in the spelling of its version
    [[ ${ep_command[0]} == "$ep_python" && ${#ep_command[@]} -gt 1 ]] || ep_fail "TORCHLAUNCH_USE_ENV=0 needs a Python program" "${ep_command[0]}" "name a script whose name ends with .py, or -m MODULE"
    ep_command=("${ep_command[@]:1}")
    if [ "${ep_command[0]}" = -u ]; then ep_command=("${ep_command[@]:1}"); fi
    ep_rest=() ep_form=(--)
    case ${ep_command[0]:-} in
      -m) ep_form=(--module --) && ep_command=("${ep_command[@]:1}") ;;
      -* | '') ep_fail "TORCHLAUNCH_USE_ENV=0 needs a script or a module" "${ep_command[*]}" "leave out the options of Python" ;;
    esac
  fi
  ep_line=("$ep_python" -m torch.distributed.launch
    --nnodes="$ep_nnodes"
    --node_rank="$ep_rank"
    --nproc_per_node="$ep_slots"
    --master_addr="$ep_master"
    --master_port="$ep_port"
    "${ep_rest[@]}"
    "${ep_extra[@]}"
    "${ep_form[@]}" "${ep_command[@]}") # the program, with a Python of its own
  if [ "$ep_most" != 1 ]; then
    echo "torchlaunch.sh: torch alone, node $ep_rank of $ep_nnodes: a failure on another node may end this one with 0" >&2
  fi
  printf 'torchlaunch.sh:%s\n' "$(printf ' %q' "${ep_line[@]}")" >&2
  printf ' %q' exec env "${ep_env[@]}" "${ep_line[@]}"
}

eval "$( (ep_start "$@") || echo "exit $?")"
