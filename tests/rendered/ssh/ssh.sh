#!/bin/sh
# Rendered by entrypoint VERSION from the roll call: logs in to a node of this job, as `ssh` does: ssh worker-1 hostname
exec /usr/bin/ssh -F /tmp/entrypoint-1000-36666/ssh_config "$@"
