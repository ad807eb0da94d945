"""build_hook.py - what hatchling does to make a wheel: the wheel's `__version__` is that of
scripts/version.py, and README.md its description. An editable install's package is left alone,
since it is the checkout.

REPOSITORY is the address of the repository, such as https://git.example.org/team/entrypoint: the
files do not know where they are published. It becomes the package's URLs, and the start of its
description's links.
"""

import os
import re
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface

LINK = re.compile(r"(!?)\[[^]]*\]\((?!https?:|#)")
SENTENCE = re.compile(r"(?m)^(\w[^|\n]*?\.)(?:\s|$)")


class Description(MetadataHookInterface):
    """Take summary, description and URLs of the package from README.md and REPOSITORY."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Called before anything is built, and not if a source archive's PKG-INFO has all."""
        home = os.environ.get("REPOSITORY", "").removesuffix("/")
        version = metadata["version"]
        ref = "HEAD" if "dev" in version else f"v{version}"
        text = Path(self.root, "README.md").read_text()
        (metadata["description"],) = SENTENCE.findall(text)[:1]
        pages, files = f"{home}/blob/{ref}/", f"{home}/raw/{ref}/"
        urls = {
            "Homepage": home,
            "Source": home,
            "Documentation": f"{pages}docs/README.md",
            "Issues": f"{home}/issues",
            "Changelog": f"{pages}CHANGELOG.md",
        }
        metadata["urls"] = urls if home else {}
        if home:
            text = LINK.sub(lambda link: f"{link[0]}{files if link[1] else pages}", text)
        metadata["readme"] = {"content-type": "text/markdown", "text": text}


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
