"""The program that runs msrun, here with a msrun of our own."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from entrypoint.base.render import render
from tests.command import captured

MSRUN = """
import subprocess, sys
from mindspore.parallel.cluster.process_entity import _api
manager = _api._ProcessManager()
manager.cgn_processes = [subprocess.Popen(["sh", "-c", words]) for words in ("exec sleep 600", sys.argv[-1])]
manager.msn_process = subprocess.Popen(["sleep", "60"])
manager.cgn_processes[1].wait()
manager.cgn_processes[0].poll()
manager.kill_worker_processes()
manager.msn_process.wait()
raise RuntimeError("Distributed job exited with exception.")
"""


API = """
class _ProcessManager:
    def kill_worker_processes(self):
        self.cgn_processes[0].kill()
        self.cgn_processes[0].wait()
    def kill_tail_log_processes(self): ...
"""


def mindspore(folder: Path, api: str = API) -> list[str]:
    """A command line with a MindSpore whose msrun behaves as that of 2.10 does when a process
    fails."""
    package = folder / "mindspore/parallel/cluster"
    (package / "process_entity").mkdir(parents=True)
    (package / "process_entity/_api.py").write_text(api)
    (package / "run.py").write_text(MSRUN)
    (folder / "msrun.py").write_text(render("msrun/msrun.py", {}))
    return [sys.executable, str(folder / "msrun.py"), "--worker_num=2"]


@pytest.mark.parametrize(("failure", "status"), [("exit 7", 7), ("kill -9 $$", 137)])
def test_the_status_is_that_of_the_process_that_failed_first(
    tmp_path: Path, failure: str, status: int
) -> None:
    done = captured([*mindspore(tmp_path), failure])
    assert done.returncode == status, done.stderr
    assert "Distributed job exited with exception." in done.stderr


def test_with_an_unknown_msrun_it_says_so_and_keeps_its_hands_off(tmp_path: Path) -> None:
    api = API.replace("def kill_tail_log_processes(self): ...", "")
    line = mindspore(tmp_path, api)
    (tmp_path / "mindspore/parallel/cluster/run.py").write_text("raise RuntimeError('own end')")
    done = captured([*line, "train.py"])
    assert done.returncode == 1
    assert "this MindSpore's msrun keeps its own habits" in done.stderr
    assert "own end" in done.stderr
