"""What nvidia-smi and npu-smi print -> fields of an Observation.

Sources: `nvidia-smi --help-query-gpu` and the XML of `nvidia-smi -q -x`, whose names differ between drivers, so that
each is optional; Huawei, "npu-smi Command Reference", `npu-smi info`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any
from xml.etree import ElementTree

from entrypoint.check.observed import Card

_BAD = ("Unknown Error", "ERR!", "GPU is lost", "GPU requires reset")
_ROW = re.compile(r"^\|\s*(\d+)\s+([^|\s][^|]*?)\s*\|\s*([A-Za-z]+)\s*\|")  # | 0  910B3 | OK | ...
_PROCESS = re.compile(r"^\|\s*(\d+)\s+(\d+)\s*\|\s*(\d+)\s*\|\s*(.*?)\s*\|\s*(\d+)\s*\|")
_PROCESSES = 16  # named for each card


def nvidia(text: str) -> dict[str, Any]:
    """The driver and the cards of `nvidia-smi -q -x`. Raises ValueError where it is something else."""
    try:
        log = ElementTree.fromstring(text.strip())
    except ElementTree.ParseError as error:
        raise ValueError(f"prints no XML: {error}") from None
    cards = []
    for number, card in enumerate(log.iter("gpu")):
        used = _number(card.findtext("fb_memory_usage/used"))
        # A screen's (G) are no harm.
        there = [each for each in card.iter("process_info") if each.findtext("type") != "G"]
        processes = [_process(each) for each in there[:_PROCESSES]]
        problem = "; ".join(dict.fromkeys(_problems(card)))
        cards.append(Card(number, (card.findtext("product_name") or "").strip(), problem, used, tuple(processes)))
    driver, cuda = (log.findtext(name) or "" for name in ("driver_version", "cuda_version"))
    return {"driver": driver, "driver_cuda": "" if cuda in ("N/A", "ERR!") else cuda, "cards": tuple(cards)}


def _process(found: ElementTree.Element) -> str:
    name = (found.findtext("process_name") or "").rpartition("/")[2]
    return f"pid {found.findtext('pid') or '?'} {name}".strip()


def _problems(card: ElementTree.Element) -> Iterator[str]:
    volatile = card.find("ecc_errors/volatile")
    counted = [
        each
        for each in (() if volatile is None else volatile.iter())
        if each.tag.startswith(("dram_uncorrectable", "sram_uncorrectable")) and (_number(each.text) or 0) > 0
    ]
    double = _number(card.findtext("ecc_errors/volatile/double_bit/total")) or 0
    if counted or double:
        number = sum(_number(each.text) or 0 for each in counted) or double
        yield f"{number} uncorrectable memory errors since the driver was loaded"
    if card.findtext("remapped_rows/remapped_row_failure") == "Yes":
        yield "a row of its memory could not be remapped"
    if card.findtext("remapped_rows/remapped_row_pending") == "Yes":
        yield "a row of its memory is to be remapped at the next reset"
    if "Yes" in (card.findtext(f"retired_pages/pending_{name}") for name in ("retirement", "blacklist")):
        yield "a page of its memory is to be retired at the next reset"
    action = card.findtext("gpu_recovery_action") or "None"
    if action not in ("None", "N/A"):
        yield f"the driver asks for: {action}"
    for each in card.iter():
        if each.tag.endswith("_hw_thermal_slowdown") and each.text == "Active":
            yield "slowed down by its temperature"
        if each.text and (bad := next((words for words in _BAD if words in each.text), "")):
            yield f"{each.tag}: {bad}"


def npu(text: str) -> dict[str, Any]:
    """The cards of `npu-smi info`. Raises ValueError where it is something else."""
    if "npu-smi" not in text:
        raise ValueError("prints no table of npu-smi")
    found_at: dict[int, tuple[str, str]] = {}  # card -> its name, and what is wrong with it
    busy: dict[int, list[str]] = {}
    for line in text.splitlines():
        if found := _PROCESS.match(line):
            busy.setdefault(int(found[1]), []).append(f"pid {found[3]} {found[4]}".strip())
        elif found := _ROW.match(line):
            found_at[int(found[1])] = found[2], "" if found[3] == "OK" else f"npu-smi says {found[3]}"
    # How much memory is in use tells nothing: the driver takes gigabytes of it.
    cards = [Card(at, *each, None, tuple(busy.get(at, ())[:_PROCESSES])) for at, each in sorted(found_at.items())]
    version = re.search(r"Version:\s*([\w.]+)", text)
    return {"cards": tuple(cards)} | ({"driver": version[1]} if version else {})


def _number(text: str | None) -> int | None:
    """Of `12 MiB`, or of 12."""
    word = (text or "").split(" ")[0]
    return int(word) if word.isdigit() else None
