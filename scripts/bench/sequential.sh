#!/usr/bin/env bash
# sequential.sh PROGRAM... - boots a job as the well-known shell scripts do, for comparison: every step waits for the one
# before, and every wait is a sleep of one second. Our own text; docs/performance.md says what it shares with them.
#
# NODES and RANK say which node of how many this is; /keys has the keys, which are the same on every node.
set -u
login="-p 36666 -i /keys/client -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR"
/usr/sbin/sshd -f /keys/sshd_config

# workers sleep until worker-0 ends their sleep
if [ "$RANK" -ne 0 ]; then
  sleep 365d
  exit 0
fi

for ((node = 0; node < NODES; node++)); do
  # one host after the other, and a second of sleep also after success
  address=
  while [ -z "$address" ]; do
    address=$(getent ahostsv4 "node-$node" | awk 'NR == 1 { print $1 }')
    sleep 1
  done
  until (: </dev/null >"/dev/tcp/$address/36666") 2>/dev/null; do sleep 1; done
  echo "$address slots=1" >>/tmp/hostfile
done

mpirun -np "$NODES" -hostfile /tmp/hostfile -mca plm_rsh_args "$login" -bind-to none -map-by slot -mca pml ob1 \
  -mca btl ^openib -mca plm_rsh_no_tree_spawn true "$@"
status=$?

# a second mpirun ends the sleep of the workers
sed -i 1d /tmp/hostfile
mpirun -hostfile /tmp/hostfile -mca plm_rsh_args "$login" pkill sleep >/dev/null 2>&1
exit "$status"
