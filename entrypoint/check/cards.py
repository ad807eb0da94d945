"""Accelerators of one node, and whether the image's libraries can use them -> findings."""

from __future__ import annotations

from collections.abc import Iterator

from entrypoint.check.observation import Observation
from entrypoint.gate import cards
from entrypoint.model import Finding, Plan


def judge(observation: Observation, plan: Plan, rank: int) -> Iterator[Finding]:
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
    number = cards.expected(observation.device_origin, observation.devices or 0)
    yield from cards.lost(observation.cards, number, observation.tool)
    for card in observation.cards:
        yield from cards.health(card)
        yield from cards.in_use(card)
    yield from _driver(observation)
    if observation.device == "nvidia":
        yield from _cuda(observation, slots)
    if observation.device == "ascend":
        yield from _npu(observation)
    yield from _horovod(observation, plan)


def _driver(observation: Observation) -> Iterator[Finding]:
    if observation.driver:
        actual = observation.driver
        actual += f", for CUDA up to {observation.driver_cuda}" if observation.driver_cuda else ""
        actual += f", CANN {observation.cann}" if observation.cann else ""
        yield Finding("ok", "driver", "driver", actual)


def _cuda(observation: Observation, slots: int) -> Iterator[Finding]:
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


def _npu(observation: Observation) -> Iterator[Finding]:
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


def _horovod(observation: Observation, plan: Plan) -> Iterator[Finding]:
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
