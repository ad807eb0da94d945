"""Effects, and nothing but effects: files, processes, sockets, clocks and signals live here alone."""
