from __future__ import annotations

import pytest

from tests.containers import missing


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    reason = missing()
    for item in items:
        if "tests/compose" in item.nodeid:
            item.add_marker(pytest.mark.containers)
            if reason:
                item.add_marker(pytest.mark.skip(reason=reason))
