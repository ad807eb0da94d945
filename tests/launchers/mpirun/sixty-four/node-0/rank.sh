# Rendered by entrypoint VERSION for node node-0. Sourced by `sh -c`, once for each rank that runs here.
# It gives the rank this node's own environment, byte for byte, and tells this node's entrypoint how it ended.
exec python3 -I -S /PACKAGE/programs/supervisor.py --run-dir /tmp/entrypoint-1000-36666 --tail '/tmp/entrypoint-1000-36666/tail.{rank}' --said /tmp/entrypoint-1000-36666/said --env /tmp/entrypoint-1000-36666/rank.env --cwd /work --colons escaped --linger 30 --hold yes -- "$@"
