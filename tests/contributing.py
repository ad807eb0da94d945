"""CONTRIBUTING.md, done as it stands there in a copy of this tree."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

from tests.cluster import clean_environment

TREE = Path(__file__).resolve().parents[1]
STEP = re.compile(r"^\d+\. `(\S+)`.*?\n\n   ```\w+\n(.*?)\n   ```$", re.M | re.S)


def section(heading: str) -> str:
    """The text under a heading, such as `Add a platform`."""
    text = (TREE / "CONTRIBUTING.md").read_text()
    return text[text.index(f"## {heading}\n") :].split("\n## ")[0]


def steps(heading: str) -> dict[str, str]:
    """The files that a section has one write: path -> text."""
    return {path: re.sub(r"^   ", "", text, flags=re.M) + "\n" for path, text in STEP.findall(section(heading))}


class Copy:
    """A copy of this tree, and its Python."""

    def __init__(self, folder: Path) -> None:
        self.tree = folder / "tree"
        self.env = {**clean_environment(), "PYTHONPATH": str(self.tree), "PYTHONDONTWRITEBYTECODE": "1"}
        for name in ("entrypoint", "templates", "tests", "docs", "examples"):
            shutil.copytree(TREE / name, self.tree / name, ignore=shutil.ignore_patterns("__pycache__"))
        for name in ("pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", "CONTRIBUTING.md"):
            shutil.copy(TREE / name, self.tree)

    def write(self, files: dict[str, str]) -> None:
        """Write files by their path in the tree."""
        for path, text in files.items():
            (self.tree / path).parent.mkdir(parents=True, exist_ok=True)
            (self.tree / path).write_text(text)

    def python(self, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
        """Run the copy's code, and hear what it says."""
        return subprocess.run(
            [sys.executable, *words], cwd=self.tree, env=self.env | env, capture_output=True, text=True, check=False
        )

    def pytest(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run tests of the copy."""
        return self.python("-m", "pytest", "-v", "-p", "no:cacheprovider", *words)

    def golden(self) -> None:
        """As `make golden`."""
        made = [
            self.python("-m", name) for name in ("tests.golden", "tests.golden_deploy", "entrypoint.spec.reference")
        ]
        assert [done.stderr for done in made if done.returncode] == []
        self.write({"docs/reference/spec.md": made[-1].stdout})
