"""mpirun's agents and who answers them: the rendered script against real pipes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from entrypoint.base.render import render
from entrypoint.ranks.agents import ALL, Agents
from entrypoint.system.files import RunDir
from tests.process.bench import in_loop

COMMAND = 'PATH=/bin:$PATH ; orted -mca ess "env" -mca orte_hnp_uri "1.0;tcp://10.0.0.1:3" # \'é\''


@asynccontextmanager
async def agents(folder: Path) -> AsyncIterator[tuple[Agents, asyncio.Queue[tuple[int, str]]]]:
    run_dir = RunDir(str(folder))
    wanted: asyncio.Queue[tuple[int, str]] = asyncio.Queue()
    context = {"run_dir": str(folder), "after": " &"}
    run_dir.write("agent", render("mpirun/agent.sh.j2", context), 0o700)
    listening = Agents(
        run_dir,
        {"node-0": 0, "node-1": 1},
        lambda rank, command: wanted.put_nowait((rank, command)),
    )
    try:
        yield listening, wanted
    finally:
        listening.close()
        run_dir.close()


async def agent(folder: Path, host: str, *options: str) -> asyncio.subprocess.Process:
    words = ("sh", str(folder / "agent"), *options, host, *COMMAND.split(" "))
    return await asyncio.create_subprocess_exec(*words, stderr=asyncio.subprocess.PIPE)


@in_loop
async def test_each_agent_gets_its_own_nodes_status(folder: Path) -> None:
    """Answers come in another order than the questions; the options of an ssh are passed over."""
    async with agents(folder) as (listening, wanted):
        first = await agent(folder, "node-0", "-x")
        second = await agent(folder, "node-1", "-p", "22", "-q")
        expected = {(0, f"{COMMAND} &"), (1, f"{COMMAND} &")}
        assert {await wanted.get(), await wanted.get()} == expected
        listening.answer(1, 7)
        assert await second.wait() == 7
        assert first.returncode is None
        listening.answer(0, 0)
        assert await first.wait() == 0


@in_loop
async def test_an_agent_ends_with_its_entrypoint(folder: Path) -> None:
    async with agents(folder) as (_, wanted):
        waiting = await agent(folder, "node-1")
        assert (await wanted.get())[0] == 1
    assert await waiting.wait() == 255


@in_loop
async def test_a_word_that_is_no_agents_ends_nothing(folder: Path) -> None:
    """A program of the job may write into the pipe: nonsense, a host without a command, half a
    line."""
    async with agents(folder) as (listening, wanted):
        with open(folder / ALL, "wb", buffering=0) as pipe:
            pipe.write(b"\xff\xfe\nnode-9\n../../etc/passwd\nnode-1\n")
            assert await wanted.get() == (1, "")
            pipe.write(b"node-")
            await asyncio.sleep(0)
            pipe.write(b"0\n")
        assert await wanted.get() == (0, "")
        assert wanted.empty()
        real = await agent(folder, "node-1")
        assert await wanted.get() == (1, f"{COMMAND} &")
        listening.answer(1, 0)
        assert await real.wait() == 0


@in_loop
async def test_a_host_gets_one_daemon(folder: Path) -> None:
    """A rank that wrote the name once more had a second one started, and the job hung (issue 25,
    row 3)."""
    async with agents(folder) as (listening, wanted):
        real = await agent(folder, "node-1")
        assert (await wanted.get())[0] == 1
        listening.answer(1, 0)
        assert await real.wait() == 0
        (folder / "agent.node-1.command").write_text("another")
        with open(folder / ALL, "wb", buffering=0) as pipe:
            pipe.write(b"node-1\nnode-0\n")
        assert await wanted.get() == (0, ""), "the control: the other host is asked for"
        assert wanted.empty()


@in_loop
async def test_a_host_of_no_node_is_refused_at_once(folder: Path) -> None:
    async with agents(folder):
        refused = await agent(folder, "node-7")
        _, output = await refused.communicate()
        assert refused.returncode == 255
        expected = b"mpirun's agent: EP650 node-7 is not a node of this job | see the hostfile\n"
        assert output == expected


@in_loop
async def test_an_answer_that_nobody_reads_blocks_nobody(folder: Path) -> None:
    async with agents(folder) as (listening, _):
        for _ in range(40000):
            listening.answer(1, 255)
