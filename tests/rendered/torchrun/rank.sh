# Rendered by entrypoint VERSION for node modelarts-job-8f-worker-0.modelarts-job-8f. Run by `sh`, once for each process that the launcher starts here.
# It tells this node's entrypoint how the rank ended, and what it printed last.
exec python3 -I -S /PACKAGE/ranks/supervise.py --run-dir /tmp/entrypoint-1000-36666 --last-output /tmp/entrypoint-1000-36666/last-output --kind program-rank --linger apart --nested '{rank}' --lines whole --through pipe --number "$RANK" -- "$@"
