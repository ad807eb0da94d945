# Rendered by entrypoint VERSION: what mpirun runs to start its daemon on a node, as it would run ssh.
# The entrypoint has the daemon started by that node's own, over the session that is already open. No other program runs here.
# The MPI operator gives mpirun `-o ConnectionAttempts=10` for ssh, whose options may have a value.
while :; do
  case $1 in
    -[BbcDEeFIiJLlmOoPpQRSWw]) shift 2 ;;
    -*) shift ;;
    *) break ;;
  esac
done
host=$1
shift
here=/tmp/entrypoint-1000-36666/agent.$host
if [ ! -p "$here" ]; then
  echo "mpirun's agent: EP650 $host is not a node of this job | see the hostfile" >&2
  exit 255
fi
umask 077
printf '%s' "$*" >"$here.command"
printf '%s\n' "$host" >/tmp/entrypoint-1000-36666/agents
read -r status <"$here" || status=255
exit "$status"
