"""The kinds of causes: what each means, whose it usually is, whether a retry helps, and what to do.

A signature names its kind and states only what differs from it.
"""

from __future__ import annotations

from collections.abc import Mapping

from entrypoint.cause import Blame, Certainty, Retry, Role
from entrypoint.values import dataclass

# How decisive a kind is. Of several that match, the smallest number wins; in doubt the one that was
# printed first.
HARDWARE = 10  # reported by a device, the kernel or the scheduler
NAMED = 20  # a system call or library names what failed
LIKELY = 30  # named, but the message has several causes
PYTHON = 36  # an exception whose type or text names what failed
LAST_EXCEPTION = 40  # any other exception, or a crash
WARNED = 46  # a warning, or an error that was followed by progress
KILLED = 48  # the end itself is known, but not why
WAITED = 52  # others did not come: mostly a consequence
CONSEQUENCE = 60  # the other end is gone
REPORTED = 70  # the launcher's report that something failed elsewhere


@dataclass(frozen=True)
class CauseKind:
    """A kind of cause, with the usual values of what belongs to it."""

    slug: str
    meaning: str  # for the documentation
    says: str  # in words; `{device}` stands for the device
    fix: str  # an instruction
    blame: Blame
    retry: Retry
    weight: int  # one of the above
    role: Role = "root"
    certainty: Certainty = "high"


_ROWS = (
    CauseKind(
        "addr-in-use",
        "a port that the job needs is taken",
        "a port that the job needs was already in use",
        "choose another port, or find its holder with `ss -ltnp` on that node",
        "node",
        "elsewhere",
        NAMED,
        certainty="low",
    ),
    CauseKind(
        "arch-mismatch",
        "code that was built for another GPU or CPU",
        "the program has no code for this kind of GPU or CPU",
        (
            "use an image that was built for this hardware, or nodes with the hardware it "
            "was built for"
        ),
        "program",
        "no",
        NAMED,
    ),
    CauseKind(
        "cache-race",
        "processes raced for an entry of a compile cache (Triton, Inductor, torch extensions)",
        "processes raced for an entry of a compile cache",
        (
            "give each rank a cache directory on a local disk (TRITON_CACHE_DIR, "
            "TORCHINDUCTOR_CACHE_DIR)"
        ),
        "program",
        "same",
        NAMED - 2,
        certainty="low",
    ),
    CauseKind(
        "ckpt-corrupt",
        "a checkpoint or weight file is cut off or damaged",
        "a checkpoint or weight file is damaged",
        "load the checkpoint before it, or fetch the file again",
        "storage",
        "no",
        NAMED,
    ),
    CauseKind(
        "collective-mismatch",
        "ranks called different collectives, or the same one with other shapes",
        "the ranks called different collectives, or the same one with different shapes",
        "make all ranks take the same path: same number of batches, same shapes, same order",
        "program",
        "no",
        NAMED,
    ),
    CauseKind(
        "collective-timeout",
        "a collective did not end in time (NCCL watchdog, HCCL notify)",
        "a collective operation did not end in time",
        "look at the rank that reports no time-out: it is the one that did not take part",
        "unknown",
        "unknown",
        WAITED,
        "unclear",
        "low",
    ),
    CauseKind(
        "cuda-kernel-fault",
        "a fault in a device kernel: illegal memory access, unspecified launch failure, Xid 13, 31"
        " or 109",
        "a kernel failed on {device}",
        (
            "run with CUDA_LAUNCH_BLOCKING=1; if it happens again on the same card only, "
            "exclude that node"
        ),
        "program",
        "unknown",
        LIKELY,
        certainty="low",
    ),
    CauseKind(
        "device-assert",
        "an assertion in a device kernel, such as an index out of bounds",
        "an assertion failed in a kernel of the program",
        "run with CUDA_LAUNCH_BLOCKING=1, and check indices, labels and token numbers",
        "program",
        "no",
        NAMED,
    ),
    CauseKind(
        "disk-full",
        "no space, no inodes, a quota, or a failed write of a checkpoint",
        "a disk was full",
        "make room, or write somewhere else",
        "storage",
        "no",
        NAMED,
    ),
    CauseKind(
        "dns",
        "a name has no address",
        "a host name could not be resolved",
        "check the name and the DNS of that node: `getent hosts NAME`",
        "network",
        "unknown",
        NAMED - 1,
    ),
    CauseKind(
        "download",
        "a passing fault of a hub or object store: 5xx, time-out, reset, throttling",
        "a download or upload failed",
        "try again later; for many nodes, fetch once into shared storage",
        "network",
        "same",
        NAMED + 2,
    ),
    CauseKind(
        "fd-limit",
        "too many open files",
        "the limit of open files was reached",
        "raise `ulimit -n`, or use fewer workers"
        " (torch.multiprocessing.set_sharing_strategy('file_system'))",
        "platform",
        "no",
        NAMED - 2,
    ),
    CauseKind(
        "file-missing",
        "a file or directory is not there",
        "a file or directory does not exist",
        "check the path, and that the node has mounted it",
        "program",
        "no",
        PYTHON,
    ),
    CauseKind(
        "gpu-busy",
        "the device is held by another process",
        "{device} was in use by another process",
        "find its holder with `nvidia-smi` or `npu-smi info` on that node, or exclude the node",
        "node",
        "unknown",
        NAMED,
        certainty="low",
    ),
    CauseKind(
        "gpu-ecc",
        "an uncorrectable memory error of the device; Xid 48, 63, 64, 94, 95",
        "{device} reported an uncorrectable ECC error",
        "exclude the node, reset the device, and have it replaced if it happens again",
        "device",
        "elsewhere",
        HARDWARE,
    ),
    CauseKind(
        "gpu-init",
        "driver, fabric manager or NVML of the node are not usable, or no device is visible",
        "{device} could not be initialised",
        "run `nvidia-smi` on that node and check driver and fabric manager; exclude the node",
        "node",
        "elsewhere",
        NAMED,
    ),
    CauseKind(
        "gpu-lost",
        "a device is gone: off the bus, Xid 79, 119, 120, lost heartbeat",
        "{device} stopped answering",
        "exclude the node and restart it; have the card checked if it happens again",
        "device",
        "elsewhere",
        HARDWARE,
    ),
    CauseKind(
        "gpu-oom",
        "the device's memory is full of this program's own data",
        "the program used up the memory of {device}",
        "use a smaller batch, gradient checkpointing or more sharding",
        "program",
        "no",
        NAMED,
    ),
    CauseKind(
        "gpu-oom-foreign",
        "the device's memory is full, and most of it is held by others",
        "other processes hold the memory of {device}",
        "find them with `nvidia-smi` on that node, or exclude the node",
        "node",
        "elsewhere",
        NAMED,
        certainty="low",
    ),
    CauseKind(
        "harmless",
        "no failure: the words only look like one",
        "nothing failed",
        "nothing has to be done",
        "unknown",
        "no",
        REPORTED + 10,
        certainty="low",
    ),
    CauseKind(
        "host-oom",
        "host memory is used up: the kernel, Slurm, Ray or the allocator say so",
        "the memory of the node or container was used up",
        "give the job more memory, or use fewer data loader workers",
        "program",
        "no",
        NAMED - 2,
    ),
    CauseKind(
        "killed-unknown",
        "SIGKILL, or a worker that is gone, without a reason",
        "a process was killed, and nothing says why",
        "check the memory of that node (`dmesg`, the platform's events)",
        "unknown",
        "unknown",
        KILLED,
        certainty="low",
    ),
    CauseKind(
        "launcher-stop",
        "the launcher or the agent of another node ended it; the cause is elsewhere",
        "the launcher reported that a rank had failed, or ended the others for it",
        "read the output of the rank that ended first",
        "peer",
        "unknown",
        REPORTED,
        "cascade",
    ),
    CauseKind(
        "lib-mismatch",
        "glibc, undefined symbol, libraries that do not fit together",
        "two libraries do not fit together",
        "rebuild the image with matching versions",
        "program",
        "no",
        NAMED - 1,
    ),
    CauseKind(
        "licence",
        "no licence: its server is not reached, or all are in use",
        "no licence was available",
        "check the licence server, or try again later",
        "platform",
        "same",
        NAMED,
    ),
    CauseKind(
        "nan-loss",
        "NaN or Inf stopped the program",
        "the program stopped because of NaN or Inf",
        "go back to an earlier checkpoint, lower the learning rate, check the data",
        "program",
        "no",
        PYTHON,
        certainty="low",
    ),
    CauseKind(
        "native-crash",
        "SIGSEGV, SIGABRT, heap corruption",
        "native code crashed",
        "set PYTHONFAULTHANDLER=1 for the place; if it happens on one node only, exclude it",
        "program",
        "unknown",
        LAST_EXCEPTION,
        certainty="low",
    ),
    CauseKind(
        "net-unreachable",
        "no route, refused, timed out, full mesh failed",
        "another node could not be reached",
        "check addresses, interfaces and firewalls with `entrypoint netcheck`",
        "network",
        "unknown",
        LIKELY,
        certainty="low",
    ),
    CauseKind(
        "node-lost",
        "a daemon or node is gone by the word of the launcher or of Ray",
        "the connection to a node was lost",
        "check that node's state in the platform; exclude it",
        "node",
        "elsewhere",
        HARDWARE,
    ),
    CauseKind(
        "node-unhealthy",
        "a node did not pass its health gate",
        "a node is not healthy",
        "exclude that node until what the gate has found is repaired",
        "node",
        "elsewhere",
        HARDWARE,
    ),
    CauseKind(
        "npu-exception",
        "an exception of an Ascend core, SDMA or MTE",
        "an operator failed on {device}",
        "read the device log (`~/ascend/log`); if it happens on one card only, exclude that node",
        "program",
        "unknown",
        LIKELY,
        certainty="low",
    ),
    CauseKind(
        "nvlink",
        "an NVLink or HCCS fault; Xid 74, 144 to 150",
        "{device} reported a link error",
        "exclude the node and have its links checked",
        "device",
        "elsewhere",
        HARDWARE,
    ),
    CauseKind(
        "peer-lost",
        "the other end of a connection is gone",
        "a connection to another rank was lost",
        "read the output of the rank that ended first",
        "peer",
        "unknown",
        CONSEQUENCE,
        "cascade",
    ),
    CauseKind(
        "permission",
        "rights, of files or of a hub",
        "access was denied",
        "check the rights, the token or the licence of the model",
        "program",
        "no",
        PYTHON,
    ),
    CauseKind(
        "preempted",
        "the scheduler took the node",
        "the scheduler took the node away",
        "nothing has to be done: start again from the last checkpoint",
        "platform",
        "same",
        HARDWARE,
    ),
    CauseKind(
        "proc-limit",
        "no more processes or threads",
        "the limit of processes and threads was reached",
        "raise the container's pids limit or `ulimit -u`, or set OMP_NUM_THREADS",
        "platform",
        "unknown",
        NAMED - 2,
        certainty="low",
    ),
    CauseKind(
        "rdma-error",
        "a completion with an error, exceeded transport retries, EFA errors",
        "an RDMA transfer failed",
        "check links and switches between the two nodes with `entrypoint netcheck`",
        "network",
        "unknown",
        LIKELY,
        certainty="low",
    ),
    CauseKind(
        "rendezvous-timeout",
        "others did not come in time (TCPStore, HCCL EI0006)",
        "other ranks did not join in time",
        "read the output of the ranks that did not join, and check the address of rank 0",
        "peer",
        "unknown",
        WAITED - 1,
        "unclear",
        "low",
    ),
    CauseKind(
        "setup",
        "what the launcher or NCCL needs is not there: ssh, pdsh, orted, sysfs",
        "something that the launcher needs is missing",
        "install or configure it in the image",
        "platform",
        "no",
        LIKELY - 2,
        certainty="low",
    ),
    CauseKind(
        "shm-full",
        "/dev/shm is too small",
        "/dev/shm was full",
        "give the container more shared memory: `docker run --shm-size 16g`, or a memory volume",
        "platform",
        "no",
        NAMED - 2,
    ),
    CauseKind(
        "stopped-outside",
        "SIGINT, SIGHUP or SIGTERM from a person or the platform",
        "the job was stopped from outside",
        "find out who stopped it: a person, the platform's events",
        "platform",
        "unknown",
        LAST_EXCEPTION - 1,
        certainty="low",
    ),
    CauseKind(
        "storage-io",
        "an I/O error, a stale handle, a lost mount, a read-only file system",
        "a file could not be read or written",
        "check the mount on that node (`dmesg`, `mount`)",
        "storage",
        "unknown",
        NAMED,
    ),
    CauseKind(
        "time-limit",
        "the time of the allocation was over",
        "the time limit of the job was reached",
        "ask for more time, or continue from the last checkpoint",
        "platform",
        "unknown",
        HARDWARE,
    ),
    CauseKind(
        "user-args",
        "arguments, configuration, number of ranks",
        "an argument or a setting of the program is wrong",
        "correct the command or the configuration",
        "program",
        "no",
        PYTHON,
    ),
    CauseKind(
        "user-code",
        "an exception of the program",
        "the program ended with an error of its own",
        "correct the program",
        "program",
        "no",
        LAST_EXCEPTION,
    ),
    CauseKind(
        "user-import",
        "a module or library is not in the image",
        "a module or library is not in the image",
        "install it in the image, or set PYTHONPATH or LD_LIBRARY_PATH",
        "program",
        "no",
        PYTHON,
    ),
)

KINDS: Mapping[str, CauseKind] = {kind.slug: kind for kind in _ROWS}
