"""The toolkit's own folder, if it is used as one: OpenSSH, a shell and libraries that work in any
image. scripts/image/folder makes it."""

from __future__ import annotations

import os
import sys

_ROOT = os.path.dirname(os.path.dirname(sys.executable))


def own(path: str) -> str | None:
    """Return the absolute path of a file in the folder; None if the folder has none, or the toolkit
    is installed in another way."""
    file = f"{_ROOT}/{path}"
    return file if os.path.exists(f"{_ROOT}/bin/launcher") and os.path.exists(file) else None
