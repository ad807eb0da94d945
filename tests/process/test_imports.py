"""A start is light: what each command may not import, seen in a Python of its own."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from shlex import split

import pytest

from tests.command import captured

SEEN = """
import os, sys
from entrypoint import cli
seen = []
def modules():
    return [name for name, module in sys.modules.items() if module]
def begin():
{begin}
cli.hold_standard_streams = begin  # the first that a command does
me, leave = os.getpid(), os._exit
os._exit = lambda status: None if os.getpid() == me else leave(status)
sys.argv = ["entrypoint", *{words!r}]
cli.script()
print(*(seen or modules()), sep="\\n", file=sys.stderr)
"""
# A node goes as far as it gets by itself, and starts no sshd.
NODE = """
    from entrypoint import node
    from entrypoint.system import keys
    from entrypoint.base.model import Outcome
    async def end(self, signals):
        if len(self._topology.nodes) > 1:
            keys.load(self._spec, self._topology)
            if self._topology.is_leader:
                import entrypoint.session.calls
        seen.extend(modules())
        return Outcome(0, "seen")
    node.Loop.run = end
"""
# A program alone: until this process would become it.
ALONE = """
    from entrypoint.system import process
    from entrypoint.base.model import Outcome
    process.replace = lambda *given: seen.extend(modules()) or Outcome(0, "seen")
"""

CRYPTO, JINJA, YAML, SSH = "cryptography", "jinja2", "yaml", "paramiko"
# What compiles code for each class, and what a start never needs.
NEVER = (
    *split("dataclasses ssl tempfile difflib hashlib pickle random email http decimal"),
    *split("pkgutil shutil zlib bz2 lzma zipfile encodings.idna entrypoint.features.netcheck"),
)
PARSING = ("argparse", "entrypoint.cli.parser", "entrypoint.spec", "entrypoint.plan")
LOOP = ("asyncio", "entrypoint.node", "entrypoint.session", "entrypoint.ranks")
OWN = (
    *split("entrypoint.session.calls entrypoint.job.leader entrypoint.job.membership"),
    *split("entrypoint.ranktable entrypoint.tools.deploy"),
)
AWAY = ("subprocess", "socket", "logging", "inspect", "json", "pathlib")
PACKAGES = (CRYPTO, JINJA, YAML, SSH)

HOSTS = ("--hosts", "worker-0=127.0.0.1,worker-1=127.0.0.2")
# The command's words; what it may not import.
COMMANDS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "--version": (("--version",), (*PARSING, *LOOP, *OWN, *AWAY, *PACKAGES, *NEVER)),
    "health": (("health",), ("entrypoint.plan", *LOOP, *OWN, *PACKAGES, *NEVER)),
    "status": (("status", "--run-dir", "/nowhere"), ("entrypoint.plan", *LOOP, *OWN, *PACKAGES, *NEVER)),
    "worker": (("run", *HOSTS, "--node-rank", "1", "--", "true"), (*OWN, *PACKAGES, "bcrypt", *NEVER)),
    "a program alone": (
        ("run", "--passthrough", "--", "true"),
        (*LOOP, *OWN, "entrypoint.job.worker", *AWAY, "ipaddress", *PACKAGES, *NEVER),
    ),
    "leader": (("run", *HOSTS, "--node-rank", "0", "--", "true"), (YAML, "entrypoint.tools.deploy", "ssl", "invoke", JINJA)),
    "one rank under mpirun": (
        ("run", "--launcher", "mpirun", "--", "true"),
        ("entrypoint.session.calls", "entrypoint.tools.deploy", "entrypoint.ranktable", *PACKAGES, *NEVER),
    ),
    "plan": (("plan", *HOSTS, "--node-rank", "1", "--", "true"), (YAML, SSH, "entrypoint.session", "ssl")),
}  # fmt: skip


def imported(words: tuple[str, ...], run_dir: Path) -> set[str]:
    """All modules that a Python has imported once it has done this."""
    env, begin = {"PATH": os.environ["PATH"]}, "    pass"
    if "--passthrough" in words:
        begin = ALONE
    elif words[0] == "run":
        env |= {"ENTRYPOINT_SECRET": os.urandom(16).hex(), "ENTRYPOINT_RUN_DIR": str(run_dir)}
        begin = NODE
    code = SEEN.format(words=list(words), begin=begin)
    done = captured([sys.executable, "-I", "-c", code], env=env)
    assert done.returncode == 0, done.stderr
    return set(done.stderr.split("\n"))


def heavy(modules: set[str], unwanted: tuple[str, ...]) -> list[str]:
    return sorted(
        name
        for name in modules
        if any(name == each or name.startswith(f"{each}.") for each in unwanted)
    )


@pytest.mark.promise("a command imports nothing that it does not use")
@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_imports_nothing_that_it_does_not_use(command: str, tmp_path: Path) -> None:
    words, unwanted = COMMANDS[command]
    assert heavy(imported(words, tmp_path / "run"), unwanted) == []


@pytest.mark.control("a command imports nothing that it does not use")
def test_what_a_node_does_use_is_seen(tmp_path: Path) -> None:
    """The control: were the modules of a node not seen, the table above would hold nothing."""
    worker, leader = (imported(COMMANDS[each][0], tmp_path / each) for each in ("worker", "leader"))
    assert {*LOOP[:2], "entrypoint.job.worker", "entrypoint.system.sshd"} <= worker
    assert {"paramiko", "entrypoint.session.calls"} <= leader
    more = {"ssl", "yaml.loader", "yamlish"}
    assert heavy(worker | more, ("ssl", YAML)) == ["ssl", "yaml.loader"]
