# HPC-X's variables, those of the folders that are here.
hpcx_load() {
  export OPAL_PREFIX=/opt/hpcx/ompi
  export PATH=/opt/hpcx/ompi/bin:$PATH
  export LD_LIBRARY_PATH=/opt/hpcx/ucx/lib:/opt/hpcx/ucc/lib:/opt/hpcx/ompi/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
}
