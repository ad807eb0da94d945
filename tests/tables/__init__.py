"""Tables of cases, each in a YAML file of this folder."""

from pathlib import Path
from typing import Any

import yaml


def table_of(name: str) -> Any:
    """The content of the file of this name."""
    return yaml.safe_load(Path(__file__).with_name(f"{name}.yaml").read_text("utf-8"))
