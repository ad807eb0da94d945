#!/usr/bin/env bash
# Rendered by entrypoint VERSION: builds mpirun's command line from the settings,
# and becomes mpirun. Run on worker-0.
# ENTRYPOINT_STAGE=plan: it only prints the command line, for `entrypoint plan`.
set -euo pipefail

OPENMPI_NP=${OPENMPI_NP:-4}
OPENMPI_HOST_FILE_PATH=${OPENMPI_HOST_FILE_PATH:-/tmp/entrypoint-1000-36666/hostfile}
TUNE_ENV_FILE=${TUNE_ENV_FILE:-}
OPENMPI_BIND_ARGS=${OPENMPI_BIND_ARGS:-"--bind-to none --map-by slot"}
launcher_args=()

# ModelArts' documents ask for NCCL's log and these interfaces; elsewhere NCCL keeps its own
# defaults. It gives up when none of the named interfaces exists, so they are named if one does.
interfaces=${MY_MPI_BTL_TCP_IF:-}
nccl_debug=${NCCL_DEBUG:-}
if [ -n "${MA_JOB_DIR:-}${MA_VJ_NAME:-}${MA_NUM_HOSTS:-}" ]; then
  nccl_debug=${nccl_debug:-INFO}
  for name in ib0 bond0 eth0; do
    if [ -z "${MY_MPI_BTL_TCP_IF:-}" ] && [ -e "/sys/class/net/$name" ]; then
      interfaces=ib0,bond0,eth0
    fi
  done
fi

# What -x sets by value wins over a node's own variable: the rank wrapper is told the names.
keep=
for word in ${OPENMPI_X_ARGS:-} "${launcher_args[@]}"; do
  case $word in [A-Za-z_]*=*) keep+="${word%%=*} " ;; esac
done
if [ -z "${OPENMPI_X_ARGS:-}" ]; then
  OPENMPI_X_ARGS="-x HOROVOD_MPI_THREADS_DISABLE=${HOROVOD_MPI_THREADS_DISABLE:-1}"
  if [ -n "$nccl_debug" ]; then OPENMPI_X_ARGS+=" -x NCCL_DEBUG=$nccl_debug"; fi
  OPENMPI_X_ARGS+=" -x NCCL_SOCKET_FAMILY=${NCCL_SOCKET_FAMILY:-AF_INET}"
  OPENMPI_X_ARGS+=" -x NCCL_IB_DISABLE=${NCCL_IB_DISABLE:-0}"
  if [ -n "${NCCL_SOCKET_IFNAME:-$interfaces}" ]; then
    OPENMPI_X_ARGS+=" -x NCCL_SOCKET_IFNAME=${NCCL_SOCKET_IFNAME:-$interfaces}"
  fi
  # An unset variable after -x is a warning on every start.
  if [ -n "${LD_LIBRARY_PATH:-}" ]; then OPENMPI_X_ARGS+=" -x LD_LIBRARY_PATH"; fi
fi

# Open MPI 5 reads the daemon's settings under another option and other names, and ignores the old
# ones in silence.
major=4
if [ -z "$major" ]; then
  major=$(mpirun --version | sed -n '1s/^[^0-9]*\([0-9]*\)\..*/\1/p')
fi
if [ "$major" -ge 5 ]; then
  daemon=--prtemca remote_shell=plm_ssh whole_names=prte_keep_fqdn_hostnames
  default_mca="-mca pml ob1 --prtemca plm_ssh_no_tree_spawn true"
else
  daemon=-mca remote_shell=plm_rsh whole_names=orte_keep_fqdn_hostnames
  # Without IPv4, ofi aborts a rank now and then.
  default_mca="-mca pml ob1 -mca btl ^openib,ofi -mca plm_rsh_no_tree_spawn true"
fi
OPENMPI_MCA_ARGS=${OPENMPI_MCA_ARGS:-$default_mca}

# Variables that hold several options are split at white space, and never expanded.
read -r -d '' -a bind_args <<<"$OPENMPI_BIND_ARGS" || true
read -r -d '' -a x_args <<<"$OPENMPI_X_ARGS" || true
read -r -d '' -a mca_args <<<"$OPENMPI_MCA_ARGS" || true

line=(mpirun --tag-output -np "$OPENMPI_NP" -hostfile "$OPENMPI_HOST_FILE_PATH")
agent='sh /tmp/entrypoint-1000-36666/agent'
if [ -n "$agent" ]; then
  # A user without a name has no shell that mpirun could know, and it asks for one.
  export SHELL=${SHELL:-/bin/sh}
  line+=("$daemon" "${remote_shell}_agent" "$agent")
  # Some images set isolated, by which mpirun reaches no other node. Not an option: it may be given
  # once, and some give it.
  export OMPI_MCA_plm=rsh PRTE_MCA_plm=ssh
else
  # One node needs no ssh, not even the program. Without the component, Open MPI 5 counts the CPUs
  # and not the hostfile's slots.
  export OMPI_MCA_plm=^rsh PRTE_MCA_plm=ssh PRTE_MCA_plm_ssh_agent=sh
fi
# Cut at the first dot, a name would be another than the one whose host key is known.
line+=("$daemon" "$whole_names" 1)
if [ -n "${MY_MPI_BTL_TCP_IF:-}" ]; then
  line+=(-mca btl_tcp_if_include "$MY_MPI_BTL_TCP_IF")
  # Those of Open MPI 5 end at an interface's name, and warn of a network and ignore it (PRRTE
  # 3.0.8): they look by themselves.
  if [ "$major" -lt 5 ]; then line+=(-mca oob_tcp_if_include "$MY_MPI_BTL_TCP_IF"); fi
fi
if [ -n "$TUNE_ENV_FILE" ]; then line+=(-tune "$TUNE_ENV_FILE"); fi
if [ "$EUID" -eq 0 ]; then line+=(--allow-run-as-root); fi
line+=("${bind_args[@]}" "${x_args[@]}" "${mca_args[@]}" "${launcher_args[@]}")

# Ranks of one container may not read each other's memory unless it was started with SYS_PTRACE:
# every message would warn.
export OMPI_MCA_btl_vader_single_copy_mechanism=${OMPI_MCA_btl_vader_single_copy_mechanism:-none}
# From 32 ranks on a node, daemons start them in threads: then they miss the end of some, and sleep
# a minute or lose output.
export OMPI_MCA_odls_base_num_threads=${OMPI_MCA_odls_base_num_threads:-0}
export PRTE_MCA_odls_base_num_threads=${PRTE_MCA_odls_base_num_threads:-0}
# mpirun makes and removes one session folder a machine, and two that start together may lose
# theirs. Ranks do not see it.
export TMPDIR=/tmp/entrypoint-1000-36666/tmp
# In a Slurm job mpirun would take nodes and slots from Slurm, and start its daemons by srun. Ranks
# see these variables.
unset "${!SLURM_@}"
export ENTRYPOINT_KEEP=$keep
# mpirun takes a colon by itself for the end of a program, wherever it stands: it gets a backslash,
# which the wrapper removes.
words=()
for word in "$@"; do
  if [[ $word =~ ^\\*:$ ]]; then word="\\$word"; fi
  words+=("$word")
done
# Every rank starts through this node's own wrapper; the program's words are passed as they are.
# shellcheck disable=SC2016
line+=(-x ENTRYPOINT_KEEP sh -c '. "$ENTRYPOINT_RUN_DIR/rank.sh"' rank "${words[@]}")
if [ "${ENTRYPOINT_STAGE:-}" = plan ]; then printf '%s\0' "${line[@]}" && exit; fi
# The entrypoint shows it in started.txt, without secrets.
(umask 077 && printf '%s\0' "${line[@]}" >/tmp/entrypoint-1000-36666/line) || true
exec "${line[@]}"
