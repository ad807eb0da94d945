"""The account for which sshd lets this user in: the user's own passwd entry, or one that the
toolkit writes if sshd would refuse the account or its shell would run no command."""

from __future__ import annotations

import contextlib
import functools
import os
import pwd
import subprocess
import time
from pathlib import Path

from entrypoint.base.errors import ConfigError
from entrypoint.base.model import Facts
from entrypoint.plan.topology import NAMES, login
from entrypoint.system.facts import names_library

_NO_LOGINS = "/etc/nologin"  # nologin(5): while it exists, sshd lets nobody in but root
_DAY = 86400
# What sshd has the shell do, for short; a restricted shell does not replace itself.
_TEST = "exec sh -c 'exit 3'"
_ANSWER = 3
_SSHD, _SSHD_ID = "sshd", 74  # privilege separation's user, and a number for it: Fedora's
_SECONDS = 5.0  # for that; csh and fish read files of the user first


def check(facts: Facts) -> None:
    """Raise ConfigError if sshd will not let this user in, or not start its sessions."""
    if facts.uid and os.path.exists(_NO_LOGINS):
        raise ConfigError(
            f"EP431 sshd would reject uid {facts.uid} in",
            f"{_NO_LOGINS} exists, so only root may log in",
            "remove that file",
        )
    if (reason := refusal(facts.uid)) and not names_library():
        raise ConfigError(
            f"EP431 sshd would reject uid {facts.uid} in",
            f"{reason}; no {NAMES}",
            "install libnss-wrapper, or run as a user with an unlocked account and a shell",
        )


@functools.cache
def refusal(uid: int) -> str:
    """Return why sshd cannot use this user's passwd entry; "" if it can."""
    try:
        entry = pwd.getpwuid(uid)
    except KeyError:
        return "no entry in /etc/passwd"
    if uid == 0 and not _has_user(_SSHD):
        return f"an sshd run by root needs the user {_SSHD}"
    password, expires = entry.pw_passwd, ""
    with contextlib.suppress(OSError), open("/etc/shadow", errors="replace") as lines:
        for fields in (line.rstrip("\n").split(":") for line in lines):
            if fields[0] == entry.pw_name and len(fields) > 7:
                password, expires = fields[1], fields[7]
    if password.startswith("!"):
        return f"the account {entry.pw_name} is locked"
    if expires.isdigit() and int(expires) < time.time() // _DAY:
        return f"the account {entry.pw_name} has expired"
    shell = entry.pw_shell or "/bin/sh"
    return "" if _runs_commands(shell, entry.pw_dir) else f"its shell {shell} runs no commands"


def _has_user(name: str) -> bool:
    with contextlib.suppress(KeyError):
        return bool(pwd.getpwnam(name))
    return False


def _runs_commands(shell: str, home: str) -> bool:
    null = subprocess.DEVNULL
    env = {"HOME": home, "PATH": os.defpath, "SHLVL": "1"}  # with SHLVL, bash reads no ~/.bashrc
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        done = subprocess.run(
            (shell, "-c", _TEST), env=env, cwd="/", stdin=null, stdout=null, stderr=null,
            timeout=_SECONDS, check=False,
        )  # fmt: skip
        return done.returncode == _ANSWER
    return False


def files(facts: Facts) -> dict[str, bytes]:
    """Return the files, by their names in the run directory, with which sshd finds a passwd entry
    that it accepts; none if the user's own is one."""
    if not refusal(facts.uid):
        return {}
    name = login(facts)
    shell = facts.programs.get("sh", "/bin/sh")
    own = f"{name}:x:{facts.uid}:{os.getgid()}::{facts.home}:{shell}\n"
    if not _has_user(_SSHD):
        own += f"{_SSHD}:x:{_SSHD_ID}:{_SSHD_ID}::/run/sshd:/bin/false\n"
    texts = {"passwd": b"", "group": b""}
    for file in texts:
        with contextlib.suppress(OSError):
            texts[file] = Path("/etc", file).read_bytes()
    texts["passwd"] = os.fsencode(own) + texts["passwd"]
    return {**texts, "shadow": os.fsencode(f"{name}:*:::::::\n")}


def variables(facts: Facts, run_dir: Path) -> dict[str, str]:
    """Return the variables with which sshd reads these files, which are in `run_dir`.

    libnss_wrapper reads them, only in sshd and ssh. sshd gives its sessions a new environment, and
    ssh starts nothing, so no program of the job ever sees it.
    """
    library = names_library()
    if not library or not refusal(facts.uid):
        return {}
    return {
        "LD_PRELOAD": library,
        "NSS_WRAPPER_PASSWD": str(run_dir / "passwd"),
        "NSS_WRAPPER_SHADOW": str(run_dir / "shadow"),
        "NSS_WRAPPER_GROUP": str(run_dir / "group"),
    }
