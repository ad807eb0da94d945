#!/bin/bash
# Written from the description of NVIDIA's: each file of entrypoint.d in order, then the arguments.
for file in /opt/nvidia/entrypoint.d/*; do
  case $file in
    *.txt) cat "$file" ;;
    *.sh) . "$file" ;;
  esac
done
if [ $# -eq 0 ]; then exec /bin/bash; fi
exec "$@"
