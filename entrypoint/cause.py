"""Why a rank or program failed: the value that nodes exchange, and that the job's result holds; and
what a node knows of a failure besides the output, measured once after it."""

# Without `from __future__ import annotations`: wire.py reads the annotations as values.
from typing import Annotated, Literal, get_args

from entrypoint.values import dataclass
from entrypoint.wire import Length, one_of

Role = Literal["root", "cascade", "unclear"]
Blame = Literal["program", "node", "device", "platform", "peer", "network", "storage", "unknown"]
Retry = Literal["no", "same", "elsewhere", "unknown"]
Certainty = Literal["high", "low"]
DeviceFaultKind = Literal["ecc", "xid", "missing", "health", "held"]
ROLES = get_args(Role)
BLAMES = get_args(Blame)
RETRIES = get_args(Retry)
CERTAINTIES = get_args(Certainty)
LINES, LINE = 3, 300  # lines of the output that show the cause, characters in each
_NAME = Length(200)
REASON = 400  # characters of a reason, or of an instruction
_SENTENCE = Length(REASON)


@dataclass(frozen=True)
class Cause:
    """Why a rank or program failed, by what it printed and what its node measured."""

    # The kind of cause, such as `gpu-ecc`: entrypoint/causes lists all.
    slug: Annotated[str, Length(40)]
    # The first failure itself, or only a consequence of another one.
    role: Annotated[Role, one_of(*ROLES)]
    blame: Annotated[Blame, one_of(*BLAMES)]
    # Whether the same job may succeed: on the same nodes, or only on others.
    retry: Annotated[Retry, one_of(*RETRIES)]
    certainty: Annotated[Certainty, one_of(*CERTAINTIES)]
    # The cause in words, with `{device}` for the device: `{device} reported an ECC error`.
    says: Annotated[str, _SENTENCE]
    fix: Annotated[str, _SENTENCE] = ""  # an instruction
    # Such as `GPU 2`; "" if it is unknown or has nothing to do with it.
    device: Annotated[str, _NAME] = ""
    # Of the output, that show it.
    lines: Annotated[tuple[Annotated[str, Length(LINE)], ...], Length(LINES)] = ()
    rank: Annotated[str, _NAME] = ""  # or the program that failed: `rank 3`
    # Where that ran: `worker-3 (node-3)`, or its address before the leader has the cause.
    node: Annotated[str, _NAME] = ""

    @property
    def is_infrastructure(self) -> bool:
        """Whether it is certain that not the program failed, and that a retry may help."""
        return self.certainty == "high" and self.retry in ("same", "elsewhere")


@dataclass(frozen=True)
class Exclusion:
    """A node that a job has replaced by a spare, and why."""

    node: Annotated[str, _NAME]  # its label: `worker-2`
    host: Annotated[str, _NAME]
    why: Annotated[str, _SENTENCE]


@dataclass(frozen=True)
class DeviceFault:
    """A fault that the tool of a device (nvidia-smi, npu-smi) or the kernel has reported."""

    device: str  # such as `GPU 2` or `NPU 0`
    kind: DeviceFaultKind  # held: its memory is in use by processes that are not of this job
    detail: str  # as reported, one line
    number: int = 0  # of an Xid; the count of uncorrected errors for `ecc`


@dataclass(frozen=True)
class Evidence:
    """A node's measurements at the time of a failure, and what they were when the ranks started."""

    oom_kills: int = 0  # processes of this container that the kernel has killed for want of memory
    refused_processes: int = 0  # that the kernel did not start because of the container's limit
    shm_free: int | None = None  # bytes left in /dev/shm
    shm_size: int | None = None  # bytes
    disk_full: tuple[str, ...] = ()  # directories of the job without space or inodes
    device_faults: tuple[DeviceFault, ...] = ()
