"""The helper process of a node, as its entrypoint speaks to it: real processes, pipes and
sockets."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import struct
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from entrypoint.netcheck import measure, process
from entrypoint.netcheck.link import DRAIN, Listener, PeerLink
from entrypoint.netcheck.messages import (
    MOST,
    Figures,
    MeasurePair,
    Open,
    Ready,
    Reduce,
    ServeReduce,
    Unable,
    packed,
    unpacked,
)
from entrypoint.netcheck.process import HelperProcess
from tests.process.bench import until

pytestmark = pytest.mark.see
TOKEN = "0123456789abcdef" * 4
# In the place of torch's Python.
PYTHON = """#!/bin/sh
[ "$3" = 0 ] && echo '{"port": 4711}'
echo "$6" >&2
echo 'a line of a library'
%s
echo '{"backend": "gloo"}'; echo '{"size": 1024, "seconds": 0.5}'
"""


@contextlib.asynccontextmanager
async def helper(
    env: dict[str, str] | None = None, token: str = TOKEN
) -> AsyncIterator[HelperProcess]:
    made = HelperProcess(sys.executable, {"PATH": "/nothing", **(env or {})}, token)
    try:
        yield made
    finally:
        await made.close()


async def ask(asked: HelperProcess, question: Any, kind: type) -> Any:
    return unpacked(dict(await asked.reply(packed(question))), kind, Unable)


def run(test: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(test(), 60))  # type: ignore[arg-type]


def torch(folder: Path, meanwhile: str = "") -> dict[str, str]:
    """A PATH whose python seems to have torch."""
    file = folder / "python"
    file.write_text(PYTHON % meanwhile)
    file.chmod(0o755)
    return {"PATH": f"{folder}:{os.environ['PATH']}"}


def measured_by(port: int) -> MeasurePair:
    return MeasurePair("127.0.0.1", port, 0.1)


def test_two_helpers_measure_with_each_other() -> None:
    async def test() -> None:
        async with helper() as one, helper() as other:
            assert isinstance(await ask(one, Open(), Ready), Ready)
            there = await ask(other, Open(), Ready)
            figures = await ask(one, measured_by(there.port), Figures)
            assert isinstance(figures, Figures), figures
            assert 0 < figures.latency_ms <= figures.worst_ms
            assert min(figures.there_gbps, figures.back_gbps) > 0.01

    run(test)


@pytest.mark.promise(
    "nobody without the job's token takes part in its network check",
    control="helpers of one job, in the same file",
)
def test_helpers_of_two_jobs_do_not() -> None:
    async def test() -> None:
        async with helper() as one, helper(token="f" * 64) as other:
            port = (await ask(one, Open(), Ready)).port
            await ask(other, Open(), Ready)
            failed = await ask(other, measured_by(port), Figures)
            assert isinstance(failed, Unable)
            assert failed.why == "it turned this node away: another secret?"
            own = await ask(one, measured_by(port), Figures)
            assert [each.rpartition(":")[2] for each in own.rejected] == ["127.0.0.1"]

    run(test)


def test_the_token_is_in_no_command_line_and_no_environment() -> None:
    async def test() -> None:
        async with helper() as one:
            await ask(one, Open(), Ready)
            assert one._process
            for name in ("cmdline", "environ"):
                seen = Path(f"/proc/{one._process.pid}/{name}").read_bytes()
                assert seen
                assert TOKEN.encode() not in seen

    run(test)


NAN, HUGE = float("nan"), 1e300


@pytest.mark.promise(
    "a node that sends nonsense ends no other node's part of the network check",
    control="5.0, in the same test",
)
@pytest.mark.parametrize(
    ("gbps", "is_sealed"), [(NAN, True), (HUGE, True), (-1.0, True), (5.0, False), (5.0, True)]
)
def test_a_helper_survives_a_peer_that_lies(gbps: float, is_sealed: bool) -> None:
    """The peer has the token, and lies about what it received."""

    def serve(link: PeerLink) -> None:
        if link.order != DRAIN:
            measure.serve(link)
            return
        with link, contextlib.suppress(OSError):
            while link.socket.recv(1 << 20):
                pass
            result = struct.pack(">d", gbps)
            link.socket.sendall(result + (link.seal(result) if is_sealed else bytes(64)))

    liar = Listener(TOKEN.encode(), serve)

    async def test() -> None:
        async with helper() as one:
            await ask(one, Open(), Ready)
            seen = await ask(one, measured_by(liar.port), Figures)
            if gbps == 5.0 and is_sealed:
                assert seen.there_gbps == 5.0
            else:
                assert seen.why == "a result that was changed on its way, or is none"
            assert isinstance(await ask(one, ServeReduce(2), Ready), Unable), (
                "it is there for the next question"
            )

    run(test)
    liar.close()


def test_an_all_reduce_is_a_process_of_torch_s_python(tmp_path: Path) -> None:
    async def test() -> None:
        async with helper(torch(tmp_path)) as one:
            await ask(one, Open(), Ready)
            assert await ask(one, ServeReduce(2), Ready) == Ready(4711)
            end = await one.reply(packed(Reduce(0, 2, "localhost", 4711)))
            assert (end["backend"], end["why"]) == ("gloo", "")
            assert [tuple(row) for row in end["rows"]] == [(1024, 0.5)]

    run(test)


def test_an_all_reduce_that_fails_says_why(tmp_path: Path) -> None:
    async def test() -> None:
        async with helper(torch(tmp_path, "exit 3")) as one:
            await ask(one, Open(), Ready)
            end = await one.reply(packed(Reduce(1, 2, "10.0.0.1", 4711)))
            assert end["why"] == "all_reduce.py ended with 3: 4711"

    run(test)


def test_an_all_reduce_says_why_it_failed_and_not_what_torch_warns_of_then(tmp_path: Path) -> None:
    """As two nodes of one machine with one GPU print it."""
    error = "Duplicate GPU detected : rank 0 and rank 1 both on CUDA device 60"
    warning = "Warning: destroy_process_group() was not called before program exit"
    fails = f"printf '%s\\n' '{error}' '{warning}' >&2; exit 1"

    async def test() -> None:
        async with helper(torch(tmp_path, fails)) as one:
            await ask(one, Open(), Ready)
            end = await one.reply(packed(Reduce(0, 2, "127.0.0.2", 0)))
            assert end["why"] == f"all_reduce.py ended with 1: {error}"

    run(test)


BROKEN = {
    "it ends": "import os; os._exit(3)",
    "it says too much": (
        f"import sys; sys.stdin.readline(); print('x' * {4 * MOST}, flush=True); sys.stdin.read()"
    ),
    "it says nonsense": "import sys; print('[1', flush=True); sys.stdin.read()",
    "it says something else": (
        'import sys; print(\'{"kind": "Figures"}\', flush=True); sys.stdin.read()'
    ),
}


@pytest.mark.parametrize("code", BROKEN.values(), ids=list(BROKEN))
def test_a_helper_that_fails_is_an_answer(
    code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "helper.py").write_text(code)
    monkeypatch.setattr(process, "FILE", tmp_path / "helper.py")

    async def test() -> None:
        async with helper() as one:
            for _ in range(2):
                assert isinstance(await ask(one, Open(), Ready), Unable)

    run(test)


def test_a_helper_that_cannot_start_is_an_answer() -> None:
    async def test() -> None:
        one = HelperProcess("/nothing/python3", {"PATH": "/nothing"}, TOKEN)
        assert (await ask(one, Open(), Ready)).why.startswith("its helper process has failed: ")
        assert (await ask(one, measured_by(1), Figures)).why.startswith(
            "its helper process has failed: "
        )
        assert (await one.reply({"kind": "Nothing"}))["why"].startswith("an invalid message: ")
        await one.close()

    run(test)


@pytest.mark.promise(
    "the helper that measures the network never outlives its entrypoint",
    control="the helper before that, in the test",
)
@pytest.mark.parametrize("how", ["stdin closes", "it is killed", "it is asked to open again"])
def test_a_helper_ends_with_its_entrypoint_and_takes_torch_along(how: str, tmp_path: Path) -> None:
    env = torch(tmp_path, f"echo $$ > {tmp_path}/pid; exec sleep 1000")

    async def test() -> None:
        async with helper(env) as one:
            await ask(one, Open(), Ready)
            reducing = asyncio.create_task(one.reply(packed(Reduce(1, 2, "10.0.0.1", 4711))))
            while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text().strip():
                await asyncio.sleep(0.05)
            pid, first = int((tmp_path / "pid").read_text()), one._process
            assert first
            assert runs(pid)
            assert runs(first.pid)
            if how == "stdin closes":
                assert first.stdin
                first.stdin.close()
            elif how == "it is killed":
                one.end()
            else:
                reducing.cancel()
                await ask(one, Open(), Ready)
            await asyncio.wait_for(first.wait(), 10)
            await asyncio.to_thread(until, lambda: not runs(pid), "torch's process has ended")
            reducing.cancel()

    run(test)


def runs(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    return False


def test_an_entrypoint_that_is_killed_takes_its_helper_along(tmp_path: Path) -> None:
    code = f"""
import asyncio, sys
from entrypoint.netcheck.messages import Open, packed
from entrypoint.netcheck.process import HelperProcess
async def main():
    helper = HelperProcess(sys.executable, {{"PATH": "/nothing"}}, {TOKEN!r})
    await helper.reply(packed(Open()))
    print(helper._process.pid, flush=True)
    await asyncio.sleep(1000)
asyncio.run(main())
"""
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True
    ) as entrypoint:
        assert entrypoint.stdout
        pid = int(entrypoint.stdout.readline())
        assert runs(pid)
        entrypoint.send_signal(signal.SIGKILL)
        until(lambda: not runs(pid), "the helper has ended")
