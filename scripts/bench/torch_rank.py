"""A process under torchrun that prints which one it is."""

import os

print("rank {RANK} of {WORLD_SIZE}".format(**os.environ), flush=True)
