"""Ascend NPUs, counted without a driver tool: /dev/davinci0, /dev/davinci1, ..., narrowed by ASCEND_RT_VISIBLE_DEVICES.

Sources: CANN environment variable reference, "ASCEND_RT_VISIBLE_DEVICES" (positions among the container's cards, in
ascending order, commas alone between them; reading ends at any other character and at a card that is not there);
ModelArts' boot tool (develop-modelarts-0120) for HCCL_CONNECT_TIMEOUT.
"""

from __future__ import annotations

import re

from entrypoint.errors import ConfigError
from entrypoint.model import Access, Device, Facts

ALSO = ("npu", "npus", "davinci")  # what else people call it
# Files and folder as CANN's images are started with; not tried on a machine with cards.
ACCESS = Access(
    resource="huawei.com/Ascend910",
    card="/dev/davinci{}",
    files=("/dev/davinci_manager", "/dev/devmm_svm", "/dev/hisi_hdc"),
    folders=("/usr/local/Ascend/driver",),
    visible="ASCEND_RT_VISIBLE_DEVICES",
)

_VISIBLE = ACCESS.visible
_SIMULATE = "ENTRYPOINT_SIMULATE_ASCEND"  # for tests: this many cards where there are none

# Seconds that a rank waits for the others; HCCL's own 120 are short where nodes load their data at different speeds.
_ENV = {"HCCL_CONNECT_TIMEOUT": "1800"}


def matches(facts: Facts) -> bool:
    """Whether the container was given an NPU's device file, or is to act as if it were."""
    return bool(facts.env.get(_SIMULATE) or _files(facts))


def device(facts: Facts) -> Device:
    """The NPUs that a process of this container can use.

    Raises ConfigError when the variable that narrows or simulates them is wrong.
    """
    there, visible = _there(facts), cards(facts)
    origin = f"{len(there)} /dev/davinci*"
    if facts.env.get(_SIMULATE):
        origin = f"{len(there)} simulated cards ({_SIMULATE})"
    given = facts.env.get(_VISIBLE)
    if given is not None:
        origin = f"{_VISIBLE}={given} of {origin}"
        if len(visible) < len(given.split(",")):
            origin += f", of which CANN reads {len(visible)}"
    return Device("ascend", len(visible), origin, env=_ENV, cards=visible, launcher="ascend")


def cards(facts: Facts) -> tuple[int, ...]:
    """N of each /dev/davinciN that a process can use, ascending; its position here is its logical id, from 0.

    Raises ConfigError as `device` does.
    """
    there, visible = _there(facts), facts.env.get(_VISIBLE)
    if visible is None:
        return there
    found: list[int] = []
    for entry in visible.split(","):
        number = re.match(r"[0-9]{1,9}", entry)
        if number is None or int(number[0]) >= len(there):
            break
        if found and there[int(number[0])] <= found[-1]:
            raise ConfigError(
                f"EP402 {_VISIBLE} does not ascend, which CANN asks for", repr(visible[:60]), f"sort {_VISIBLE}"
            )
        found.append(there[int(number[0])])
        if number[0] != entry:
            break
    return tuple(found)


def _there(facts: Facts) -> tuple[int, ...]:
    simulated = facts.env.get(_SIMULATE)
    if not simulated:
        return _files(facts)
    if not re.fullmatch(r"[1-9][0-9]{0,3}", simulated):
        raise ConfigError(
            f"EP402 {_SIMULATE} is not a number of cards", repr(simulated[:60]), "give 1 or more, or unset it"
        )
    return tuple(range(int(simulated)))


def _files(facts: Facts) -> tuple[int, ...]:
    found = (re.fullmatch(r"davinci([0-9]+)", name) for name in facts.device_files)
    return tuple(sorted(int(name[1]) for name in found if name))
