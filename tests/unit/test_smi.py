"""What nvidia-smi and npu-smi print, in the form of outputs that users published -> cards, and what
is wrong."""

from __future__ import annotations

import time
from types import SimpleNamespace as Values
from typing import Any

import pytest

from entrypoint.ranks import evidence
from entrypoint.ranks.evidence import NodeProbe
from entrypoint.ranks.limits import NodeLimits
from entrypoint.system import smi
from entrypoint.system.smi import Card
from tests import table

TOOLS = table("tests/tables/cards.yaml")
CARD = "<gpu id='00000000:B3:00.0'><product_name>X</product_name>{}</gpu>"


def expected(rows: list[list[Any]]) -> tuple[Card, ...]:
    return tuple(Card(*row[:4], *map(tuple, row[4:])) for row in rows)


@pytest.mark.parametrize(
    ("tool", "name"), [(tool, name) for tool in ("nvidia-smi", "npu-smi") for name in TOOLS[tool]]
)
def test_what_the_tools_print(tool: str, name: str) -> None:
    case = TOOLS[tool][name]
    seen = (smi.nvidia if tool == "nvidia-smi" else smi.npu)(case["text"])
    assert (seen["driver"], seen["cards"]) == (case["driver"], expected(case["cards"]))
    assert seen.get("driver_cuda") == case.get("driver_cuda")


def test_what_is_no_answer() -> None:
    with pytest.raises(ValueError, match="prints no XML"):
        smi.nvidia("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.")
    with pytest.raises(ValueError, match="no table"):
        smi.npu("dcmi module initialize failed")


@pytest.mark.parametrize(("fields", "problem"), TOOLS["fields"])
def test_what_other_drivers_print(fields: str, problem: str) -> None:
    seen = smi.nvidia(
        f"<nvidia_smi_log><driver_version>1</driver_version>{CARD.format(fields)}</nvidia_smi_log>"
    )
    assert seen["cards"] == (Card(0, "X", problem, None, ()),)


@pytest.mark.parametrize("where", ["after", "before"])
def test_a_warning_beside_the_xml(where: str) -> None:
    whole = (
        f"<nvidia_smi_log>{CARD.format('')}{CARD.format('').replace('B3', '18')}</nvidia_smi_log>"
    )
    words = "WARNING: infoROM is corrupted at gpu 0000:B3:00.0"
    seen = smi.nvidia(
        f"{whole}\n{words}\n" if where == "after" else f"{words}\n<?xml version='1.0' ?>\n{whole}\n"
    )
    assert [each.problem for each in seen["cards"]] == ["its infoROM is corrupted", ""]


@pytest.mark.parametrize(
    ("number", "seconds_ago", "counts"),
    [
        (43, -1, True),  # a kernel of this program failed
        (43, 20, False),  # of another program, or of the attempt before
        (31, 20, False),
        (79, 20, True),  # the GPU itself is lost, and stays so
        (79, 90, False),
    ],
)
def test_xids_from_before_the_start(
    number: int, seconds_ago: float, counts: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seen on an H200: after a program's Xid 43, the next program's own exception was blamed on
    that Xid."""
    probe = NodeProbe(Values(), Values(), NodeLimits("/tmp"))  # type: ignore[arg-type]
    logged = int((time.monotonic() - seconds_ago) * 1e6)
    record = f"4,1,{logged},-;NVRM: Xid (PCI:0000:2a:00): {number}, pid=77, name=python3\n"
    monkeypatch.setattr(evidence, "_records", lambda: [record.encode()])
    assert [fault.number for fault in probe._logged({})] == [number] * counts
