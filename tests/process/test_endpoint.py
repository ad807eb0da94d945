"""The worker's end of a leader's session: the real `attend`, between pipes as sshd makes them."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from entrypoint import __version__
from entrypoint.base import values
from entrypoint.base.history import History
from entrypoint.job import messages
from entrypoint.session import codec
from entrypoint.session.endpoint import Endpoint
from entrypoint.system.files import RunDir
from tests.process.bench import Process, in_loop

HELLO = codec.pack(messages.Start())
SAID = "no entrypoint at work, or an sshd that gives its sessions no pipes\n"
BUSY = codec.pack(messages.Taken(messages.TAKEN))


class Node:
    """A worker that only listens: what it heard, and why sessions were lost."""

    def __init__(self, folder: Path, replace: bool) -> None:
        self.run_dir = RunDir(str(folder))
        self.heard: asyncio.Queue[Any] = asyncio.Queue()
        self.lost: asyncio.Queue[str] = asyncio.Queue()
        self.said: list[str] = []
        self.tasks: list[asyncio.Task[None]] = []
        self.taken = asyncio.Event()  # it has a leader
        self.endpoint = Endpoint(
            self.hears,
            self.loses,
            lambda first: "" if replace or not self.taken.is_set() else messages.TAKEN,
            ("a", "b"),
            self.said.append,
            lambda work: self.tasks.append(asyncio.create_task(work)),
        )
        self.endpoint.open(self.run_dir)
        self.endpoint.listen(os.getpid())  # in the place of sshd

    def hears(self, message: Any) -> None:
        self.taken.set()
        self.heard.put_nowait(message)

    def loses(self, why: str) -> None:
        if why:  # else its attempt is over, and takes no other leader
            self.taken.clear()
        self.lost.put_nowait(why)


@contextlib.asynccontextmanager
async def node(folder: Path, replace: bool = False) -> AsyncIterator[Node]:
    made = Node(folder, replace)
    try:
        yield made
    finally:
        made.endpoint.close()
        made.run_dir.close()
    assert not folder.exists(), "something was left behind"


class Leader:
    """An sshd with a leader behind it: `attend` and the other ends of its pipes."""

    def __init__(self, folder: Path, shell: str = "sh") -> None:
        stdin, self.into = os.pipe()
        self.out, stdout = os.pipe()
        argv = (*shell.split(), str(folder / "attend"))
        env = {**os.environ, "SSH_CONNECTION": "10.0.0.9 40000 10.0.0.2 36666"}
        self.attend = Process(
            argv, stdin=stdin, stdout=stdout, stderr=subprocess.PIPE, text=True, env=env
        )
        self._open = {self.into, self.out}
        os.close(stdin)
        os.close(stdout)

    def say(self, data: bytes) -> None:
        os.write(self.into, data)

    async def hears(self) -> bytes:
        """One line, or nothing at the end."""
        line = b""
        os.set_blocking(self.out, False)
        while not line.endswith(b"\n"):
            try:
                data = os.read(self.out, 65536)
            except BlockingIOError:
                await asyncio.sleep(0.005)
                continue
            if not data:
                break
            line += data
        return line

    async def ended(self) -> int:
        while self.attend.poll() is None:
            await asyncio.sleep(0.005)
        return int(self.attend.returncode)

    def close(self, *pipes: int) -> None:
        for pipe in pipes or tuple(self._open):
            self._open.remove(pipe)
            os.close(pipe)

    def __enter__(self) -> Leader:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
        self.attend.kill()
        self.attend.wait()
        self.attend.stderr.close()


SHELLS = pytest.mark.parametrize(
    "shell",
    [
        pytest.param(
            words, marks=pytest.mark.skipif(not shutil.which(words.split()[0]), reason="not here")
        )
        for words in ("sh", "dash", "bash --posix", "busybox sh")
    ],
)


def hello(*hosts: str, leader: str = "leader") -> messages.Hello:
    return messages.Hello(__version__, hosts, 1, "plain", {}, 15.0, leader, "127.0.0.1", "token")


@pytest.mark.control(
    "a session and its endpoint notice each other's end; a stuck reader blocks none"
)
@SHELLS
@in_loop
async def test_messages_pass_both_ways_and_the_end_of_a_session_is_noticed(
    folder: Path, shell: str
) -> None:
    async with node(folder) as worker:
        with Leader(folder, shell) as leader:
            leader.say(HELLO)
            assert await worker.heard.get() == messages.Start()
            worker.endpoint.send(messages.Stopped())
            assert await leader.hears() == codec.pack(messages.Stopped())
            # more than a pipe takes at a time
            long = messages.Failed(1, "x" * 500_000, False, False)
            worker.endpoint.send(long)
            assert await leader.hears() == codec.pack(long)
            leader.close(leader.into)
            assert await worker.lost.get() == "its session ended"
            assert await leader.ended() == -signal.SIGKILL


@in_loop
async def test_a_question_with_a_digest_of_the_hosts_has_this_node_s_or_all_are_sent(
    folder: Path,
) -> None:
    long = hello("b", "a")
    short = values.replace(long, hosts=(), digest=codec.digest(long.hosts))
    async with node(folder, replace=True) as worker:
        with Leader(folder) as leader:
            leader.say(codec.pack(short))
            assert await leader.hears() == codec.pack(messages.HostsWanted())
            assert worker.heard.empty(), "the question is not whole"
            leader.say(codec.pack(long))
            assert await worker.heard.get() == long
            leader.say(codec.pack(values.replace(short, digest=codec.digest(("a", "b")))))
            assert await worker.heard.get() == values.replace(long, hosts=("a", "b"))


@pytest.mark.promise(
    "a restart needs no new login of a node that stays",
    control="a worker that was not released, in the same test",
)
@in_loop
async def test_the_next_hello_in_a_session_begins_the_next_attempt(folder: Path) -> None:
    """once that can answer; what else comes between two attempts is of neither."""
    again = codec.pack(hello("a", "b"))
    async with node(folder) as worker:
        with Leader(folder) as leader:
            leader.say(again)
            assert await worker.heard.get() == hello("a", "b")
            leader.say(again + codec.pack(messages.Ping(1)))
            assert await worker.lost.get() == ""
            worker.endpoint.send(messages.Goodbye())  # too late: the leader has gone on
            assert worker.heard.empty()
            worker.endpoint.end_attempt(keeps=True)
            worker.taken.clear()
            worker.endpoint.begin_attempt()
            assert await worker.heard.get() == hello("a", "b")
            worker.endpoint.send(messages.Stopped())
            assert await leader.hears() == codec.pack(messages.Stopped())
            # and one that comes after the attempt has begun
            worker.endpoint.end_attempt(keeps=True)
            worker.taken.clear()
            worker.endpoint.begin_attempt()
            leader.say(codec.pack(messages.Ping(1)) + again)
            assert await worker.heard.get() == hello("a", "b")
            assert worker.endpoint.processes(os.getpid()) == {os.getpid(), leader.attend.pid}
            worker.endpoint.end_attempt(keeps=False)
            assert await leader.ended() == -signal.SIGKILL
            assert worker.endpoint.processes(os.getpid()) == {os.getpid()}
    assert worker.heard.empty()
    assert worker.lost.empty()


@in_loop
async def test_a_write_that_fails_loses_nothing_that_lies_unread(folder: Path) -> None:
    async with node(folder) as worker:
        with Leader(folder) as leader:
            leader.say(HELLO)
            assert await worker.heard.get() == messages.Start()
            leader.say(codec.pack(messages.Release(0, "", False, False)))
            leader.close()
            # nobody is there any more, and the result is not read yet
            worker.endpoint.send(messages.Stopped())
            assert await worker.lost.get() == "its session ended"
            assert worker.heard.get_nowait() == messages.Release(0, "", False, False)


@in_loop
async def test_of_eight_leaders_at_once_one_has_it_and_the_others_hear_so(folder: Path) -> None:
    async with node(folder) as worker:
        with contextlib.ExitStack() as stack:
            leaders = [stack.enter_context(Leader(folder)) for _ in range(8)]
            for leader in leaders:
                leader.say(HELLO)
            ends = {asyncio.create_task(leader.hears()): leader for leader in leaders}
            waiting = set(ends)
            while len(waiting) > 1:
                done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                assert {end.result() for end in done} == {BUSY}
            (end,) = waiting
            first = ends.pop(end)
            for leader in ends.values():
                assert await leader.ended() == -signal.SIGKILL
            assert first.attend.poll() is None
            worker.endpoint.send(messages.Stopped())
            assert await end == codec.pack(messages.Stopped())
            assert worker.heard.qsize() == 1
            said = "rejected a second session, of 10.0.0.9, which says start: another leader has it"
            assert worker.said == [said]


@in_loop
async def test_a_second_caller_is_logged_with_its_address_and_what_it_says(folder: Path) -> None:
    async with node(folder) as worker:
        with Leader(folder) as leader, Leader(folder) as second:
            leader.say(HELLO)
            assert await worker.heard.get() == messages.Start()
            second.say(codec.pack(hello("a", "b", leader="l\n" * 30)))
            assert await second.hears() == BUSY
            (said,) = worker.said
            words = "rejected a second session, of 10.0.0.9, which says hello of leader l"
            assert said.startswith(words)
            assert said.endswith(" to node 1: another leader has it")
            assert "\n" not in said


@in_loop
async def test_a_leader_that_comes_back_has_the_node_and_its_old_session_ends(folder: Path) -> None:
    async with node(folder, replace=True) as worker:
        with Leader(folder) as before, Leader(folder) as after:
            before.say(HELLO)
            assert await worker.heard.get() == messages.Start()
            after.say(codec.pack(messages.Start(History(2))))
            assert await worker.heard.get() == messages.Start(History(2))
            assert await before.ended() == -signal.SIGKILL
            worker.endpoint.send(messages.Stopped())
            assert (await before.hears(), await after.hears()) == (
                b"",
                codec.pack(messages.Stopped()),
            )
            assert worker.lost.empty()


@pytest.mark.promise(
    "a session and its endpoint notice each other's end; a stuck reader blocks none"
)
@in_loop
async def test_who_reads_nothing_holds_up_nobody_and_is_ended(folder: Path) -> None:
    """As is who says what no leader does."""
    async with node(folder) as worker:
        with Leader(folder) as leader:
            leader.say(HELLO)
            await worker.heard.get()
            for _ in range(20):
                worker.endpoint.send(messages.Failed(1, "x" * 1_000_000, False, False))
            assert await worker.lost.get() == "it does not read what we say"
            assert await leader.ended() == -signal.SIGKILL
        with Leader(folder) as leader:
            leader.say(HELLO)
            await worker.heard.get()
            leader.say(b'{"kind": "nonsense"}\n')
            assert await worker.lost.get() == "it sent an invalid message: no kind of message"
            assert await leader.ended() == -signal.SIGKILL


@in_loop
async def test_what_is_announced_and_is_not_there_harms_nobody(folder: Path) -> None:
    """Numbers of no process, of one without pipes, of one that has ended, and words."""
    async with node(folder) as worker:
        apart = subprocess.Popen(
            ["sleep", "60"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL
        )
        try:
            with (folder / "attend.sessions").open("w") as pipe:
                pipe.write(f"4194305\n{apart.pid}\n-1\n0\n\nwords\n")
            with Leader(folder) as gone:
                gone.close()
                assert await gone.ended() == -signal.SIGKILL
            with Leader(folder) as leader:
                leader.say(HELLO)
                assert await worker.heard.get() == messages.Start()
            assert apart.poll() is None
        finally:
            apart.kill()
            apart.wait()


@in_loop
async def test_the_end_of_the_endpoint_ends_every_session(folder: Path) -> None:
    async with node(folder) as worker:
        with Leader(folder) as taken, Leader(folder) as silent:
            taken.say(HELLO)
            await worker.heard.get()
            worker.endpoint.send(messages.Stopped())
            worker.endpoint.close()
            assert await taken.hears() == codec.pack(messages.Stopped())
            assert await taken.ended() in (1, -signal.SIGKILL)
            assert await silent.ended() == 1


@pytest.mark.promise(
    "only what sshd has started is a session", control="the session that follows, in the same test"
)
@in_loop
async def test_a_rank_announces_no_session(folder: Path) -> None:
    """whatever it writes where sessions announce themselves, and however much; that of another one
    is served meanwhile."""
    async with node(folder) as worker:
        pipe = os.open(folder / "attend.sessions", os.O_WRONLY | os.O_NONBLOCK)
        other = f"{os.getppid()}\n".encode()  # not below what stands in the place of sshd
        for text in (b"5" * 5000 + b"\n", b"99999999\n", b"7" * 300 + b"\n", other):
            os.write(pipe, text)
        with contextlib.suppress(BlockingIOError):
            while True:
                os.write(pipe, other)
        with Leader(folder) as leader:
            leader.say(HELLO)
            assert await worker.heard.get() == messages.Start()
        os.close(pipe)
        assert len(worker.tasks) == 1


LISTENS = """
import asyncio, os, sys
from entrypoint.system.files import RunDir
from entrypoint.session.endpoint import Endpoint
async def listen():
    heard = lambda message: print("heard", flush=True)
    tasks = []
    begin = lambda work: tasks.append(asyncio.create_task(work))
    endpoint = Endpoint(heard, print, lambda first: False, (), print, begin)
    endpoint.open(RunDir(sys.argv[1]))
    endpoint.listen(os.getppid())
    print("open", flush=True)
    await asyncio.Event().wait()
asyncio.run(listen())
"""


@pytest.mark.promise(
    "a session and its endpoint notice each other's end; a stuck reader blocks none"
)
@SHELLS
def test_a_killed_endpoint_leaves_no_session_and_holds_up_none_that_comes_later(
    folder: Path, shell: str
) -> None:
    words = [sys.executable, "-c", LISTENS, str(folder)]
    with Process(words, stdout=subprocess.PIPE) as listens:
        assert listens.stdout.readline() == b"open\n"
        with Leader(folder, shell) as leader:
            leader.say(HELLO)
            assert listens.stdout.readline() == b"heard\n"
            listens.kill()
            listens.wait()
            assert leader.attend.wait() == 1
    with Leader(folder, shell) as late:
        assert late.attend.wait() == 1
    (folder / "attend.sessions").unlink()
    with Leader(folder, shell) as later:
        assert later.attend.wait() == 1
        assert later.attend.stderr.read() == SAID
    assert not (folder / "attend.sessions").exists()
