from __future__ import annotations

import pytest

from tests.containers import missing

IMAGES = ("entrypoint-gpu:dev", "entrypoint-ascend:dev")


@pytest.fixture(params=IMAGES)
def image(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    reason = missing(name)
    if reason:
        pytest.skip(reason)
    return name


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "tests/image" in item.nodeid:
            item.add_marker(pytest.mark.containers)
