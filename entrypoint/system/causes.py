"""A site's own signatures of failures: the tables of a folder in the image, or of a mount."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

from entrypoint.base.text import Log, size
from entrypoint.causes import table
from entrypoint.system.descriptors import read_regular
from entrypoint.system.files import trusted_entries, untrusted

FOLDER = Path("/etc/entrypoint/causes.d")
MOST = 1 << 20  # bytes of a table


@cache
def add_site(log: Log) -> None:
    """Add the tables of the site, once in this process and before its first judgement. What cannot
    be used costs a warning, and no job."""
    try:
        files = trusted_entries(FOLDER)
    except FileNotFoundError:
        return
    except OSError as error:
        _warn(log, FOLDER, error)
        return
    for file in files:
        if file.suffix == ".tsv":
            try:
                if why := untrusted(file):
                    raise OSError(0, why)
                # a ConfigMap's files are links
                data = read_regular(os.path.realpath(file), MOST + 1)
                if len(data) > MOST:
                    raise OSError(0, f"more than {size(MOST)}")
                table.add_site(data.decode(), file.name)
            except (OSError, ValueError) as error:
                _warn(log, file, error)


def _warn(log: Log, path: Path, error: Exception) -> None:
    why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    log(
        f"warning: EP903 {path} is not used | {why} | correct it; only root and this user may be"
        " able to change it"
    )
