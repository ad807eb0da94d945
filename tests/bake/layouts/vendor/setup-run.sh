#!/bin/sh
# setup-run.sh [--quiet] COMMAND...
[ "$1" != --quiet ] || shift
export VENDOR_HOME=/opt/vendor VENDOR_ARCH="$(uname -m)"
export PATH=/opt/vendor/bin:$PATH
unset VENDOR_LICENSE_KEY
cd /home/engineer || exit 1
HOME=/home/engineer exec setpriv --reuid engineer --regid engineer --init-groups "$@"
