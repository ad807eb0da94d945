"""The driver's own tools, nvidia-smi and npu-smi: asks them, reads the cards from what they print,
and judges their faults. Nothing else calls them.

Sources: `nvidia-smi --help-query-gpu` and the XML of `nvidia-smi -q -x`, whose names differ between
drivers, so that each is optional; NVIDIA, "Fabric Manager User Guide" (state of the fabric);
Huawei, "npu-smi Command Reference", `npu-smi info`. Compared with what users and other tools
publish of drivers 390 to 580 and npu-smi 23 to 26.
"""

# Without `from __future__ import annotations`: wire.py reads those of Card as values.
import asyncio
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Annotated, Any, NamedTuple
from xml.etree import ElementTree

from entrypoint.base.tables import table
from entrypoint.base.values import frozen
from entrypoint.base.wire import Length, Range
from entrypoint.causes.evidence import DeviceFault
from entrypoint.system.limited import run
from entrypoint.system.process import tied, which
from entrypoint.system.threads import in_thread

_Integer = Annotated[int, Range(-(1 << 62), 1 << 62)]
_String = Annotated[str, Length(500)]

_BAD = ("Unknown Error", "ERR!", "GPU is lost", "GPU requires reset")
MILD = ("npu-smi says Warning", "its infoROM is corrupted")
"""Problems of a card on which a job runs all the same."""
SLOWED = "slowed down by"
"""The first words of the problem of a card that is only slow for now."""
_CORRUPTED = re.compile(r"infoROM is corrupted at gpu ([\da-f:.]+)", re.I)
_LOG, _LOG_END = "<nvidia_smi_log", "</nvidia_smi_log>"
_PROCESSES = 16  # named for each card
# Fields that say Yes, and what that means.
_SAID_YES = table("""
    remapped_rows/remapped_row_failure     | a row of its memory could not be remapped
    remapped_rows/remapped_row_pending     | a row of its memory is to be remapped at the next reset
    retired_pages/pending_retirement       | a page of its memory is to be retired at the next reset
    retired_pages/pending_blacklist        | a page of its memory is to be retired at the next reset
    ecc_errors/aggregate/sram_threshold_exceeded | \
        more errors of its on-chip memory than are allowed in its life
    ecc_errors/unrepairable_memory         | memory that cannot be repaired
    ecc_errors/channel_repair_pending | \
        a channel of its memory is to be repaired at the next reset
    ecc_errors/tpc_repair_pending          | a part of it is to be repaired at the next reset
    gpu_reset_status/reset_required        | the driver asks for: Reset
    gpu_reset_status/drain_and_reset_recommended | the driver asks for: Drain and Reset
""")
_SLOWED = table("""
    _hw_thermal_slowdown     | its temperature
    _hw_power_brake_slowdown | its power supply
""")


@frozen
class Card:
    """An accelerator, as the driver's own tool shows it."""

    index: _Integer | None = None
    name: _String = ""
    problem: _String = ""  # what the tool says of its health, where it is not well
    used: _Integer | None = None  # MiB of its memory
    processes: Annotated[tuple[_String, ...], Length(64)] = ()  # that use it already

    def called(self, noun: str) -> str:
        """Return what people call it: `GPU 1`, or `GPU` if it has no number."""
        return noun if self.index is None else f"{noun} {self.index:g}"


def nvidia(text: str) -> dict[str, Any]:
    """The driver and the cards of `nvidia-smi -q -x`. Raises ValueError where it is something
    else."""
    begin, end = text.find(_LOG), text.rfind(_LOG_END)  # warnings stand before and after it
    whole = text[begin : end + len(_LOG_END)] if 0 <= begin < end else text.strip()
    try:
        log = ElementTree.fromstring(whole)
    except ElementTree.ParseError as error:
        raise ValueError(f"prints no XML: {error}") from None
    corrupted = tuple(id.lower() for id in _CORRUPTED.findall(text))
    cards = []
    for number, card in enumerate(log.iter("gpu")):
        # A screen's (G) are no harm.
        processes = [
            f"pid {entry.findtext('pid') or '?'}"
            f" {entry.findtext('process_name', '').rpartition('/')[2]}"
            for entry in card.iter("process_info")
            if entry.findtext("type") != "G"
        ]
        is_corrupted = card.get("id", "").lower().endswith(corrupted)
        problems = ["its infoROM is corrupted"] if is_corrupted else []
        cards.append(
            Card(
                number,
                (card.findtext("product_name") or "").strip(),
                "; ".join(dict.fromkeys((*problems, *_problems(card)))),
                _number(card.findtext("fb_memory_usage/used")),
                tuple(map(str.strip, processes[:_PROCESSES])),
            )
        )
    cuda = log.findtext("cuda_version", "")
    return {
        "driver": log.findtext("driver_version", ""),
        "driver_cuda": "" if cuda in ("N/A", "ERR!") else cuda,
        "cards": tuple(cards),
    }


def _problems(card: ElementTree.Element) -> Iterator[str]:
    counted = [
        _number(element.text) or 0
        for element in card.iterfind("ecc_errors/volatile//*")
        if element.tag.startswith(("dram_uncorrectable", "sram_uncorrectable"))
    ]
    if errors := sum(counted) or _number(card.findtext("ecc_errors/volatile/double_bit/total")):
        yield f"{errors} uncorrectable memory errors since the driver was loaded"
    for name, problem in _SAID_YES.items():
        if card.findtext(name) == "Yes":
            yield problem
    action = card.findtext("gpu_recovery_action") or "None"
    if action not in ("None", "N/A"):
        yield f"the driver asks for: {action}"
    state, status = (card.findtext(f"fabric/{name}") or "N/A" for name in ("state", "status"))
    if state == "In Progress" or (state == "Completed" and status not in ("Success", "N/A")):
        yield (
            f"not part of its NVSwitch fabric: {state}, {status} (see the machine's Fabric Manager)"
        )
    for element in card.iter():
        text = element.text or ""
        for name, by in _SLOWED.items() if text == "Active" else ():
            if element.tag.endswith(name):
                yield f"{SLOWED} {by}"
        if bad := next((problem for problem in _BAD if problem in text), ""):
            yield f"{element.tag}: {bad}"


def npu(text: str) -> dict[str, Any]:
    """The cards of `npu-smi info`. Raises ValueError where it is something else.

    A card has two rows: its NPU with name and health, then its chip, with its number among all
    chips where an NPU may have two (910C, 310P). Ascend 950 has one number for both, in a column of
    its own.
    """
    if "npu-smi" not in text:
        raise ValueError("prints no table of npu-smi")
    # number among all chips (N of /dev/davinciN), NPU and chip of it, name, health
    chips: list[tuple[int, tuple[str, str], str, str]] = []
    busy: dict[tuple[str, str], list[str]] = {}  # NPU and chip -> processes
    first: list[str] | None = None  # a card's first row, until its second one
    joined = True  # whether number and name are one column
    processes = False  # whether these rows are processes
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if cells[0].startswith("NPU"):
            joined, processes, first = cells[0] != "NPU ID", "Process id" in cells, None
        elif len(cells) < 3:
            first = None
        elif processes:
            of, _, chip = cells[0].partition(" ")
            busy.setdefault((of, chip.strip() or "0"), []).append(
                f"pid {cells[1]} {cells[2]}".strip()
            )
        elif first is None:
            row = [*cells[0].split(None, 1), *cells[1:]] if joined else cells
            first = row if row[0].isdigit() and len(row) > 2 else None
        else:
            chip, *number = [word for word in cells[0].split() if word.isdigit()] or ["0"]
            chips.append((int((number or first)[0]), (first[0], chip), first[1], first[2]))
            first = None
    version = re.search(r"Version:\s*([\w.]+)", text)
    # How much memory is in use tells nothing: the driver takes gigabytes of it.
    cards = tuple(
        Card(
            number,
            name,
            "" if health in ("OK", "NA") else f"npu-smi says {health}",
            processes=tuple(busy.get(place, ())[:_PROCESSES]),
        )
        for number, place, name, health in sorted(chips)
    )
    return {"cards": cards} | ({"driver": version[1]} if version else {})


def _number(text: str | None) -> int | None:
    """Of `12 MiB`, or of 12."""
    word = (text or "").split(" ")[0]
    return int(word) if word.isdigit() else None


# --------------------------------------------------------------------------------------------------
# The tools


# Name -> options, what reads its answer, and what people call its cards.
_TOOLS = {"nvidia-smi": (("-q", "-x"), nvidia, "GPU"), "npu-smi": (("info",), npu, "NPU")}
# Where they usually are.
_PATH = "/usr/local/nvidia/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin"


class Reading(NamedTuple):
    """A tool's report about the cards of this node."""

    tool: str
    noun: str  # what people call its cards
    output: str
    problem: str  # why it cannot be read; "" if it was
    fields: Mapping[str, Any]  # of an Observation
    cards: Sequence[Card] = ()


async def readings(env: Mapping[str, str], seconds: float) -> list[Reading]:
    """Ask the tools that are there, all at once, each for at most so many seconds."""
    path = f"{env.get('PATH', '')}:{_PATH}"

    async def ask(name: str) -> Reading | None:
        options, parse, noun = _TOOLS[name]
        place = await in_thread(partial(which, name, path))
        if place is None:
            return None
        answer = await run(tied((place, *options)), {**env, "LC_ALL": "C"}, seconds)
        fields, problem = {}, ""
        try:
            # nvidia-smi ends with 14 where one card is not well
            fields = await in_thread(partial(parse, answer.output))
        except ValueError as error:
            problem = answer.problem or str(error)
        return Reading(name, noun, answer.output, problem, fields, fields.get("cards", ()))

    asked = await asyncio.gather(*map(ask, _TOOLS))
    return [*filter(None, asked)]


_XID = re.compile(r"Xid \(PCI:([\da-fA-F:.]{1,20})\): (\d{1,4})(?:, ([^\n]{0,200}))?")
_ECC = re.compile(r"(\d+) uncorrectable memory errors")


def faults(reading: Reading, expected: int) -> Iterator[DeviceFault]:
    """The faults that a tool's answer shows, if the container was given `expected` cards."""
    noun, cards = reading.noun, reading.cards
    for card in cards:
        device, problem = card.called(noun), card.problem
        if ecc := _ECC.search(problem):
            yield DeviceFault(device, "ecc", problem, int(ecc[1]))
        elif any(words in problem for words in _BAD):
            yield DeviceFault(device, "missing", problem)
        elif problem and not problem.startswith((*MILD, SLOWED)):
            yield DeviceFault(device, "health", problem)
    if cards and len(cards) < expected:
        missing = {*range(expected)} - {card.index for card in cards}
        device = f"{noun} {missing.pop()}" if len(missing) == 1 else noun
        yield DeviceFault(device, "missing", f"{len(cards)} of {expected} answer")


def xids(text: str, minors: Mapping[str, int]) -> Iterator[DeviceFault]:
    """The Xid errors in lines of the kernel or of a tool; `minors`: PCI address -> number of the
    card (NVIDIA, "XID Errors")."""
    for address, number, words in _XID.findall(text):
        minor = minors.get(address.lower())
        device = "GPU" if minor is None else f"GPU {minor}"
        detail = f"Xid {number}{f': {words}' if words else ''}"
        yield DeviceFault(device, "xid", detail, int(number))
