"""Devices: each folder tests/devices/<name>/<case> holds a container's facts and the Device that
they are.

expect.yaml: `chosen` (what is recognised; the folder's device where not given), and either the
fields of the Device, all of them but those that have their default, or `error` with its exact text
and `status`.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from entrypoint.base import registry
from entrypoint.base.errors import ConfigError
from entrypoint.base.model import Device
from tests.unit.cases import chosen, collect, read_expected, read_facts


@pytest.mark.parametrize(("name", "folder"), collect("devices"))
def test_case(name: str, folder: Path) -> None:
    facts, expected = read_facts(folder), read_expected(folder)
    assert chosen("devices", facts, "cpu") == expected.pop("chosen", name)
    device = registry.load("devices", name)
    if "error" in expected:
        with pytest.raises(ConfigError) as caught:
            device.device(facts)
        assert {"error": str(caught.value), "status": caught.value.status} == expected
    else:
        cards = tuple(expected.pop("cards", ()))
        assert device.device(facts) == Device(kind=name, cards=cards, **expected)
