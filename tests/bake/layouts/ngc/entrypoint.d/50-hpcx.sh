export OPAL_PREFIX=/opt/hpcx/ompi
export LD_LIBRARY_PATH=/opt/hpcx/ucx/lib:/opt/hpcx/ompi/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export NVIDIA_NOTE="two words, $(id -u)"
