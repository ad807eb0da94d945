"""Accounts that run programs every day and that sshd itself would not let in: the job runs.

/etc/passwd and /etc/shadow are the test's own, in a mount namespace.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from entrypoint.base.errors import ConfigError
from entrypoint.base.model import Facts
from entrypoint.system import account
from tests import table
from tests.cluster import RUN, Make

ACCOUNTS = table("tests/tables/accounts.yaml")


@pytest.fixture(autouse=True)
def _namespaces() -> None:
    if os.getuid() or subprocess.run(["unshare", "-m", "true"], check=False).returncode:
        pytest.skip("only root can mount another /etc/passwd")


def as_account(name: str, folder: Path) -> tuple[str, ...]:
    """The words that run a command where root's account is this one."""
    (shell, password, last_day), _ = ACCOUNTS[name]
    folder.mkdir(exist_ok=True)
    others = [line for line in Path("/etc/passwd").read_text().splitlines() if ":x:0:" not in line]
    home = "/none" if name == "no home" else "/root"
    passwd = [f"root:x:0:0::{home}:{shell}", *others, ""]
    (folder / "passwd").write_text("\n".join(passwd))
    (folder / "shadow").write_text(f"root:{password}:19000:0:99999:7::{last_day}:\n")
    mounts = "; ".join(f"mount --bind {folder}/{file} /etc/{file}" for file in ("passwd", "shadow"))
    return ("unshare", "-m", "sh", "-c", f'set -e; {mounts}; exec "$@"', "sh")


@pytest.mark.parametrize("name", ACCOUNTS)
def test_what_is_wrong_with_an_account_is_known(name: str, tmp_path: Path) -> None:
    code = "from entrypoint.system.account import refusal; print(refusal(0))"
    argv = (*as_account(name, tmp_path), sys.executable, "-c", code)
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    assert done.stdout == f"{ACCOUNTS[name][1]}\n"


@pytest.mark.parametrize("name", ["nologin", "no home"])
def test_nodes_start_whatever_the_account_lacks(cluster: Make, name: str) -> None:
    job = cluster(2, slots=1)
    begin = as_account(name, job.folder / "etc")
    for rank in (1, 0):
        words = (*begin, *RUN, "--launcher", "mpirun", "--", "sh", "-c", "echo $LD_PRELOAD.")
        job.start(rank, argv=words)
    assert job.ends() == {0: 0, 1: 0}, job.both()
    assert job.out(0) == ".\n.\n", "what sshd needs reaches no rank"
    assert job.both().count("EP") == (name == "no home"), job.both()  # EP508: no such folder


def test_where_the_account_cannot_be_replaced_the_start_fails(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    here = Facts(env={}, hostname="a", cwd="/", uid=7, user="u", home="/")
    monkeypatch.setattr(account, "refusal", lambda uid: "the account u is locked")
    account.check(here)
    monkeypatch.setattr(account, "names_library", lambda: None)
    with pytest.raises(ConfigError, match="EP431 sshd would reject uid 7 in") as raised:
        account.check(here)
    assert raised.value.detail == "the account u is locked; no libnss_wrapper.so"
    monkeypatch.setattr(account, "refusal", lambda uid: "")
    account.check(here)
    monkeypatch.setattr(account, "_NO_LOGINS", str(tmp_path))
    with pytest.raises(ConfigError, match="EP431"):
        account.check(here)
