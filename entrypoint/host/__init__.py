"""This machine: what it has, its files, keys, sshd and signals, and our messages."""
