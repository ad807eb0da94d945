"""The contents of the image that matter here: its own start, and its MPI."""
