"""Tests, and what they share."""

from pathlib import Path
from typing import Any

import yaml

TREE = Path(__file__).resolve().parents[1]


def table(path: str) -> Any:
    """Return the content of a YAML file of this tree, such as the cases of a test."""
    return yaml.safe_load((TREE / path).read_text("utf-8"))
