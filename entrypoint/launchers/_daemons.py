"""The names of MPI's daemons, which start ranks on a node. The rank supervisor imports this: keep it fast."""

OPENMPI = ("orted", "prted")  # what mpirun starts on every other node; since Open MPI 5 it is the latter
HYDRA = ("hydra_pmi_proxy", "hydra_bstrap_pr")  # of MPICH and of Intel MPI, in the 15 characters that the kernel keeps
DAEMONS = (*OPENMPI, *HYDRA)
