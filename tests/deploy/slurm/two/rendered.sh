#!/bin/bash
# Rendered by entrypoint VERSION from job.yaml.
#   (umask 077; openssl rand -hex 32 >FILE)    once: the job's secret, where ENTRYPOINT_SECRET_FILE says below
#   sbatch THIS_FILE                           sbatch's own options win over those here: --partition, --account
#   scancel --signal=TERM JOB                  stops it: ranks have their grace. `scancel JOB` gives them the cluster's
#   scancel --signal=USR1 JOB                  reaches every rank
#SBATCH --job-name=demo
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --exclusive
#SBATCH --mem=0
#SBATCH --gres=gpu:8
#SBATCH --time=1-12:00:00
#SBATCH --signal=TERM@150
#SBATCH --requeue
#SBATCH --open-mode=append
# shellcheck disable=SC2016 # a value may look like something to expand
set -u
say() { echo "[entrypoint sbatch] $1" >&2; }

cd /home/me/job || exit 66
export ENTRYPOINT_SPEC=/home/me/job/job.yaml
export ENTRYPOINT_SECRET_FILE=/home/me/job/secret
unset ENTRYPOINT_SECRET # sbatch takes variables along from your shell; the file is meant
export -n HOSTNAME # this node's: srun would pass it on to all others
if [[ ! -r $ENTRYPOINT_SECRET_FILE ]]; then
  say "EP303 cannot read the job's secret | $ENTRYPOINT_SECRET_FILE | create it in a folder that all nodes see"
  exit 66
fi
mode=$(stat -Lc %a -- "$ENTRYPOINT_SECRET_FILE")
if [[ $mode != *00 ]]; then
  say "EP307 others can read the job's secret | $ENTRYPOINT_SECRET_FILE has mode $mode | create another secret, and chmod 600 its file"
  exit 78
fi

# What reaches this shell alone goes on to the steps, by Slurm: srun that gets a SIGTERM itself kills its step. While a
# job is cancelled, Slurm has told the steps already, and refuses this.
stopped=''
trap 'interrupted=1 stopped=1; scancel --signal=TERM "$SLURM_JOB_ID"' TERM
trap 'interrupted=1; scancel --signal=USR1 "$SLURM_JOB_ID"' USR1
trap 'interrupted=1; scancel --signal=USR2 "$SLURM_JOB_ID"' USR2

# One entrypoint on each node, which starts all ranks of it. A node whose entrypoint ends first kills nobody: the others
# notice, give their ranks the grace, and end with the job's status. setsid: a signal to this shell's group spares srun.
# bash may forget the status of what ends while a signal interrupts its `wait`; a pipe does not.
exec {result}<> <(:)
{
  trap : TERM USR1 USR2
  setsid srun --nodes="$SLURM_JOB_NUM_NODES" --ntasks="$SLURM_JOB_NUM_NODES" --ntasks-per-node=1 \
    --export=ALL --mpi=none --cpu-bind=none --kill-on-bad-exit=0 --wait=0 \
    entrypoint run
  echo "$?" >&"$result"
} &
while :; do
  interrupted=''
  wait "$!"
  status=$?
  [[ $interrupted ]] || break # a signal ended the wait, not srun
done
trap '' TERM USR1 USR2
read -r -t 1 ended <&"$result" && status=$ended

case $status in
69 | 71 | 75)
  if [[ $stopped ]]; then
    say "not requeued | the job was told to stop | status $status"
  elif ((${SLURM_RESTART_COUNT:-0} >= 3)); then
    say "EP651 not requeued | status $status after 3 restarts | look for the reason above"
  elif scontrol requeue "$SLURM_JOB_ID"; then
    say "requeued | status $status: machines or the network failed"
  elif [[ $(scontrol show job "$SLURM_JOB_ID") =~ \ Restarts=([0-9]+) ]] &&
    ((BASH_REMATCH[1] > ${SLURM_RESTART_COUNT:-0})); then
    say "requeued by Slurm itself | status $status: a node failed"
  else
    say "EP651 cannot requeue | status $status, scontrol refused | submit it again"
  fi
  ;;
esac
exit "$status"
