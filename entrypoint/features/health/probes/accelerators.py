"""Probes of a node's accelerators, and of whether the image's libraries can use them."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections import Counter
from collections.abc import Callable, Mapping

from entrypoint.base.values import frozen
from entrypoint.features.health import cards
from entrypoint.features.health.probe import Fields, Findings, Inputs, NodeView, Probe
from entrypoint.features.health.probes.image import Libraries
from entrypoint.features.health.reading import Named, Number, Rows, String
from entrypoint.system import smi
from entrypoint.system.smi import Card

CANN_VERSION = re.compile(r"(?im)^version=(\S+)|\[(\d[\w.]*)\]")
_CANN = ("latest/version.cfg", "latest/compiler/version.info", "latest/runtime/version.info")


@frozen
class Accelerators(Probe):
    """Those that a process here can use, by their device files; what the driver's own tool says,
    if this image has one; and the versions of CANN."""

    name = "accelerators"
    texts = """
    page | accelerators | device files; `nvidia-smi -q -x` or `npu-smi info`: driver, health, memory
        and processes; CANN: its version and the driver's, from their own files | a card for each
        rank; all cards answer; no other process uses them; CANN and its driver are there. Whether
        they fit together is in Huawei's tables and is not checked | number and kinds of cards,
        driver, CANN
    accelerators | accelerators | {slots}, one for each rank | set slots to {devices}, or give the
        container more devices
    accelerators/none | accelerators
    driver | driver
    cann | CANN and the driver | /usr/local/Ascend | mount /usr/local/Ascend/driver from the host,
        and use an image with CANN
    differs-accelerators | accelerators | use hosts of one kind, and look for a missing card; or
        give each host its slots: hosts: [a:8, b:7]
    differs-accelerator-kinds | kinds of accelerators | use hosts of one kind
    differs-driver | driver | install one driver on all hosts
    differs-cann | CANN
    """
    device: String = ""
    devices: Number = None
    device_origin: String = ""
    tool: String = ""  # that was asked
    driver: String = ""
    driver_cuda: String = ""  # the newest CUDA that the driver takes
    cann: String = ""
    cards: Rows[Card] = ()

    @classmethod
    def readings(cls, inputs: Inputs) -> dict[str, Callable[[], Fields]]:
        kind, count, origin, *_ = vars(inputs.plan.topology.device).values()
        fields = {"device": kind, "devices": count, "device_origin": origin}
        return {"device": lambda: fields, **super().readings(inputs)}

    @staticmethod
    def read(inputs: Inputs) -> Fields:
        fields = _cann(inputs.facts.env)
        device = inputs.plan.topology.device
        readings = asyncio.run(smi.readings(inputs.facts.env, inputs.limit))
        for tool, _, _, problem, answer, _ in readings:
            fields |= {"tool": tool, **answer}
            # An image may hold the tool of cards that this machine does not have.
            if problem and (device.count or device.kind != "cpu" or "no answer" in problem):
                fields["unseen"] = (Named(tool, problem),)
        return fields

    def judge(self, view: NodeView) -> Findings:
        devices, slots = self.devices or 0, view.node.slots
        if not devices and not self.cards:
            yield self.finding("ok", "accelerators/none", self.device_origin or "none")
            return
        kinds = sorted({card.name for card in self.cards if card.name})
        seen = f"{self.devices} {self.device} ({self.device_origin})"
        seen += f": {', '.join(kinds)}" if kinds else ""
        level = "warning" if devices < slots else "ok"
        yield self.finding(level, "accelerators", seen, slots=slots, devices=self.devices)
        yield from cards.lost(self.cards, cards.expected(self.device_origin, devices), self.tool)
        for card in self.cards:
            yield from cards.health(card)
            yield from cards.in_use(card)
        if seen := self.driver:
            seen += f", for CUDA up to {self.driver_cuda}" if self.driver_cuda else ""
            seen += f", CANN {self.cann}" if self.cann else ""
            yield self.finding("ok", "driver", seen)
        elif self.device == "ascend" and not self.cann:
            yield self.finding("warning", "cann", "neither was found")

    def alike(self, view: NodeView) -> Mapping[str, str]:
        kinds = Counter(card.name for card in self.cards if card.name)
        return {
            "accelerators": "" if self.devices is None else f"{self.devices:g} {self.device}",
            "accelerator-kinds": ", ".join(f"{kinds[name]} x {name}" for name in sorted(kinds)),
            "driver": self.driver,
            "cann": self.cann,
        }


def _cann(env: Mapping[str, str]) -> Fields:
    """Return the versions in the files of CANN and the driver."""
    home = (
        env.get("ASCEND_TOOLKIT_HOME", "").removesuffix("/latest")
        or "/usr/local/Ascend/ascend-toolkit"
    )
    fields: Fields = {}
    for name, file in (
        *(("cann", f"{home}/{file}") for file in _CANN),
        ("driver", "/usr/local/Ascend/driver/version.info"),
    ):
        with contextlib.suppress(OSError), open(file, errors="replace") as opened:
            if version := CANN_VERSION.search(opened.read(65536)):
                fields.setdefault(name, version[1] or version[2])
    return fields


class Builds(Probe):
    """The builds of torch and Horovod, compared with the cards and the launcher."""

    texts = """
    cuda-driver | CUDA and the driver | a driver as new as CUDA | a newer driver on the host, CUDA's
        compat package in the image, or a torch for {cuda}
    torch-cuda/cpu | torch and CUDA | CUDA | install a torch that is built for CUDA, from PyTorch's
        own index
    torch-cuda/none | torch and CUDA | cards that torch can use | check the driver,
        /usr/local/nvidia and LD_LIBRARY_PATH of the container
    torch-cuda/few | torch and CUDA | {slots} | check CUDA_VISIBLE_DEVICES, and MIG
    torch-npu | torch and CANN | torch_npu | install the torch-npu for this version of torch
    horovod-mpi | Horovod and MPI | MPI, under {launcher} | build Horovod with HOROVOD_WITH_MPI=1,
        or set HOROVOD_CONTROLLER=gloo
    horovod-nccl | Horovod and NCCL | NCCL, for GPUs | build Horovod with
        HOROVOD_GPU_OPERATIONS=NCCL
    """

    def judge(self, view: NodeView) -> Findings:
        seen, about, plan = view.of(Accelerators), view.of(Libraries).about, view.plan
        if not seen.devices and not seen.cards:
            return
        if seen.device == "nvidia" and about("torch"):
            yield from self._cuda(seen, about, view.node.slots)
        if seen.device == "ascend" and about("torch") and not about("torch npu"):
            yield self.finding("warning", "torch-npu", "torch without torch_npu")
        if plan.launch.ranks.kind.by_daemons and about("horovod mpi") == "no":
            found = "built without MPI"
            yield self.finding("warning", "horovod-mpi", found, launcher=plan.launcher)
        if seen.device == "nvidia" and about("horovod nccl") == "no":
            yield self.finding("warning", "horovod-nccl", "built without NCCL")

    def _cuda(self, seen: Accelerators, about: Callable[[str], str], slots: int) -> Findings:
        built, newest = about("torch cuda"), seen.driver_cuda
        if built in ("", "none"):
            found = f"torch {about('torch')} is built without CUDA"
            yield self.finding("error", "torch-cuda/cpu", found)
            return
        if newest and _major(built) > _major(newest):
            found = f"torch is built for {built}, the driver takes up to {newest}"
            yield self.finding("error", "cuda-driver", found, cuda=newest)
        can, count = about("torch cuda.is_available"), about("torch cuda.device_count")
        if can == "no":
            found = about("torch why") or "torch.cuda.is_available() is False"
            yield self.finding("error", "torch-cuda/none", found)
        if can == "yes" and count.isdigit() and int(count) < slots:
            yield self.finding("error", "torch-cuda/few", f"torch sees {count} cards", slots=slots)


def _major(version: str) -> int:
    number = version.partition(".")[0]
    return int(number) if number.isdigit() else 0
