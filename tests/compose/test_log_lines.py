"""What ranks print in real containers, as whole lines with their prefix: every MPI cuts them on
their way."""

from __future__ import annotations

import re
import secrets
from collections import Counter
from pathlib import Path

import pytest

from tests.containers import MPI4, MPI5, MPICH
from tests.modelarts import ModelArts
from tests.rows import ended

pytestmark = [pytest.mark.see]
MPIS = [
    pytest.param(MPI5, "mpirun", id="Open MPI 5"),
    pytest.param(MPI4, "mpirun", id="Open MPI 4"),
    pytest.param(MPICH, "hydra", id="MPICH"),
]
HOSTS = ("worker-0", "worker-1")
# What the engine keeps of a container's output is no measure: it makes U+FFFD of what is no UTF-8.
INTO_FILES = (
    *("-s", "--", "sh", "-c", 'exec /usr/local/bin/image-entry "$@" >/out/out 2>/out/err', "sh"),
    *("/usr/bin/python3", "/program.py"),
)
TIMES, RANKS = 5, 4
# A line of 1 MiB, a progress bar, what is no UTF-8 or looks like an MPI's own, short lines, both
# streams; no last end.
PROGRAM = f"""
import os
def put(fd, data):
    while data:
        data = data[os.write(fd, data):]
rank = os.environ["RANK"].encode()
for turn in range({TIMES}):
    put(1, b"long " + rank * (1 << 20) + b"\\n")
    put(1, b"%a 1%%\\r" % turn); put(1, b"%a 2%%\\r" % turn); put(1, b"%a done\\r\\n" % turn)
    put(1, b"\\xff\\xfe\\0\\x1e\\x1f\\x10<[1,0]<stdout>: \\n")
    put(2, b"error " + b"e" * 5000 + b"\\n")
    for number in range(50):
        put(1, b"short %d\\n" % number)
put(1, b"last")
"""


def wanted(rank: int) -> Counter[bytes]:
    """The lines of this rank's stdout, with its prefix."""
    once = [
        b"\xff\xfe\0\x1e\x1f\x10<[1,0]<stdout>: \n",
        *(b"short %d\n" % number for number in range(50)),
    ]
    each = [b"long " + b"%d" % rank * (1 << 20) + b"\n", *once] * TIMES
    each += [
        b"%d %s" % (turn, end) for turn in range(TIMES) for end in (b"1%\r", b"2%\r", b"done\r\n")
    ]
    return Counter(b"[worker-%d %d] %s" % (rank // 2, rank, line) for line in (*each, b"last\n"))


def lines(data: bytes) -> Counter[bytes]:
    return Counter(re.findall(rb"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+\Z", data))


@pytest.mark.promise(
    "lines under every MPI have their prefix and are whole, whatever their bytes",
    control="its case of bare mpirun",
)
@pytest.mark.parametrize("asked", [True, False], ids=["prefix", "nothing asked"])
@pytest.mark.parametrize(("image", "launcher"), MPIS)
def test_every_line_of_every_rank_is_whole(
    image: str, launcher: str, asked: bool, modelarts: ModelArts, tmp_path: Path
) -> None:
    """Also where nobody asked for anything. The control, bare mpirun, is in
    loopback/test_logs.py."""
    env = {
        "ENTRYPOINT_HOSTS": ",".join(HOSTS),
        "ENTRYPOINT_SECRET": secrets.token_hex(32),
        "ENTRYPOINT_LAUNCHER": launcher,
        "ENTRYPOINT_SLOTS": "2",
        "ENTRYPOINT_LOGS_PREFIX": "[{node} {rank}] " if asked else "",
        "ENTRYPOINT_LOGS_FILES": "ranks" if asked else "",
        "ENTRYPOINT_LOG_DIR": "/out/logs",
        "ENTRYPOINT_LOGS_MAX_SIZE": "3000000",
    }
    (tmp_path / "program.py").write_text(PROGRAM)
    (tmp_path / "program.py").chmod(0o444)
    containers = {}
    for rank, host in reversed(list(enumerate(HOSTS))):
        own, out = {**env, "ENTRYPOINT_NODE_RANK": str(rank)}, tmp_path / host
        out.mkdir()
        out.chmod(0o777)  # the container's user is not this one
        mounts = (f"{tmp_path}/program.py:/program.py:ro", f"{out}:/out")
        containers[host] = modelarts.container(
            image, host, "mpi", *INTO_FILES, env=own, mounts=mounts,
            options=("--entrypoint", "/usr/bin/tini"),
        )  # fmt: skip
    printed, errors = ((tmp_path / "worker-0" / name) for name in ("out", "err"))
    assert ended(containers, 150) == dict.fromkeys(HOSTS, 0), errors.read_bytes()[-2000:]
    found = lines(printed.read_bytes())
    all_of_them = sum(map(wanted, range(RANKS)), Counter[bytes]())
    if not asked:
        all_of_them = Counter(line.split(b"] ", 1)[1] for line in all_of_them.elements())
        found[b"last\n"] += found.pop(b"last", 0)  # the very last one has no end
    lost, strange = all_of_them - found, found - all_of_them
    assert (short(lost), short(strange)) == ([], [])
    if not asked:
        return
    said = lines(errors.read_bytes())
    assert [
        said[b"[worker-%d %d] error %s\n" % (rank // 2, rank, b"e" * 5000)] for rank in range(RANKS)
    ] == [TIMES] * 4
    kept = tmp_path / "worker-1" / "logs"
    assert sorted(path.name for path in kept.iterdir()) == [
        f"job-worker-1-rank-{rank}.log{older}" for rank in (2, 3) for older in ("", ".1")
    ]
    copied = b"".join(
        (kept / f"job-worker-1-rank-3.log{older}").read_bytes() for older in (".1", "")
    )
    printed_by_3 = [line[len(b"[worker-1 3] ") :] for line in wanted(3).elements()]
    every = b"".join(printed_by_3).removesuffix(b"\n") + b"error %s\n" % (b"e" * 5000) * TIMES
    assert Counter(copied) == Counter(every), "every byte, in two files; both streams are in them"


def short(some: Counter[bytes]) -> list[bytes]:
    """A few of them, for a person."""
    return [line[:30] + b" ... " + line[-30:] for line in some][:5]
