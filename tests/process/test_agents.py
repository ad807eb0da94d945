"""mpirun's agents and who answers them: the rendered script against the real socket."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from entrypoint import supervised
from entrypoint.ranks.agents import Agents
from entrypoint.render import render
from entrypoint.system.files import RunDir
from entrypoint.system.nodesocket import NodeSocket
from tests.process.bench import in_loop

COMMAND = 'PATH=/bin:$PATH ; orted -mca ess "env" -mca orte_hnp_uri "1.0;tcp://10.0.0.1:3" # \'é\''


class Nodes:
    """What is wanted of the agents, and whether a process that connects is the launcher's."""

    def __init__(self, node: NodeSocket) -> None:
        self.wanted: asyncio.Queue[tuple[int, str]] = asyncio.Queue()
        self.is_launcher = True
        self.agents = Agents(
            node,
            {"node-0": 0, "node-1": 1},
            lambda rank, command: self.wanted.put_nowait((rank, command)),
            lambda pid: self.is_launcher,
        )


@asynccontextmanager
async def agents(folder: Path) -> AsyncIterator[Nodes]:
    run_dir = RunDir(str(folder))
    agent = (sys.executable, "-I", "-S", supervised.AGENT)
    context = {"agent": agent, "run_dir": str(folder), "after": " &"}
    run_dir.write("agent", render("mpirun/agent.sh.j2", context), 0o700)
    node = NodeSocket(run_dir)
    try:
        yield Nodes(node)
    finally:
        node.close()
        run_dir.close()


async def agent(folder: Path, host: str, *options: str) -> asyncio.subprocess.Process:
    words = ("sh", str(folder / "agent"), *options, host, *COMMAND.split(" "))
    return await asyncio.create_subprocess_exec(*words, stderr=asyncio.subprocess.PIPE)


@in_loop
async def test_each_agent_gets_its_own_nodes_status(folder: Path) -> None:
    """Answers come in another order than the questions; the options of an ssh are passed over."""
    async with agents(folder) as nodes:
        first = await agent(folder, "node-0", "-x")
        second = await agent(folder, "node-1", "-p", "22", "-q")
        expected = {(0, f"{COMMAND} &"), (1, f"{COMMAND} &")}
        assert {await nodes.wanted.get(), await nodes.wanted.get()} == expected
        nodes.agents.answer(1, 7)
        assert await second.wait() == 7
        assert first.returncode is None
        nodes.agents.answer(0, 0)
        assert await first.wait() == 0


@in_loop
async def test_an_agent_ends_with_its_entrypoint(folder: Path) -> None:
    async with agents(folder) as nodes:
        waiting = await agent(folder, "node-1")
        assert (await nodes.wanted.get())[0] == 1
    assert await waiting.wait() == 255
    assert await (await asyncio.create_subprocess_exec(
        sys.executable, "-I", "-S", supervised.AGENT, str(folder), "", "node-1"
    )).wait() == 255  # fmt: skip


@in_loop
async def test_a_host_gets_one_daemon(folder: Path) -> None:
    """A rank that named the host once more had a second one started, and the job hung (issue 25,
    row 3)."""
    async with agents(folder) as nodes:
        real = await agent(folder, "node-1")
        assert (await nodes.wanted.get())[0] == 1
        again = await agent(folder, "node-1")
        assert await again.wait() == 255
        nodes.agents.answer(1, 0)
        assert await real.wait() == 0
        assert await (await agent(folder, "node-1")).wait() == 255
        assert nodes.wanted.empty()


@in_loop
async def test_only_a_process_of_the_launcher_has_a_daemon_started(folder: Path) -> None:
    async with agents(folder) as nodes:
        nodes.is_launcher = False
        outsider = await agent(folder, "node-1")
        assert await outsider.wait() == 255
        nodes.is_launcher = True
        real = await agent(folder, "node-1")
        assert (await nodes.wanted.get())[0] == 1, "the control"
        nodes.agents.answer(1, 0)
        assert await real.wait() == 0


@pytest.mark.parametrize("wanted", [None, 1, "node-0", ["node-0"], b"node-7 true".hex()])
@in_loop
async def test_what_is_no_request_of_an_agent_starts_nothing(folder: Path, wanted: object) -> None:
    async with agents(folder) as nodes:
        reader, writer = await asyncio.open_unix_connection(folder / "node")
        writer.write(json.dumps(["agent", wanted]).encode() + b"\n")
        assert await reader.readline() == b"null\n"
        assert nodes.wanted.empty()
        writer.close()


@in_loop
async def test_a_host_of_no_node_is_refused_at_once(folder: Path) -> None:
    async with agents(folder):
        refused = await agent(folder, "node-7")
        _, said = await refused.communicate()
        assert refused.returncode == 255
        assert (
            said == b"mpirun's agent: EP650 node-7 is not a node of this job | see the hostfile\n"
        )
