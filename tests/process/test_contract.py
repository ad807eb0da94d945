"""What users rely on is there as before the redesign: nothing is lost but what was removed by
name."""

from __future__ import annotations

import functools

import pytest
import yaml

from tests.contract import LIST, contract

REMOVED = {
    "fields": {"kubernetes.patch", "metrics.file", "netcheck.port"},
    "variables": {
        "ENTRYPOINT_KUBERNETES_PATCH",
        "ENTRYPOINT_METRICS_FILE",
        "ENTRYPOINT_NETCHECK_PORT",
        "ENTRYPOINT_TIMEOUTS_LEASE",
    },
    "flags": {"deploy --patch", "report --otel"},
    "messages": {"EP014 71", "EP040 78", "EP041 69", "EP114 warning", "EP810 65", "EP811 65"},
}
for plan in ("mpirun", "torchrun", "one program"):
    REMOVED.setdefault("json", set()).update(
        f"plan of {plan}.settings.netcheck.port.{key}" for key in ("origin", "value")
    )
BEFORE: dict[str, list[str]] = yaml.safe_load(LIST.read_text())


@functools.cache
def now() -> dict[str, list[str]]:
    return contract()


@pytest.mark.promise(
    "users lose no command, field, variable, message, status, JSON key or adapter unless by name"
)
@pytest.mark.parametrize("part", BEFORE)
def test_nothing_is_lost(part: str) -> None:
    assert set(BEFORE[part]) - set(now()[part]) == REMOVED.get(part, set())


@pytest.mark.control(
    "users lose no command, field, variable, message, status, JSON key or adapter unless by name"
)
@pytest.mark.parametrize("part", BEFORE)
def test_a_loss_is_noticed(part: str) -> None:
    lost = sorted(set(now()[part]) & set(BEFORE[part]))[0]
    assert lost in set(BEFORE[part]) - (set(now()[part]) - {lost})
    assert len(BEFORE[part]) > 5, "the list itself holds something"
