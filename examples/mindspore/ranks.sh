#!/bin/sh
# ranks.sh PROGRAM ARGUMENT... - what MindSpore has to know, from what mpirun tells each rank; then PROGRAM.
#
# MindSpore's own MPI support is for GPU and Ascend. Elsewhere its processes meet at a scheduler, which rank 0 starts
# beside itself on the first host, and ends when its own program is done.
#
#   MS_SCHED_PORT   where they meet (default 8118)
set -eu

hosts=${ENTRYPOINT_HOSTS:-${VC_WORKER_HOSTS:-localhost}}
first=${hosts%%,*}
first=${first#*=}
# one address: MindSpore takes no name
MS_SCHED_HOST=${MS_SCHED_HOST:-$(getent ahostsv4 "$first" | { read -r address _; echo "$address"; })}
MS_SCHED_PORT=${MS_SCHED_PORT:-8118}
MS_WORKER_NUM=$OMPI_COMM_WORLD_SIZE
MS_NODE_ID=$OMPI_COMM_WORLD_RANK
MS_ROLE=MS_WORKER
export MS_SCHED_HOST MS_SCHED_PORT MS_WORKER_NUM MS_NODE_ID MS_ROLE

[ "$OMPI_COMM_WORLD_RANK" = 0 ] || exec "$@"

MS_ROLE=MS_SCHED python -c 'from mindspore import communication; communication.init()' &
scheduler=$!
status=0
"$@" || status=$?
if [ "$status" = 0 ]; then
  wait "$scheduler" || true     # it ends by itself once the last rank has said goodbye
else
  kill "$scheduler"
fi
exit "$status"
