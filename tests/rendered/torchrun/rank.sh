# Rendered by entrypoint VERSION for node modelarts-job-8f-worker-0.modelarts-job-8f. Run by `sh`, once for each process that the launcher starts here.
# It tells this node's entrypoint how the rank ended, and keeps what it printed last.
exec python3 -I -S /PACKAGE/ranks/supervise.py --run-dir /tmp/entrypoint-1000-36666 --tail '/tmp/entrypoint-1000-36666/tail.program-ranks.{rank}' --last-output /tmp/entrypoint-1000-36666/last-output --socket program-ranks --linger apart --nested '{rank}' --lines whole --through pipe --number "$RANK" -- "$@"
