"""The program between "container started" and "every rank is training"."""

__version__ = "0.0.0.dev0"  # of a checkout; scripts/version.py gives what is built its own
