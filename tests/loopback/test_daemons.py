"""mpirun's daemons start over the roll call's sessions: mpirun itself logs in nowhere."""

from __future__ import annotations

import os

from tests.cluster import Make


def test_mpirun_makes_no_login_of_its_own(cluster: Make) -> None:
    """An ssh client that leaves a trace is never run; control: by the setting for it, a job itself
    may run it."""
    job = cluster(2, slots=1)
    trace, bin_dir = job.folder / "trace", job.folder / "bin"
    bin_dir.mkdir()
    (bin_dir / "ssh").write_text(
        f'#!/bin/sh\necho "$*" >>{trace}\nPATH={os.environ["PATH"]} exec ssh "$@"\n'
    )
    (bin_dir / "ssh").chmod(0o755)
    path = {"PATH": f"{bin_dir}:{os.environ['PATH']}"}
    job.start_all("echo", "up", env=path)
    assert job.ends() == {0: 0, 1: 0}, job.both()
    assert not trace.exists(), trace.read_text()
    again = cluster(2, slots=1)
    login = '[ "$RANK" = 1 ] || sh "$ENTRYPOINT_RUN_DIR/ssh" node-1 "echo in as \\$(id -u)"'
    again.start_all("sh", "-c", login, env={**path, "ENTRYPOINT_SSH_CLIENT": "files"})
    assert again.ends() == {0: 0, 1: 0}, again.both()
    assert again.out(0) == f"in as {os.geteuid()}\n"
    assert "node-1" in trace.read_text()
