"""Judges a node's accelerators by what the driver's tool says of them, for `check` and before each
attempt; and whether the image's libraries can use them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from entrypoint.model import Finding, Plan
from entrypoint.system.smi import MILD, Card

if TYPE_CHECKING:
    from entrypoint.health.observation import Findings, Observation

_FILES = re.compile(r"(?<!\d)(\d{1,9}) /dev/")
_BUSY = 1024  # MiB in use before a job: more than a driver takes for itself


def judge(observation: Observation, plan: Plan, rank: int) -> Findings:
    """What the driver's tool tells of the cards, and what torch and Horovod were built for."""
    if not observation.devices and not observation.cards:
        yield Finding("ok", "accelerators", "accelerators", observation.device_origin or "none")
        return
    slots = plan.topology.nodes[rank].slots
    kinds = sorted({card.name for card in observation.cards if card.name})
    actual = f"{observation.devices} {observation.device} ({observation.device_origin})"
    actual += f": {', '.join(kinds)}" if kinds else ""
    level = "warning" if (observation.devices or 0) < slots else "ok"
    fix = f"set slots to {observation.devices}, or give the container more devices"
    yield Finding(level, "accelerators", "accelerators", actual, f"{slots}, one a rank", fix)
    number = expected(observation.device_origin, observation.devices or 0)
    yield from lost(observation.cards, number, observation.tool)
    for card in observation.cards:
        yield from health(card)
        yield from in_use(card)
    yield from _driver(observation)
    if observation.device == "nvidia":
        yield from _cuda(observation, slots)
    if observation.device == "ascend":
        yield from _npu(observation)
    yield from _horovod(observation, plan)


def expected(origin: str, usable: int) -> int:
    """Return how many cards a tool has to show: one for each device file, of which a program may be
    given fewer (`origin`: where the number of usable cards comes from)."""
    files = _FILES.search(origin)
    return int(files[1]) if files else usable


def lost(cards: Sequence[Card], number: int, tool: str) -> Findings:
    """Whether the tool sees each card that has a device file."""
    if cards and len(cards) < number:
        fix = (
            "look at dmesg for Xid or card errors; reset or replace the card, or take the"
            " machine out"
        )
        actual = f"{len(cards)} answer {tool}"
        yield Finding(
            "error", "accelerators-lost", "accelerators that answer", actual, f"{number}", fix
        )


def health(card: Card) -> Findings:
    """What the tool says of a card that is not well."""
    if card.problem:
        fix = "reset the card, or take the machine out and have it looked at"
        level = "warning" if card.problem in MILD else "error"
        yield Finding(
            level,
            "accelerator-health",
            f"{card.called('accelerator')}: health",
            card.problem,
            "healthy",
            fix,
        )


def in_use(card: Card) -> Findings:
    """Who uses a card already."""
    busy = (card.used or 0) >= _BUSY
    if card.processes or busy:
        who = ", ".join(card.processes) or "by processes that are not seen from this container"
        actual = f"{card.used:g} MiB in use: {who}" if card.used is not None else f"in use: {who}"
        fix = "end them, or take another machine: they take memory and time from the job"
        yield Finding(
            "warning",
            "accelerator-in-use",
            f"{card.called('accelerator')}: in use",
            actual,
            "no other process",
            fix,
        )


def _driver(observation: Observation) -> Findings:
    if observation.driver:
        actual = observation.driver
        actual += f", for CUDA up to {observation.driver_cuda}" if observation.driver_cuda else ""
        actual += f", CANN {observation.cann}" if observation.cann else ""
        yield Finding("ok", "driver", "driver", actual)


def _cuda(observation: Observation, slots: int) -> Findings:
    torch, built = observation.library("torch"), observation.library("torch cuda")
    if not torch:
        return
    build = "install a torch that is built for CUDA, from PyTorch's own index"
    if built in ("", "none"):
        actual = f"torch {torch} is built without CUDA"
        yield Finding("error", "torch-cuda", "torch and CUDA", actual, "CUDA", build)
        return
    if observation.driver_cuda and _major(built) > _major(observation.driver_cuda):
        actual = f"torch is built for {built}, the driver takes up to {observation.driver_cuda}"
        fix = (
            "a newer driver on the machine, CUDA's compat package in the image, or a torch for"
            f" {observation.driver_cuda}"
        )
        yield Finding(
            "error", "cuda-driver", "CUDA and the driver", actual, "a driver as new as CUDA", fix
        )
    can = observation.library("torch cuda.is_available")
    if can == "no":
        actual = observation.library("torch why") or "torch.cuda.is_available() is False"
        fix = "see the driver, /usr/local/nvidia and LD_LIBRARY_PATH of the container"
        yield Finding(
            "error", "torch-cuda", "torch and CUDA", actual, "cards that torch can use", fix
        )
    count = observation.library("torch cuda.device_count")
    if can == "yes" and count.isdigit() and int(count) < slots:
        fix = "see CUDA_VISIBLE_DEVICES, and MIG"
        yield Finding(
            "error", "torch-cuda", "torch and CUDA", f"torch sees {count} cards", f"{slots}", fix
        )


def _npu(observation: Observation) -> Findings:
    if not observation.driver and not observation.cann:
        fix = "mount /usr/local/Ascend/driver from the machine, and take an image with CANN"
        yield Finding(
            "warning", "cann", "CANN and the driver", "neither was found", "/usr/local/Ascend", fix
        )
    if observation.library("torch") and not observation.library("torch npu"):
        fix = "install the torch-npu of this torch's version"
        yield Finding(
            "warning", "torch-npu", "torch and CANN", "torch without torch_npu", "torch_npu", fix
        )


def _horovod(observation: Observation, plan: Plan) -> Findings:
    if not observation.library("horovod"):
        return
    if plan.launch.ranks.reports == "ranks" and observation.library("horovod mpi") == "no":
        fix = "build Horovod with HOROVOD_WITH_MPI=1, or set HOROVOD_CONTROLLER=gloo"
        what, actual, needed = "Horovod and MPI", "built without MPI", f"MPI, under {plan.launcher}"
        yield Finding("warning", "horovod-mpi", what, actual, needed, fix)
    if observation.device == "nvidia" and observation.library("horovod nccl") == "no":
        fix = "build Horovod with HOROVOD_GPU_OPERATIONS=NCCL"
        what, actual, needed = "Horovod and NCCL", "built without NCCL", "NCCL, for GPUs"
        yield Finding("warning", "horovod-nccl", what, actual, needed, fix)


def _major(version: str) -> int:
    number = version.partition(".")[0]
    return int(number) if number.isdigit() else 0
