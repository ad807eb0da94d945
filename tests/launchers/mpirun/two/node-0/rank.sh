# Rendered by entrypoint VERSION for node modelarts-job-8f-worker-0.modelarts-job-8f. Sourced by `sh -c`, once for each rank that runs here.
# It gives the rank this node's own environment, byte for byte, runs it, and tells this node's entrypoint how it ended.
kept() { case " ${ENTRYPOINT_KEEP:-} " in *" $1 "*) ;; *) return 1 ;; esac; }
kept PATH || export PATH=/usr/local/bin:/usr/bin
kept LD_LIBRARY_PATH || export LD_LIBRARY_PATH=/usr/local/nccl/lib
kept MA_JOB_DIR || export MA_JOB_DIR=/home/ma-user/modelarts/user-job-dir
kept MA_VJ_NAME || export MA_VJ_NAME=modelarts-job-8f
kept MA_NUM_HOSTS || export MA_NUM_HOSTS=2
kept MA_NUM_GPUS || export MA_NUM_GPUS=2
kept MA_CURRENT_IP || export MA_CURRENT_IP=172.16.0.10
kept VC_WORKER_HOSTS || export VC_WORKER_HOSTS=modelarts-job-8f-worker-0.modelarts-job-8f,modelarts-job-8f-worker-1.modelarts-job-8f
kept VC_TASK_INDEX || export VC_TASK_INDEX=0
kept ENTRYPOINT_RUN_DIR || export ENTRYPOINT_RUN_DIR=/tmp/entrypoint-1000-36666
entrypoint_rank=${OMPI_COMM_WORLD_RANK:-${PMIX_RANK:-0}}
entrypoint_run=/tmp/entrypoint-1000-36666
# Opened for both ways, a pipe that nobody reads any more can't block the rank.
printf 'start %s %s\n' "$entrypoint_rank" "$$" 1<>"$entrypoint_run/ranks"
unset ENTRYPOINT_KEEP
# The program gets the group's signals itself; this shell only waits, so that it can say how the program ended.
trap : TERM INT HUP USR1 USR2
cd /home/ma-user && "$@"
entrypoint_status=$?
printf 'end %s %s\n' "$entrypoint_rank" "$entrypoint_status" 1<>"$entrypoint_run/ranks"
exit "$entrypoint_status"
