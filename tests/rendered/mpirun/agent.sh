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
exec python3 -I -S /PACKAGE/ranks/agent.py /tmp/entrypoint-1000-36666 '' "$@"
