"""Host memory, shared memory, and the limits of processes and open files."""

from __future__ import annotations

from entrypoint.causes.kinds import HARDWARE, KILLED, LIKELY, NAMED, PYTHON
from entrypoint.causes.signature import Signature

_SHM = NAMED - 3  # the same line may name a full disk

ROWS = (
    # the kernel, the batch system, the container's runtime
    Signature("host-oom", "emory cgroup out of memory", weight=HARDWARE),
    Signature("host-oom", "oom-kill", pattern="oom-kill(ed)? ?:|oom-kill event|oom-killer"),
    Signature("host-oom", "oom_kill event"),
    Signature("host-oom", "OOM Killed"),
    Signature("host-oom", "OOMKilled", pattern=r"OOMKilled\b(?!\W{0,3}[Ff]alse)"),
    Signature("host-oom", "Out Of Memory", pattern=r"task \d|tasks \d"),
    Signature("host-oom", "OUT_OF_MEMORY", pattern="(?i)state|slurm|job"),
    Signature(
        "host-oom",
        "Out of memory: Kill",
        "the memory of the machine was used up",
        retry="unknown",
    ),
    Signature(
        "host-oom",
        "memory limit",
        pattern="(?i)exceeded (job|step|the)? ?memory limit .{0,60}being killed",
    ),
    Signature("host-oom", "xceeded job memory limit", certainty="low"),
    Signature("host-oom", "xceeded step memory limit", certainty="low", weight=KILLED - 1),
    Signature("host-oom", "TERM_MEMLIMIT"),
    Signature("host-oom", "job killed", pattern="(?i)(vmem|mem|pmem|pvmem) .{0,40}exceed"),
    Signature("host-oom", "node was low on resource: memory"),
    Signature(
        "host-oom", "Memory usage", pattern="(?i)exceed(s|ed) .{0,40}(container|pod) .{0,20}limit"
    ),
    # Ray
    Signature("host-oom", "node running low on memory", certainty="low"),
    Signature("host-oom", "killed due to memory pressure"),
    Signature("host-oom", "killed due to the node running low on memory", certainty="low"),
    Signature("host-oom", "RayOutOfMemoryError"),
    Signature("host-oom", "ray.exceptions.OutOfMemoryError", certainty="low"),
    Signature(
        "host-oom",
        "ObjectStoreFullError",
        "the object store of Ray was full",
        certainty="low",
    ),
    # allocators
    Signature(
        "host-oom",
        "MemoryError",
        "the program asked for more memory than there is",
        pattern=r"(?:^|\b[\w.]+\.)_?(Array)?MemoryError\b(:|$)",
    ),
    Signature(
        "host-oom", "DefaultCPUAllocator", pattern="(?i)can't allocate memory|not enough memory"
    ),
    Signature("host-oom", "std::bad_alloc", certainty="low"),
    Signature("host-oom", "Unable to allocate", pattern=r"Unable to allocate [\d.]+ [KMGTP]?i?B"),
    Signature("host-oom", "OOM when allocating tensor", pattern="(?i)cpu", weight=NAMED),
    Signature("host-oom", "Cannot allocate memory", pattern="", certainty="low", weight=NAMED + 3),
    Signature(
        "host-oom", "cudaHostAlloc", pattern="(?i)fail|error", certainty="low", weight=LIKELY
    ),
    Signature("host-oom", "malloc of size", pattern="(?i)failed", certainty="low"),
    Signature("host-oom", "ArrowMemoryError"),
    # a process was killed, and only its kind makes memory likely
    Signature(
        "host-oom",
        "is killed by signal: Killed",
        "a data loader worker was killed, which usually means that memory was used up",
        certainty="low",
    ),
    # shared memory
    Signature("shm-full", "insufficient shared memory"),
    Signature("shm-full", "is killed by signal: Bus error"),
    Signature(
        "shm-full",
        "/dev/shm",
        pattern=(
            "(?i)(no space left|not enough (free )?space|errno 28|too small).{0,200}"
            "/dev/shm|/dev/shm.{0,200}(no space left|not enough (free )?space|errno "
            "28|is too small)"
        ),
        weight=_SHM,
    ),
    Signature("shm-full", "No space left on device", pattern="</?torch_|/torch_\\d", weight=_SHM),
    Signature("shm-full", "rror while creating shared memory segment", weight=_SHM),
    Signature(
        "shm-full", "rror while attaching to shared memory segment", weight=_SHM, certainty="low"
    ),
    Signature("shm-full", "unable to write to file </torch_", weight=_SHM),
    Signature("shm-full", "unable to allocate shared memory", weight=_SHM),
    Signature("shm-full", "posix_fallocate failed", weight=_SHM),
    Signature(
        "shm-full",
        "shared memory",
        pattern=(
            "(?i)(unable to|failed to|could not|cannot) (create|allocate|extend|"
            "resize|allocate) .{0,30}shared memory.{0,120}(space|28)"
        ),
        weight=_SHM,
    ),
    Signature("shm-full", "unable to mmap", pattern="</?torch_", weight=_SHM, certainty="low"),
    Signature("shm-full", "unable to resize file </torch_", weight=_SHM, certainty="low"),
    Signature("shm-full", "not enough space for", pattern="shared-memory backing", weight=_SHM),
    Signature(
        "shm-full",
        "us error",
        pattern=(
            r"(?i)(?:^|: ?)bus error *(?:\(core|$)|\(bus error\)|fatal python error: "
            r"bus error|signal: bus error|: Bus error"
        ),
        certainty="low",
        weight=LIKELY,
    ),
    # open files
    Signature("fd-limit", "Too many open files"),
    Signature("fd-limit", "too many open files"),
    Signature("fd-limit", "received 0 items of ancdata"),
    Signature("fd-limit", "received 0 items of ancillary data"),
    Signature("fd-limit", "EMFILE"),
    # processes and threads
    Signature(
        "proc-limit",
        "RLIMIT_NPROC",
        "the limit of processes (RLIMIT_NPROC {limit}) was reached",
        r"RLIMIT_NPROC (?P<limit>[1-9]\d*) current",
        retry="no",
        certainty="high",
        weight=NAMED - 3,
    ),
    Signature("proc-limit", "pthread_create failed"),
    Signature("proc-limit", "pthread_create() failed"),
    Signature("proc-limit", "can't start new thread"),
    Signature("proc-limit", "cannot start new thread"),
    Signature(
        "proc-limit", "fork: ", pattern="(?i)resource temporarily unavailable|cannot allocate"
    ),
    Signature("proc-limit", "BlockingIOError: [Errno 11]", weight=PYTHON - 6),
    Signature("proc-limit", "Thread creation failed"),
    Signature(
        "proc-limit",
        "hread",
        pattern=(
            "(?i)(create|start|spawn|creating|creation).{0,40}thread.{0,60}(resource "
            "temporarily unavailable|os error 11|EAGAIN)|thread constructor failed: "
            "Resource"
        ),
    ),
    Signature("proc-limit", "fork rejected by pids controller", certainty="high"),
    Signature("proc-limit", "newosproc"),
    Signature("shm-full", "lease check that /dev/shm", weight=_SHM),
    Signature(
        "shm-full",
        "multiprocessing/synchronize.py",
        "a semaphore could not be made in /dev/shm",
        certainty="low",
        weight=_SHM,
        also="[Errno 28]",
        always=True,
    ),
    Signature(
        "shm-full",
        "multiprocessing/heap.py",
        certainty="low",
        weight=_SHM,
        also="[Errno 28]",
        always=True,
    ),
    Signature(
        "shm-full",
        "multiprocessing/shared_memory.py",
        certainty="low",
        weight=_SHM,
        also="[Errno 28]",
        always=True,
    ),
    Signature("fd-limit", "unable to open shared memory object </torch_", certainty="low"),
    Signature("fd-limit", "number of pipes that can be open"),
    Signature("fd-limit", "Errno 24]"),
    Signature("fd-limit", "os error 24)"),
    Signature("proc-limit", "number of children a process can have"),
    Signature("proc-limit", "to allocate necessary resources for OMP thread"),
    Signature("proc-limit", "failed to create new OS thread"),
    Signature("proc-limit", "pthread_create()"),
    Signature("proc-limit", "Cannot fork"),
    Signature("proc-limit", "fork failed"),
    Signature("proc-limit", "posix_spawn", pattern="(?i)temporarily unavailable"),
    Signature(
        "proc-limit",
        "esource temporarily unavailable",
        pattern=r"what\(\):.{0,40}Resource temporarily|system_error.{0,60}Resource temporarily",
        weight=PYTHON,
    ),
    Signature("host-oom", "memory budget", pattern="(?i)exceed", certainty="low"),
    Signature("host-oom", "OutOfMemoryError: Java heap space"),
    Signature("host-oom", "invoked oom-killer"),
    Signature(
        "host-oom", "Killed process", pattern=r"Killed process \d+ .{0,60}(vm|rss)", weight=NAMED
    ),
    Signature("host-oom", "oom_reaper", weight=NAMED),
    Signature("host-oom", "Errno 12]", certainty="low", weight=NAMED + 3),
    Signature("host-oom", "os error 12)", certainty="low", weight=NAMED + 3),
)
