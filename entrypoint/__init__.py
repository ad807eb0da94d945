"""The program between "container started" and "every rank is training".

Public are the names in `__all__`, and nothing else: docs/reference/python.md. They are imported
when they are asked for, since each start imports this.
"""

TYPE_CHECKING = False  # as in `typing`, whose import would take a start longer than this file
if TYPE_CHECKING:
    from entrypoint.cli.api import EntrypointError, JobSpec, explain, load_spec, plan

__all__ = ["EntrypointError", "JobSpec", "explain", "load_spec", "plan"]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from entrypoint.cli import api

    return getattr(api, name)


__version__ = "0.0.0.dev0"  # of a checkout; scripts/version.py gives what is built its own
