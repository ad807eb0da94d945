"""Tests, and what they share."""

from pathlib import Path

TREE = Path(__file__).resolve().parents[1]
