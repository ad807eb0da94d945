"""Open MPI's names of things. The rank supervisor imports this: keep it fast."""

DAEMONS = ("orted", "prted")  # what mpirun starts on every other node; since Open MPI 5 it is the latter
