"""A name for a uid that /etc/passwd does not know, for sshd and ssh alone: both refuse to work without a user name.

libnss_wrapper is preloaded into the two programs and answers from a passwd file of one line. sshd gives its sessions a
new environment, and ssh starts nothing, so no program of the job ever sees it.
"""

from __future__ import annotations

import os
from pathlib import Path

from entrypoint.errors import CantCreateError, ConfigError
from entrypoint.model import Facts
from entrypoint.plan.topology import NAMES, login


def check(facts: Facts) -> None:
    """Refuse a uid without a name in an image without libnss_wrapper. Raises ConfigError."""
    if not facts.user and NAMES not in facts.programs:
        raise ConfigError(
            f"ssh needs a user name for uid {facts.uid}",
            f"no entry in /etc/passwd, no {NAMES}",
            "install libnss-wrapper, or run as a user that the image has",
        )


def environment(facts: Facts, run_dir: Path) -> dict[str, str]:
    """What sshd's environment needs so that this uid has a name; nothing where it has one. Writes the passwd file.

    Raises ConfigError where the image has no libnss_wrapper, CantCreateError when the file can't be written.
    """
    if facts.user:
        return {}
    check(facts)
    passwd = run_dir / "passwd"
    try:
        passwd.unlink(missing_ok=True)
        with open(os.open(passwd, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600), "w") as file:
            file.write(f"{login(facts)}:x:{facts.uid}:{os.getgid()}::{facts.home}:/bin/sh\n")
    except OSError as error:
        raise CantCreateError(
            f"cannot write {passwd}", error.strerror or str(error), "make room, or set ENTRYPOINT_RUN_DIR"
        ) from error
    return {"LD_PRELOAD": facts.programs[NAMES], "NSS_WRAPPER_PASSWD": str(passwd), "NSS_WRAPPER_GROUP": "/etc/group"}
