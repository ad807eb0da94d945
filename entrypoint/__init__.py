"""The program between "container started" and "every rank is training"."""

__version__ = "0.1.0"
