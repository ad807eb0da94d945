"""Prints the version of torch; without torch it exits with 78. Carried by torchrun.sh and
torchlaunch.sh."""

try:
    from importlib.metadata import version

    print(version("torch"))
except Exception:
    from importlib.util import find_spec

    if find_spec("torch") is None:
        raise SystemExit(78) from None
    import torch

    print(torch.__version__)
