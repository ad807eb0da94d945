"""Judges a node's accelerators by what the driver's tool says of them, for `check` and before each
attempt; and whether the image's libraries can use them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from entrypoint.base.model import Plan
from entrypoint.features.health.findings import Findings, finding
from entrypoint.system.smi import MILD, Card

if TYPE_CHECKING:
    from entrypoint.features.health.observation import Observation

_FILES = re.compile(r"(?<!\d)(\d{1,9}) /dev/")
_BUSY = 1024  # MiB in use before a job: more than a driver takes for itself


def judge(observation: Observation, plan: Plan, rank: int) -> Findings:
    """What the driver's tool tells of the cards, and what torch and Horovod were built for."""
    devices, origin = observation.devices or 0, observation.device_origin
    if not devices and not observation.cards:
        yield finding("ok", "accelerators/none", origin or "none")
        return
    slots = plan.topology.nodes[rank].slots
    kinds = sorted({card.name for card in observation.cards if card.name})
    actual = f"{observation.devices} {observation.device} ({origin})"
    actual += f": {', '.join(kinds)}" if kinds else ""
    level = "warning" if devices < slots else "ok"
    yield finding(level, "accelerators", actual, slots=slots, devices=observation.devices)
    yield from lost(observation.cards, expected(origin, devices), observation.tool)
    for card in observation.cards:
        yield from health(card)
        yield from in_use(card)
    if actual := observation.driver:
        actual += f", for CUDA up to {observation.driver_cuda}" if observation.driver_cuda else ""
        actual += f", CANN {observation.cann}" if observation.cann else ""
        yield finding("ok", "driver", actual)
    if observation.device == "nvidia":
        yield from _cuda(observation, slots)
    if observation.device == "ascend":
        if not observation.driver and not observation.cann:
            yield finding("warning", "cann", "neither was found")
        if observation.library("torch") and not observation.library("torch npu"):
            yield finding("warning", "torch-npu", "torch without torch_npu")
    if observation.library("horovod"):
        has_mpi, has_nccl = (observation.library(f"horovod {name}") for name in ("mpi", "nccl"))
        if plan.launch.ranks.kind.by_daemons and has_mpi == "no":
            yield finding("warning", "horovod-mpi", "built without MPI", launcher=plan.launcher)
        if observation.device == "nvidia" and has_nccl == "no":
            yield finding("warning", "horovod-nccl", "built without NCCL")


def expected(origin: str, usable: int) -> int:
    """Return how many cards a tool has to show: one for each device file, of which a program may be
    given fewer (`origin`: where the number of usable cards comes from)."""
    files = _FILES.search(origin)
    return int(files[1]) if files else usable


def lost(cards: Sequence[Card], number: int, tool: str) -> Findings:
    """Whether the tool sees each card that has a device file."""
    if cards and len(cards) < number:
        yield finding("error", "accelerators-lost", f"{len(cards)} answer {tool}", number=number)


def health(card: Card) -> Findings:
    """What the tool says of a card that is not well."""
    if card.problem:
        level = "warning" if card.problem in MILD else "error"
        yield finding(level, "accelerator-health", card.problem, card=card.called("accelerator"))


def in_use(card: Card) -> Findings:
    """Who uses a card already."""
    if card.processes or (card.used or 0) >= _BUSY:
        who = ", ".join(card.processes) or "by processes that are not seen from this container"
        actual = f"{card.used:g} MiB in use: {who}" if card.used is not None else f"in use: {who}"
        yield finding("warning", "accelerator-in-use", actual, card=card.called("accelerator"))


def _cuda(observation: Observation, slots: int) -> Findings:
    torch, built = observation.library("torch"), observation.library("torch cuda")
    newest = observation.driver_cuda
    if not torch:
        return
    if built in ("", "none"):
        yield finding("error", "torch-cuda/cpu", f"torch {torch} is built without CUDA")
        return
    if newest and _major(built) > _major(newest):
        actual = f"torch is built for {built}, the driver takes up to {newest}"
        yield finding("error", "cuda-driver", actual, cuda=newest)
    can = observation.library("torch cuda.is_available")
    if can == "no":
        actual = observation.library("torch why") or "torch.cuda.is_available() is False"
        yield finding("error", "torch-cuda/none", actual)
    count = observation.library("torch cuda.device_count")
    if can == "yes" and count.isdigit() and int(count) < slots:
        yield finding("error", "torch-cuda/few", f"torch sees {count} cards", slots=slots)


def _major(version: str) -> int:
    number = version.partition(".")[0]
    return int(number) if number.isdigit() else 0
