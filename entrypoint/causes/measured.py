"""The measurements of a node, weighed against what the output says.

A measurement replaces a cause only if it explains the failure better: the program's own mistakes
stay its own on a node whose card once had an ECC error.
"""

from __future__ import annotations

import re

from entrypoint.base.cause import Cause, Certainty
from entrypoint.base.tables import rows
from entrypoint.base.text import brief, escaped
from entrypoint.base.values import replace
from entrypoint.causes.evidence import DeviceFault, Evidence
from entrypoint.causes.table import KINDS, signatures

_ABOUT_DEVICES = frozenset(
    ("cuda-kernel-fault", "gpu-busy", "gpu-ecc", "gpu-init", "gpu-lost", "gpu-oom",
     "gpu-oom-foreign", "npu-exception", "nvlink")
)  # fmt: skip
# With these a fault of the device may be the reason.
_OPEN = _ABOUT_DEVICES | {
    "collective-timeout", "killed-unknown", "nan-loss", "native-crash", "rendezvous-timeout",
}  # fmt: skip
_NAMES_DEVICE = r"CUDA|cuda|NCCL|\bGPU|\bNPU|\bacl|HCCL|nvidia"
_WRITES = r"OSError|IOError|[Ww]rit(e|ing)|disk I/O error|[Ss]av(e|ing)"
_THREADS = r"(?i)resource temporarily unavailable|thread|fork|EAGAIN|Errno 11\b"
_DEVICES = rows(r"""
    \bNPU[ #:]{0,2}(\d{1,3})\b                                               | NPU
    \bchipId:(\d{1,3})\b                                                     | NPU
    \bDevice:(\d{1,3}), RankID                                               | NPU
    \bdevice_id[=:] ?(\d{1,3})\b                                             | NPU
    \bPCI:([0-9a-fA-F]{4,8}(?::[0-9a-fA-F]{2}){1,2}(?:\.\d)?)                | GPU
    \bGPU[ #:]{0,2}([0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.\d)      | GPU
    \bGPU[ #:]{0,2}(\d{1,3})(?![\d.])(?!\w{0,40}:\w)                         | GPU
    \bcuda:(\d{1,3})\b                                                       | GPU
    \bdevice ordinal (\d{1,3})\b                                             | GPU
""")


def device(line: str, slug: str) -> str:
    """Return the device that a line names, such as `GPU 2`; "" if it names none, or if the cause
    has nothing to do with one."""
    if slug not in _ABOUT_DEVICES:
        return ""
    for pattern, name in _DEVICES:
        found = re.search(pattern, line[:1000])
        if found:
            return f"{name} {found[1]}"
    return ""


def weighed(cause: Cause, text: str, signal: str, evidence: Evidence) -> Cause:
    """Return the cause, or the one that the node's measurements show instead."""
    is_root = cause.role == "root"
    is_sure = is_root and cause.certainty == "high"
    is_open = is_root and cause.certainty == "low"  # a measurement may explain the failure better
    if evidence.oom_kills and (cause.slug == "host-oom" or (signal == "SIGKILL" and not is_sure)):
        says = "the memory of this container was used up, and the kernel killed a process"
        return _measured(cause, "host-oom", says)
    full = evidence.disk_full
    if full and (cause.slug == "disk-full" or (is_open and re.search(_WRITES, text))):
        return _measured(cause, "disk-full", f"no space was left in {brief(full[0])}")
    free = evidence.shm_free
    is_full = free is not None and free <= max(1 << 20, (evidence.shm_size or 0) // 100)
    if is_full and (cause.slug == "shm-full" or signal == "SIGBUS"):
        return _measured(cause, "shm-full")
    refused = evidence.refused_processes
    if refused and (cause.slug == "proc-limit" or (is_open and re.search(_THREADS, text))):
        return _measured(cause, "proc-limit", "the container's limit of processes was reached")
    faults = (_fault(cause, fault, text) for fault in evidence.device_faults)
    return next(filter(None, faults), cause)


def _measured(
    cause: Cause, slug: str, says: str = "", certainty: Certainty = "high", device: str = ""
) -> Cause:
    kind = KINDS[slug]
    return replace(
        cause,
        slug=slug,
        role="root",
        blame="unknown" if slug == "cuda-kernel-fault" else kind.blame,
        retry=kind.retry,
        certainty=certainty,
        says=says or kind.says,
        fix=kind.fix,
        device=device,
    )


def _fault(cause: Cause, fault: DeviceFault, text: str) -> Cause | None:
    """Return the cause that a fault of a device shows; None if it does not explain the failure."""
    about_devices = cause.slug in _ABOUT_DEVICES
    if cause.role == "cascade":
        return None
    if cause.slug in ("gpu-ecc", "gpu-lost", "nvlink"):
        if shown_by(fault) != cause.slug:
            return None
        retry, device = KINDS[cause.slug].retry, cause.device or fault.device
        return replace(cause, certainty="high", retry=retry, device=device)
    if cause.certainty == "high" and not cause.slug.startswith("gpu-init"):
        return None
    names_device = re.search(_NAMES_DEVICE, text) is not None
    if cause.slug not in _OPEN and not names_device:
        return None
    slug = shown_by(fault)
    if slug == "cuda-kernel-fault" and about_devices:
        return None  # the output says as much
    is_sure = slug != "cuda-kernel-fault" and (
        fault.kind == "missing" or about_devices or "unhandled cuda error" in text
    )
    detail = escaped(fault.detail, 80)
    says = {
        "xid": f"{{device}} reported Xid {fault.number}",
        "missing": "{device} is missing",
        "health": f"{{device}} reported a fault ({detail})",
    }.get(fault.kind, "")
    return _measured(cause, slug, says, "high" if is_sure else "low", fault.device)


def shown_by(fault: DeviceFault) -> str:
    """Return the slug of the cause that a fault of a device shows."""
    if fault.kind == "xid":
        rows = (row for row in signatures() if row.needle == "Xid")
        slugs = (row.slug for row in rows if row.match(f"Xid (PCI): {fault.number}") is not None)
        return next(slugs, "cuda-kernel-fault")
    return "gpu-ecc" if fault.kind == "ecc" else "gpu-lost"
