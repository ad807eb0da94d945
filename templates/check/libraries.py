"""Prints what this Python has of the libraries that ranks use, a name and a value a line. Any
Python since 3.6 runs it.

Each line is printed as soon as it is known: a library that hangs takes only its own away.
"""

import contextlib
import os
import sys
import warnings


def tell(name, value):
    """Print one line, in one write."""
    text = " ".join(str(value).split())
    os.write(1, f"{name}\t{text}\n".encode("utf-8", "replace"))


def yes(value):
    """A word for a truth."""
    return "yes" if value else "no"


def attempt(name, ask):
    """Print what `ask` returns, if it returns anything; an old library may not know the
    question."""
    try:
        value = ask()
    except Exception:
        return
    if value not in (None, ""):
        tell(name, value)


def packages():
    """A digest of everything that pip or conda has installed, and versions that need no import."""
    import hashlib
    from importlib import metadata

    found = {}
    for each in metadata.distributions():
        found[(each.metadata["Name"] or "").lower().replace("_", "-")] = each.version
    whole = "\n".join(f"{name} {version}" for name, version in sorted(found.items()))
    tell("packages", hashlib.sha256(whole.encode()).hexdigest()[:12])
    known = {"torch npu": ["torch-npu"], "mindspore": ["mindspore"], "jax": ["jax"]}
    known["tensorflow"] = ["tensorflow", "tensorflow-cpu", "tensorflow-gpu"]
    for name, others in known.items():
        for other in others:
            if other in found:
                tell(name, found[other])
                break
    return found


def torch_flags():
    """Report the builds of torch, and whether it can use the cards of this machine."""
    import torch

    tell("torch", torch.__version__)
    tell("torch cuda", torch.version.cuda or "none")
    attempt("torch rocm", lambda: torch.version.hip)
    if torch.version.cuda:
        attempt("torch nccl", lambda: ".".join(map(str, torch.cuda.nccl.version())))
    attempt("torch backends", lambda: backends(torch))
    if torch.version.cuda:
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            there = torch.cuda.is_available()
        tell("torch cuda.is_available", yes(there))
        if said and not there:
            tell("torch why", said[-1].message)
        attempt("torch cuda.device_count", torch.cuda.device_count)


def backends(torch):
    """The backends of torch.distributed that this torch was built with."""
    dist = torch.distributed
    if not dist.is_available():
        return "none"
    known = [
        name
        for name in ("gloo", "mpi", "nccl")
        if getattr(dist, f"is_{name}_available", lambda: False)()
    ]
    return " ".join(known)


def horovod_flags():
    """Report the features that Horovod was built with."""
    import horovod

    tell("horovod", horovod.__version__)
    import horovod.torch as hvd

    for name in ("mpi", "gloo", "nccl"):
        attempt(f"horovod {name}", lambda name=name: yes(getattr(hvd, f"{name}_built")()))


def main():
    """All of it; a library that is not there is no line, one that cannot be imported is a
    problem."""
    tell("python", ".".join(map(str, sys.version_info[:3])))
    found = None
    with contextlib.suppress(Exception):  # before Python 3.8 there is no importlib.metadata
        found = packages()
    for name, ask in (("torch", torch_flags), ("horovod", horovod_flags)):
        try:
            ask()
        except ImportError as error:
            if getattr(error, "name", None) != name or (found and name in found):
                tell(f"{name} problem", error)
        except Exception as error:
            tell(f"{name} problem", f"{type(error).__name__}: {error}")


main()
