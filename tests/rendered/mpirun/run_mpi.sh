#!/usr/bin/env bash
# Rendered by entrypoint VERSION from job.yaml: boots an MPI job.
# Run it on every node:
#
#   bash run_mpi.sh python train.py --epochs 5
#
# It needs an image with the toolkit, which does what the script of this name in ModelArts'
# documents does: it starts sshd, waits for the other nodes, writes the hostfile, starts mpirun on
# worker-0, and ends all nodes with one status.
# Several nodes need a secret: ENTRYPOINT_SECRET, or ENTRYPOINT_SECRET_FILE with the file's path.
# `entrypoint plan --launcher mpirun -- python train.py` shows mpirun's command line. Set variables,
# do not edit it: docs/reference/mpirun.md
# Exit status: the job's own, on all nodes; 78 if a setting is missing or does not fit; 127 without
# the toolkit, or without the program; all others: docs/reference/exit-codes.md
set -euo pipefail

if ! command -v entrypoint >/dev/null; then
  problem="EP650 the job cannot boot | no entrypoint on PATH"
  echo "run_mpi.sh: $problem | use an image that has the toolkit" >&2
  exit 127
fi
# ModelArts' own script kept its files in MY_HOME; if it is set, the toolkit's are in a private
# folder there, whatever run_dir says.
if [ -n "${MY_HOME:-}" ]; then
  export ENTRYPOINT_RUN_DIR=${ENTRYPOINT_RUN_DIR:-$MY_HOME/.entrypoint}
fi
printf 'run_mpi.sh: start time: %(%Y-%m-%d-%H:%M:%S)T\n' -1 >&2

# The job, as a spec file has it: variables win over it as over a file, and its `env` is for the ranks
# alone.
# shellcheck disable=SC2016
if [ -z "${ENTRYPOINT_SPEC:-}" ]; then set -- --spec '{
"command": ["python", "train.py"],
"timeouts": {"grace": 45.0}
}' -- "$@"; else set -- -- "$@"; fi

exec entrypoint run --launcher mpirun "$@"
