"""A flood of log lines that can be checked one by one; the standard library alone, since ranks run
it.

python flood.py write BYTES     as rank $RANK: `#RANK NUMBER CRC32 PAYLOAD`; some are 1 MiB long, some not UTF-8
python flood.py check [json]    count what arrives on stdin, behind whatever begins the lines: prints one JSON object
"""

from __future__ import annotations

import base64
import json
import os
import random
import sys
import time
import zlib

LONG = 1 << 20  # bytes of each 2000th payload
TEXT = bytes(range(32, 127))
# of each 50th payload: what ends no line
ANY = bytes(each for each in range(256) if each not in b"\n\r")


def write(size: int) -> None:
    """Print lines until `size` bytes are written."""
    names = ("RANK", "JAX_PROCESS_ID", "OMPI_COMM_WORLD_RANK")
    rank = int(next((os.environ[name] for name in names if name in os.environ), "0"))
    text, binary = (bytes(random.Random(rank).choices(each, k=LONG + 1000)) for each in (TEXT, ANY))
    number = written = 0
    while written < size:
        lines = []
        for _ in range(200):
            begin, block = number * 31 % 997, binary if number % 50 == 7 else text
            payload = block[
                begin : begin + (LONG if number % 2000 == 1999 else 20 + number * 17 % 300)
            ]
            lines.append(b"#%d %d %08x %b\n" % (rank, number, zlib.crc32(payload), payload))
            number += 1
        batch = b"".join(lines)
        written += len(batch)
        while batch:
            batch = batch[os.write(1, batch) :]
    os.write(1, b"#%d %d %08x %b\n" % (rank, number, zlib.crc32(b"end"), b"end"))


def check(as_json: bool) -> None:
    """Each line by its number and its checksum."""
    following: dict[int, int] = {}
    ended, broken, first, size, seconds = 0, [], 0.0, 0, 0.0
    for line in sys.stdin.buffer:
        now = time.monotonic()
        first = first or now
        size, seconds = size + len(line), now - first
        if as_json:
            found = json.loads(line)
            if found["stream"] == "entrypoint":
                continue
            text = (
                base64.b64decode(found["base64"]) if "base64" in found else found["text"].encode()
            )
            line = text + b"\n" * ("partial" not in found)
        try:
            before, _, rest = line.partition(b"#")
            rank, number, crc, payload = rest.split(b" ", 3)
            right = (
                int(crc, 16) == zlib.crc32(payload[:-1])
                and payload.endswith(b"\n")
                and b"\n" not in before
            )
            right = right and int(number) == following.get(int(rank), 0)
            following[int(rank)] = int(number) + 1
            ended += payload == b"end\n"
        except ValueError:
            right = False
        if not right:
            broken.append(repr(line[:60]))
    lines = sum(following.values())
    answer = {"lines": lines, "ranks": len(following), "ended": ended, "broken": len(broken)}
    print(json.dumps({**answer, "examples": broken[:3], "bytes": size, "seconds": seconds}))


if __name__ == "__main__":
    if sys.argv[1] == "write":
        write(int(sys.argv[2]))
    else:
        check(sys.argv[2:] == ["json"])
