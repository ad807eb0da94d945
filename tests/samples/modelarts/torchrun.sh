#!/bin/bash
# 系统默认环境变量,不建议修改
MASTER_HOST="$VC_WORKER_HOSTS"
MASTER_ADDR="${VC_WORKER_HOSTS%%,*}"
MASTER_PORT="6060"
JOB_ID="1234"
NNODES="$MA_NUM_HOSTS"
NODE_RANK="$VC_TASK_INDEX"
NGPUS_PER_NODE="$MA_NUM_GPUS"
# 自定义环境变量,指定python脚本和参数
PYTHON_SCRIPT=${MA_JOB_DIR}/code/torch_ddp.py
PYTHON_ARGS=""
if [[ $NODE_RANK == 0 ]]; then
EXT_ARGS="--rdzv_conf=is_host=1"
else
EXT_ARGS=""
fi
CMD="python -m torch.distributed.run \
--nnodes=$NNODES \
--node_rank=$NODE_RANK \
$EXT_ARGS \
--nproc_per_node=$NGPUS_PER_NODE \
--rdzv_id=$JOB_ID \
--rdzv_backend=c10d \
--rdzv_endpoint=$MASTER_ADDR:$MASTER_PORT \
$PYTHON_SCRIPT \
$PYTHON_ARGS
"
echo $CMD
$CMD
