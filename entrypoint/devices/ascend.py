"""Ascend NPUs, counted without a driver tool: /dev/davinci0, /dev/davinci1, ..., narrowed by
ASCEND_RT_VISIBLE_DEVICES.

Sources: CANN environment variable reference, "ASCEND_RT_VISIBLE_DEVICES" (positions among the
container's cards, in ascending order, separated only by commas; reading ends at any other character
and at a card that does not exist); ModelArts' boot tool (develop-modelarts-0120) for
HCCL_CONNECT_TIMEOUT.
"""

from __future__ import annotations

import re

from entrypoint.base.errors import ConfigError
from entrypoint.base.model import Access, Device, Facts

ALSO = ("npu", "npus", "davinci")  # other names
# Files and folder with which CANN's images are started; not tried on a machine with cards.
ACCESS = Access(
    resource="huawei.com/Ascend910",
    card="/dev/davinci{}",
    files=("/dev/davinci_manager", "/dev/devmm_svm", "/dev/hisi_hdc"),
    folders=("/usr/local/Ascend/driver",),
    visible="ASCEND_RT_VISIBLE_DEVICES",
)

_VISIBLE = ACCESS.visible
_SIMULATE = "ENTRYPOINT_SIMULATE_ASCEND"  # for tests: number of simulated cards

# Seconds that a rank waits for the others; HCCL's own 120 are short if nodes load their data at
# different speeds.
_ENV = {"HCCL_CONNECT_TIMEOUT": "1800"}


def matches(facts: Facts) -> bool:
    """Return whether the container has an NPU's device file, or simulates one."""
    return bool(facts.env.get(_SIMULATE) or _files(facts))


def device(facts: Facts) -> Device:
    """Return the NPUs that a process of this container can use.

    Raises ConfigError if the variable that narrows or simulates them is wrong.
    """
    present = _present(facts)
    visible = cards(facts)
    origin = f"{len(present)} /dev/davinci*"
    if facts.env.get(_SIMULATE):
        origin = f"{len(present)} simulated cards ({_SIMULATE})"
    value = facts.env.get(_VISIBLE)
    if value is not None:
        origin = f"{_VISIBLE}={value} of {origin}"
        if len(visible) < len(value.split(",")):
            origin += f", of which CANN reads {len(visible)}"
    return Device("ascend", len(visible), origin, env=_ENV, cards=visible, launcher="ascend")


def cards(facts: Facts) -> tuple[int, ...]:
    """Return N of each /dev/davinciN that a process can use, ascending; its position here is its
    logical id, from 0.

    Raises ConfigError as `device` does.
    """
    present = _present(facts)
    visible = facts.env.get(_VISIBLE)
    if visible is None:
        return present
    usable: list[int] = []
    for entry in visible.split(","):
        number = re.match(r"[0-9]{1,9}", entry)
        if number is None or int(number[0]) >= len(present):
            break
        if usable and present[int(number[0])] <= usable[-1]:
            raise ConfigError(
                f"EP402 {_VISIBLE} is not in ascending order (required by CANN)",
                repr(visible[:60]),
                f"sort {_VISIBLE}",
            )
        usable.append(present[int(number[0])])
        if number[0] != entry:
            break
    return tuple(usable)


def _present(facts: Facts) -> tuple[int, ...]:
    simulated = facts.env.get(_SIMULATE)
    if not simulated:
        return _files(facts)
    if not re.fullmatch(r"[1-9][0-9]{0,3}", simulated):
        raise ConfigError(
            f"EP402 {_SIMULATE} is not a number of cards",
            repr(simulated[:60]),
            "give 1 or more, or unset it",
        )
    return tuple(range(int(simulated)))


def _files(facts: Facts) -> tuple[int, ...]:
    pattern = r"davinci([0-9]+)"
    return tuple(
        sorted(
            int(match[1]) for name in facts.device_files if (match := re.fullmatch(pattern, name))
        )
    )
