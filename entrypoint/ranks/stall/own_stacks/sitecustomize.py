"""Has each Python of a rank print its stack into a file of its own memory on a real-time signal.

This needs no right to trace processes. The folder is put before a rank's PYTHONPATH
(`stall.minutes`), so every version of Python may import this; a sitecustomize of the image still
runs. The entrypoint opens the file by /proc (ranks/stall/reader.py).
"""


def _register():  # type: ignore[no-untyped-def]
    import faulthandler
    import os

    files = []

    def enable():  # type: ignore[no-untyped-def]
        files.append(os.memfd_create("entrypoint-stacks", os.MFD_CLOEXEC))
        faulthandler.register(46, file=files[-1], all_threads=True)
        for old in files[:-1]:
            os.close(old)
        del files[:-1]

    enable()  # type: ignore[no-untyped-call]
    os.register_at_fork(after_in_child=enable)


def _run_next():  # type: ignore[no-untyped-def]
    """Run the sitecustomize that this one hides, and leave no trace in sys.path."""
    import os
    import sys
    from importlib.machinery import PathFinder
    from importlib.util import module_from_spec

    folder = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [path for path in sys.path if os.path.abspath(path) != folder]
    spec = PathFinder.find_spec("sitecustomize", sys.path)
    if spec is not None and spec.loader is not None:
        module = module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


try:  # noqa: SIM105  contextlib is slow to import
    _register()  # type: ignore[no-untyped-call]
except Exception:  # an older Python, or no more files: there are no stacks, and the rank goes on
    pass
_run_next()  # type: ignore[no-untyped-call]
