# Rendered by entrypoint VERSION for node box. Sourced by `sh -c`, once for each rank that runs here.
# It gives the rank this node's own environment, byte for byte, runs it, and tells this node's entrypoint how it ended.
kept() { case " ${ENTRYPOINT_KEEP:-} " in *" $1 "*) ;; *) return 1 ;; esac; }
kept PATH || export PATH=/usr/local/bin:/usr/bin
kept LANG || export LANG=C.UTF-8
kept QUOTES || export QUOTES='it'"'"'s "fine"'
kept DOLLAR || export DOLLAR='$HOME $(id) `id`'
kept LINES || export LINES='a
b
'
kept JSON || export JSON='{"a": [1, 2], "b": "c=d;e"}'
kept JINJA || export JINJA='{{ port }} {% raw %}'
kept EMPTY || export EMPTY=''
kept TRAILING || export TRAILING=base64==
kept ENTRYPOINT_RUN_DIR || export ENTRYPOINT_RUN_DIR=/tmp/entrypoint-1000-36666
entrypoint_rank=${OMPI_COMM_WORLD_RANK:-${PMIX_RANK:-0}}
entrypoint_run=/tmp/entrypoint-1000-36666
# Opened for both ways, a pipe that nobody reads any more can't block the rank.
printf 'start %s %s\n' "$entrypoint_rank" "$$" 1<>"$entrypoint_run/ranks"
unset ENTRYPOINT_KEEP
# The program gets the group's signals itself; this shell only waits, so that it can say how the program ended.
trap : TERM INT HUP USR1 USR2
cd '/data/run 1' && "$@"
entrypoint_status=$?
printf 'end %s %s\n' "$entrypoint_rank" "$entrypoint_status" 1<>"$entrypoint_run/ranks"
exit "$entrypoint_status"
