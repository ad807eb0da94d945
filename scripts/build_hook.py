"""build_hook.py - what hatchling does to make a wheel: the wheel's `__version__` is that of
scripts/version.py. An editable install is left alone, since it is the checkout."""

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class Version(BuildHookInterface[Any]):
    """Put a package's first file with the version in the place of the checkout's."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Called before a wheel is built; `version` is the kind of wheel."""
        if version != "standard":
            return
        own = Path(self.root, "entrypoint/__init__.py")
        made = Path(self.root, "build/version.py")
        made.parent.mkdir(exist_ok=True)
        text, _ = own.read_text().split("__version__")
        made.write_text(f'{text}__version__ = "{self.metadata.version}"\n')
        build_data["force_include"][str(made)] = "entrypoint/__init__.py"
