"""`python -m entrypoint` is `entrypoint`."""

from entrypoint.cli import script

script()
