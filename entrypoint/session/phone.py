"""A worker's side of calling in: the ssh client, a process that ends after each call, so that none
stays in memory."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time

from entrypoint.base.model import Facts, Node, Topology
from entrypoint.base.text import one_line
from entrypoint.base.wire import Invalid
from entrypoint.job.messages import Release
from entrypoint.plan.files import client_config
from entrypoint.session import codec
from entrypoint.session.callin import ANSWERS, CalledIn, CallIn
from entrypoint.session.gateway import ssh_port
from entrypoint.spec import JobSpec
from entrypoint.system import account, children
from entrypoint.system.descriptors import CHUNK
from entrypoint.system.files import RunDir
from entrypoint.system.keys import Keys

_REASON = 300  # characters of what ssh prints


class Phone:
    """A worker's side: calls worker-0 by the ssh client, which ends after each call."""

    def __init__(
        self, spec: JobSpec, facts: Facts, topology: Topology, keys: Keys, run_dir: RunDir
    ) -> None:
        """Write the client's files. `keys`: the client's, too."""
        leader = topology.leader
        seed = f"{keys.client_public} {topology.job_id}"
        self._leader = leader = Node(
            0, leader.host, 1, topology.call_in, ssh_port=ssh_port(spec.network.ports, leader, seed)
        )
        for name in ("client_key", "known_hosts"):
            run_dir.write(name, keys.files()[name], 0o600)
        for name, content in account.files(facts).items():
            run_dir.write(name, content, 0o600)
        config = client_config(spec, topology, leader)
        run_dir.write(config.name, config.text, config.mode)
        program = facts.programs.get("ssh", "ssh")
        self._argv = (program, "-F", str(run_dir.path / config.name), leader.host)
        self._env = {**facts.env, **account.variables(facts, run_dir.path)}

    async def call(self, call: CallIn) -> CalledIn | Release | str:
        """Call once. Return the answer, or why there is none."""
        pipe = asyncio.subprocess.PIPE
        process = await children.start(self._argv, self._env, stdin=pipe, stdout=pipe, stderr=pipe)
        try:
            return await self._answer(process, call)
        finally:
            if process.returncode is None:
                # not process.kill(), which may take the status from asyncio's own wait
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process.pid, signal.SIGKILL)
                await process.wait()

    async def _answer(
        self, process: asyncio.subprocess.Process, call: CallIn
    ) -> CalledIn | Release | str:
        assert process.stdin
        assert process.stdout
        assert process.stderr
        intake = codec.Intake(ANSWERS, codec.TO_WORKER, time.monotonic())
        with contextlib.suppress(OSError):
            process.stdin.write(codec.pack(call))
        try:
            while data := await process.stdout.read(CHUNK):
                if arrived := intake.feed(data, time.monotonic()):
                    answer: CalledIn | Release = arrived[0]
                    return answer
        except Invalid as error:
            return f"it sent an invalid message: {error}"
        await process.wait()
        lines = (await process.stderr.read()).decode(errors="replace").strip().splitlines()
        return one_line(lines[-1], _REASON) if lines else "it closed the session"
