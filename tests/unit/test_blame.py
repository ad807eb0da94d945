"""What was called the program's own failure, or its memory, and is not: whose it is, and what the cause
names."""

from __future__ import annotations

import pytest

from entrypoint.causes.judge import judge

TRACEBACK = ["Traceback (most recent call last):", '  File "train.py", line 3, in <module>']
PSEC = """\
A requested component was not found, or was unable to be opened.  This
means that this component is either not installed or is unable to be
used on your system (e.g., sometimes this means that shared libraries
that the component requires are unable to be found/loaded).  Note that
PMIx stopped checking at the first component that it did not find.

Host:      vm
Framework: psec
Component: munge"""
RAY = """\
RuntimeError: Version mismatch: The cluster was started with:
    Ray: 2.9.0
    Python: 3.10.12
This process on node 10.0.0.4 was started with:
    Ray: 2.10.0
    Python: 3.11.4"""
GRPC = """\
grpc._channel._InactiveRpcError: <_InactiveRpcError of RPC that terminated with:
\tstatus = StatusCode.{}
\tdetails = "{}"
\tdebug_error_string = "UNKNOWN:Error received from peer"
>"""
WORKER = "RuntimeError: DataLoader worker (pid 57) is killed by signal: {}. "


@pytest.mark.parametrize(
    ("output", "slug", "words"),
    [
        # a size that another rank has sent, or nobody
        ("torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate more than 1EB memory.", "collective-mismatch", "size"),
        ("RuntimeError: [enforce fail at alloc_cpu.cpp:114] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to allocate 7310868735396767279 bytes. Error code 12 (Cannot allocate memory)", "collective-mismatch", "size"),
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 6808850287.35 GiB. GPU 0 has a total capacity of 79.15 GiB", "collective-mismatch", "size"),
        # what the launcher did not start or reach
        ("At least one pair of MPI processes are unable to reach each other for", "net-unreachable", "reach"),
        ("from another.  This *usually* means that an underlying communication\nMPI_INIT has failed because at least one MPI process is unreachable", "net-unreachable", "reach"),
        ("srun: error: Task launch for StepId=12.0 failed on node n1: Communication connection failure", "setup", "srun"),
        ("srun: error: task 0 launch failed: Slurmd could not connect IO", "setup", "srun"),
        ("srun: error: Application launch failed: Invalid job credential", "setup", "srun"),
        ("srun: error: Unable to confirm allocation for job 12: Invalid job id specified", "setup", "srun"),
        ("srun: error: Unable to contact slurm controller (connect failure)", "setup", "srun"),
        ("srun: error: Couldn't find the specified plugin name for mpi/pmix looking at all files", "setup", "srun"),
        ("srun: fatal: cannot find mpi plugin for mpi/pmix", "setup", "srun"),
        (PSEC, "setup", "PMIX_MCA_"),
        (PSEC.replace("psec", "btl"), "setup", "component"),
        ("We were unable to find any usable plugins for the PSEC framework. This PMIx", "setup", "PMIX_MCA_"),
        # the user of the container
        ("PermissionError: [Errno 13] Permission denied: '/.cache'", "permission", "HOME"),
        ("mkdir: cannot create directory '/.config': Permission denied", "permission", "HOME"),
        ("PermissionError: [Errno 13] Permission denied: '/.triton/cache'", "permission", "HOME"),
        ("KeyError: 'getpwuid(): uid not found: 12345'", "setup", "passwd"),
        ("whoami: cannot find name for user ID 12345", "setup", "passwd"),
        ("No user exists for uid 12345", "setup", "passwd"),
        ("OSError: No username set in the environment", "setup", "passwd"),
        (RAY, "lib-mismatch", "Ray 2.9.0 with Python 3.10.12, and Ray 2.10.0 with Python 3.11.4"),
        ("RuntimeError: Version mismatch: The cluster was started with:", "lib-mismatch", "Ray"),
        ("DistStoreError: use_libuv was requested but PyTorch was built without libuv support", "setup", "libuv"),
        # other services and numbers
        ("OSError: [Errno 102] Network dropped connection on reset", "net-unreachable", ""),
        ("OSError: [Errno 67] Link has been severed", "storage-io", ""),
        ("OSError: [Errno 123] No medium found: '/data'", "storage-io", ""),
        ("OSError: [Errno 126] Required key not available: '/data/x'", "permission", ""),
        (GRPC.format("UNAVAILABLE", "Socket was reset"), "net-unreachable", ""),
        (GRPC.format("DEADLINE_EXCEEDED", "Deadline Exceeded"), "collective-timeout", ""),
        (GRPC.format("DATA_LOSS", "x"), "storage-io", ""),
        (GRPC.format("UNAUTHENTICATED", "x"), "permission", ""),
        ("pymysql.err.OperationalError: (2013, 'Lost connection to MySQL server during query')", "net-unreachable", "database"),
        ("MySQLdb.OperationalError: (2006, 'MySQL server has gone away')", "net-unreachable", "database"),
        ("pymysql.err.OperationalError: (2003, \"Can't connect to MySQL server on 'db' (timed out)\")", "net-unreachable", "database"),
        ("psycopg2.OperationalError: server closed the connection unexpectedly", "net-unreachable", "database"),
        ("psycopg2.OperationalError: SSL SYSCALL error: EOF detected", "net-unreachable", "database"),
        ("pymongo.errors.ServerSelectionTimeoutError: db:27017: timed out", "net-unreachable", "database"),
        (WORKER.format("Terminated"), "stopped-outside", "worker"),
        (WORKER.format("Hangup"), "stopped-outside", "worker"),
        (WORKER.format("Aborted"), "native-crash", ""),
        (WORKER.format("Segmentation fault"), "native-crash", ""),
        (WORKER.format("Floating point exception"), "native-crash", ""),
        (WORKER.format("Illegal instruction"), "arch-mismatch", ""),
    ],
)  # fmt: skip
@pytest.mark.promise("labelled failures are judged rightly, and no mistake is retried")
def test_whose_it_is(output: str, slug: str, words: str) -> None:
    cause = judge([*TRACEBACK, *output.split("\n")], 1)
    assert (cause.slug, words in f"{cause.says} {cause.fix}") == (slug, True), cause
    assert cause.retry in ("no", "unknown"), cause


@pytest.mark.parametrize(
    ("output", "slug"),
    [
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 336.00 MiB.", "gpu-oom"),
        ("RuntimeError: DefaultCPUAllocator: can't allocate memory: you tried to allocate 73108687353 bytes.", "host-oom"),
        ("srun: error: n1: task 0: Exited with exit code 1", "launcher-stop"),
        ("srun: error: n1: tasks 0-7: Terminated", "launcher-stop"),
        ("srun: error: n1: task 3: Killed", "killed-unknown"),
        ("PermissionError: [Errno 13] Permission denied: '/data/.cache'", "permission"),
        ("KeyError: 'uid'", "user-code"),
        ("KeyError: 'UNAVAILABLE'", "user-code"),
        ("ValueError: (2013, 'a year')", "user-code"),
        ("RuntimeError: Version mismatch: the checkpoint has 2", "user-code"),
    ],
)  # fmt: skip
@pytest.mark.control("labelled failures are judged rightly, and no mistake is retried")
def test_what_only_looks_like_it(output: str, slug: str) -> None:
    cause = judge([*TRACEBACK, *output.split("\n")], 1)
    assert (cause.slug, "HOME" in cause.fix) == (slug, False)
