"""Bytes of ranks and our own log on their way to people: lines, files, the live line."""
