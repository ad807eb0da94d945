"""Prints the version of torch; without torch it exits with 78. Carried by torchrun.sh and
torchlaunch.sh, at each start on each node: torch takes a second to import, importlib.metadata
30 ms."""

from importlib.util import find_spec

try:
    spec = find_spec("torch")
    with open(spec.submodule_search_locations[0] + "/version.py") as file:
        rest = file.read().partition("__version__ = '")[2]
    print(rest[: rest.index("'")])
except Exception:
    if spec is None:
        raise SystemExit(78) from None
    import torch

    print(torch.__version__)
