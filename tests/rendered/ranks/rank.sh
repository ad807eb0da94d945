# Rendered by entrypoint VERSION for node modelarts-job-8f-worker-0.modelarts-job-8f. Run by `sh`, or sourced by `sh -c`, once for each rank that a launcher starts here.
# This shell stands for the rank: the node's keeper starts the rank with this shell's words, variables and streams, and gives this shell its status.
keeper=/tmp/entrypoint-1000-36666/keeper
if ! [ -p "$keeper" ]; then
  echo "rank.sh: EP434 no keeper takes ranks here | $keeper is no pipe | the job's launcher alone starts ranks" >&2
  exit 71
fi
socket=''
socket=${socket:+${PMI_FD:-}}
if [ -n "$socket" ] && ! python3 -I -S /PACKAGE/ranks/pass_fd.py "$keeper.fds" "$socket"; then exit 71; fi
# The keeper takes the streams from 3 to 5: a redirected command of this shell has others at 0 to 2.
exec 3<&0 4>&1 5>&2 8<>"$keeper.wait" 9<>"$keeper"
exec 7<"$keeper.wait" 8<&-
# Any process of this user can write a status there: the keeper repeats this word, which no other one has heard.
read -r word </proc/sys/kernel/random/uuid
# shellcheck disable=SC2317
end() {
  if [ -f "$keeper.end.$$" ]; then
    while read -r theirs status; do
      if [ "$theirs" = "${word:-none}" ]; then exit "$status"; fi
    done <"$keeper.end.$$"
  fi
}
told=''
trap 'told=yes; end' URG
for signal in TERM INT HUP QUIT USR1 USR2; do
  # shellcheck disable=SC2064
  trap "told=yes; printf '\n$signal %s\n' $$ >&9" "$signal"
done
printf '\nstart %s %s\n' "$$" "${word:-none}" >&9
# Nothing comes from that pipe; without a signal, its end is the keeper's.
while read -r _ <&7 || [ -n "$told" ]; do told=''; done
exit 137
