"""Prints the version of torch; torchrun.sh and torchlaunch.sh carry this text."""

try:
    from importlib.metadata import version

    print(version("torch"))
except Exception:
    import torch

    print(torch.__version__)
