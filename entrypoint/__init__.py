"""The program between "container started" and "every rank is training".

Public are the names in `__all__`, and nothing else: docs/reference/python.md. Their types are in
__init__.pyi; they are imported when they are asked for, since each start imports this.
"""

__all__ = ["EntrypointError", "JobSpec", "explain", "load_spec", "plan"]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module("entrypoint.cli.api"), name)


__version__ = "0.0.0.dev0"  # of a checkout; scripts/version.py gives what is built its own
