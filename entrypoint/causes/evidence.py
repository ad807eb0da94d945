"""The evidence of a failure besides the output: measured once on the node, after a rank failed."""

from __future__ import annotations

from typing import Literal

from entrypoint.base.values import frozen

DeviceFaultKind = Literal["ecc", "xid", "missing", "health"]


@frozen
class DeviceFault:
    """A fault that the tool of a device (nvidia-smi, npu-smi) or the kernel has reported."""

    device: str  # such as `GPU 2` or `NPU 0`
    kind: DeviceFaultKind
    detail: str  # as reported, one line
    number: int = 0  # of an Xid; the count of uncorrected errors for `ecc`


@frozen
class Evidence:
    """A node's measurements at the time of a failure, and what they were when the ranks started."""

    oom_kills: int = 0  # processes of this container that the kernel has killed for want of memory
    refused_processes: int = 0  # that the kernel did not start because of the container's limit
    shm_free: int | None = None  # bytes left in /dev/shm
    shm_size: int | None = None  # bytes
    disk_full: tuple[str, ...] = ()  # directories of the job without space or inodes
    device_faults: tuple[DeviceFault, ...] = ()
