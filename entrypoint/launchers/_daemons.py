"""The names of MPI's daemons, which start ranks on a node. The keeper imports this: keep
it fast."""

OPENMPI = ("orted", "prted")  # mpirun's, on every other node; the latter since Open MPI 5
# of MPICH and Intel MPI, in the 15 characters that the kernel keeps
HYDRA = (
    "hydra_pmi_proxy",
    "hydra_bstrap_pr",
)
DAEMONS = (*OPENMPI, *HYDRA)
TELLS_CONTINUED = "mpirun"  # Open MPI 4's, not 5's, prints that it was suspended
