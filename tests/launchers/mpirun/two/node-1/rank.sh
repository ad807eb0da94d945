# Rendered by entrypoint VERSION for node modelarts-job-8f-worker-1.modelarts-job-8f. Sourced by `sh -c`, once for each rank that runs here.
# It gives the rank this node's own environment, byte for byte, and tells this node's entrypoint how it ended.
exec python3 -I -S /PACKAGE/programs/supervisor.py --run-dir /tmp/entrypoint-1000-36666 --tail '/tmp/entrypoint-1000-36666/tail.{rank}' --said /tmp/entrypoint-1000-36666/said --env /tmp/entrypoint-1000-36666/rank.env --cwd /home/ma-user --colons escaped --linger 45 --hold yes -- "$@"
