"""Prints the version of torch; without torch it exits with 78. Carried by torchrun.sh and
torchlaunch.sh, at each start on each node: torch takes a second to import, importlib.metadata
30 ms."""

from importlib.util import find_spec
from os.path import dirname

spec = find_spec("torch")
if spec is None:
    raise SystemExit(78)
try:
    with open(dirname(spec.origin or "") + "/version.py") as file:
        rest = file.read().partition("__version__ = '")[2]
    print(rest[: rest.index("'")])
except Exception:
    import torch

    print(torch.__version__)
