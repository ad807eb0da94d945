"""This machine: facts, `/proc`, private files, processes, signals, keys, sshd."""
