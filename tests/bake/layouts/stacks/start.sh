#!/bin/bash
# Written from the description of docker-stacks' start.sh.
set -e
echo "Entered start.sh with args:" "$@"
if [ $# -eq 0 ]; then cmd=(bash); else cmd=("$@"); fi
. /usr/local/bin/run-hooks.sh /usr/local/bin/start-notebook.d
if [ "$(id -u)" != 0 ]; then
  . /usr/local/bin/run-hooks.sh /usr/local/bin/before-notebook.d
  exec "${cmd[@]}"
fi
if [ "$NB_USER" != jovyan ]; then usermod --home "/home/$NB_USER" --move-home --login "$NB_USER" jovyan; fi
if [ "$NB_UID" != "$(id -u "$NB_USER")" ]; then
  usermod --uid "$NB_UID" "$NB_USER"
  chown -R "$NB_UID" "/home/$NB_USER"
fi
cd "/home/$NB_USER"
export XDG_CACHE_HOME=/home/$NB_USER/.cache
. /usr/local/bin/run-hooks.sh /usr/local/bin/before-notebook.d
exec sudo --preserve-env --set-home --user "$NB_USER" \
  LD_LIBRARY_PATH="$LD_LIBRARY_PATH" PATH="$PATH" PYTHONPATH="${PYTHONPATH:-}" "${cmd[@]}"
