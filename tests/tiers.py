"""Which tests `make test` runs, where their folder and their markers do not say it: tiers.yaml."""

from __future__ import annotations

from pathlib import Path

import yaml


def _names(part: str) -> tuple[str, ...]:
    """Return the beginnings of the names of a part's tests."""
    file = Path(__file__).with_suffix(".yaml")
    modules = yaml.safe_load(file.read_text(encoding="utf-8")).get(part, {})
    return tuple(f"tests/{module}::{test}" for module in modules for test in modules[module])


EVERY_CHANGE, THOROUGH, RELEASE = map(_names, ("every_change", "thorough", "release"))
