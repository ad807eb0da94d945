"""Accelerators of one node, and whether the image's libraries can use them -> findings."""

from __future__ import annotations

import re
from collections.abc import Iterator

from entrypoint.check.observed import Observation
from entrypoint.devices._smi import Card
from entrypoint.model import Finding, Plan

_MILD = ("npu-smi says Warning", "its infoROM is corrupted")  # a job runs on such a card
_FILES = re.compile(r"(?<!\d)(\d{1,9}) /dev/")
_BUSY = 1024  # MiB in use before a job: more than a driver takes for itself


def judge(seen: Observation, plan: Plan, rank: int) -> Iterator[Finding]:
    """What the driver's tool tells of the cards, and what torch and Horovod were built for."""
    if not seen.devices and not seen.cards:
        yield Finding("ok", "accelerators", "accelerators", seen.device_origin or "none")
        return
    slots = plan.topology.nodes[rank].slots
    kinds = sorted({each.name for each in seen.cards if each.name})
    found = f"{seen.devices} {seen.device} ({seen.device_origin})"
    found += f": {', '.join(kinds)}" if kinds else ""
    level = "warning" if (seen.devices or 0) < slots else "ok"
    fix = f"set slots to {seen.devices}, or give the container more devices"
    yield Finding(level, "accelerators", "accelerators", found, f"{slots}, one a rank", fix)
    yield from _answering(seen)
    for card in seen.cards:
        yield from _card(card)
    yield from _driver(seen)
    if seen.device == "nvidia":
        yield from _cuda(seen, slots)
    if seen.device == "ascend":
        yield from _npu(seen)
    yield from _horovod(seen, plan)


def _answering(seen: Observation) -> Iterator[Finding]:
    """Whether the tool sees each card that has a device file."""
    files = _FILES.search(seen.device_origin)
    number = int(files[1]) if files else seen.devices or 0
    if seen.cards and len(seen.cards) < number:
        fix = (
            "look at dmesg for Xid or card errors; reset or replace the card, or take the"
            " machine out"
        )
        words = f"{len(seen.cards)} answer {seen.tool}"
        yield Finding(
            "error", "accelerators-lost", "accelerators that answer", words, f"{number}", fix
        )


def _card(card: Card) -> Iterator[Finding]:
    what = f"accelerator {card.index:g}" if card.index is not None else "accelerator"
    if card.problem:
        fix = "reset the card, or take the machine out and have it looked at"
        level = "warning" if card.problem in _MILD else "error"
        yield Finding(level, "accelerator-health", f"{what}: health", card.problem, "healthy", fix)
    busy = (card.used or 0) >= _BUSY
    if card.processes or busy:
        who = ", ".join(card.processes) or "by processes that are not seen from this container"
        words = f"{card.used:g} MiB in use: {who}" if card.used is not None else f"in use: {who}"
        fix = "end them, or take another machine: they take memory and time from the job"
        yield Finding(
            "warning", "accelerator-in-use", f"{what}: in use", words, "no other process", fix
        )


def _driver(seen: Observation) -> Iterator[Finding]:
    if seen.driver:
        more = f", for CUDA up to {seen.driver_cuda}" if seen.driver_cuda else ""
        more += f", CANN {seen.cann}" if seen.cann else ""
        yield Finding("ok", "driver", "driver", f"{seen.driver}{more}")


def _cuda(seen: Observation, slots: int) -> Iterator[Finding]:
    torch, built = seen.library("torch"), seen.library("torch cuda")
    if not torch:
        return
    build = "install a torch that is built for CUDA, from PyTorch's own index"
    if built in ("", "none"):
        yield Finding(
            "error",
            "torch-cuda",
            "torch and CUDA",
            f"torch {torch} is built without CUDA",
            "CUDA",
            build,
        )
        return
    if seen.driver_cuda and _major(built) > _major(seen.driver_cuda):
        words = f"torch is built for {built}, the driver takes up to {seen.driver_cuda}"
        fix = (
            "a newer driver on the machine, CUDA's compat package in the image, or a torch for"
            f" {seen.driver_cuda}"
        )
        yield Finding(
            "error", "cuda-driver", "CUDA and the driver", words, "a driver as new as CUDA", fix
        )
    can = seen.library("torch cuda.is_available")
    if can == "no":
        words = seen.library("torch why") or "torch.cuda.is_available() is False"
        fix = "see the driver, /usr/local/nvidia and LD_LIBRARY_PATH of the container"
        yield Finding(
            "error", "torch-cuda", "torch and CUDA", words, "cards that torch can use", fix
        )
    count = seen.library("torch cuda.device_count")
    if can == "yes" and count.isdigit() and int(count) < slots:
        fix = "see CUDA_VISIBLE_DEVICES, and MIG"
        yield Finding(
            "error", "torch-cuda", "torch and CUDA", f"torch sees {count} cards", f"{slots}", fix
        )


def _npu(seen: Observation) -> Iterator[Finding]:
    if not seen.driver and not seen.cann:
        fix = "mount /usr/local/Ascend/driver from the machine, and take an image with CANN"
        yield Finding(
            "warning", "cann", "CANN and the driver", "neither was found", "/usr/local/Ascend", fix
        )
    if seen.library("torch") and not seen.library("torch npu"):
        fix = "install the torch-npu of this torch's version"
        yield Finding(
            "warning", "torch-npu", "torch and CANN", "torch without torch_npu", "torch_npu", fix
        )


def _horovod(seen: Observation, plan: Plan) -> Iterator[Finding]:
    if not seen.library("horovod"):
        return
    if plan.launch.ranks.reports == "ranks" and seen.library("horovod mpi") == "no":
        fix = "build Horovod with HOROVOD_WITH_MPI=1, or set HOROVOD_CONTROLLER=gloo"
        yield Finding(
            "warning",
            "horovod-mpi",
            "Horovod and MPI",
            "built without MPI",
            f"MPI, under {plan.launcher}",
            fix,
        )
    if seen.device == "nvidia" and seen.library("horovod nccl") == "no":
        fix = "build Horovod with HOROVOD_GPU_OPERATIONS=NCCL"
        yield Finding(
            "warning",
            "horovod-nccl",
            "Horovod and NCCL",
            "built without NCCL",
            "NCCL, for GPUs",
            fix,
        )


def _major(version: str) -> int:
    number = version.partition(".")[0]
    return int(number) if number.isdigit() else 0
