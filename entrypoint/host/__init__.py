"""This machine: what it has, its files, keys, sshd, signals, and what we say."""
