"""What the image holds: its own start, and its MPI."""
