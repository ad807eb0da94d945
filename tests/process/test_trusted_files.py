"""`status` and `report` believe nothing that another user has put where a boot leaves its files."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from entrypoint.record import status
from entrypoint.system import files
from tests.process.bench import Bench, until

FORGED = {"status": 0, "reason": "done", "node": "worker-0", "job": "job", "class": "success"}
OTHER = 3000  # a user who is nobody here
HUGE = "9" * 5000

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user")


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    """A folder like /tmp."""
    folder = tmp_path / "shared"
    folder.mkdir()
    folder.chmod(0o1777)
    return folder


def asked(*words: str, env: Mapping[str, str] | None = None) -> tuple[int, str, str]:
    argv = [sys.executable, "-m", "entrypoint", *words]
    base = {"PATH": os.environ["PATH"], **(env or {})}
    done = subprocess.run(argv, env=base, capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, done.stdout, done.stderr


def put(path: Path, content: object, owner: int) -> None:
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    os.chown(path, owner, owner)


@pytest.mark.promise(
    "`status` and `report` trust no file that another user wrote", control="their own case of the right owner"
)
@needs_root
@pytest.mark.parametrize(("owner", "expected"), [(0, 0), (OTHER, 69)])
def test_the_result_of_a_killed_boot(owner: int, expected: int, shared: Path, bench: Bench) -> None:
    """Its own result is believed, and that of another user is not."""
    bench.env["ENTRYPOINT_RUN_DIR"] = str(shared / "run")
    running = bench.start("sh", "-c", 'echo ready >>"$NOTES"; exec sleep 600', slots=1)
    bench.await_notes("ready")
    running.send_signal(signal.SIGKILL)
    running.wait(30)
    until(lambda: not bench.left(), "its end")
    put(shared / "run-result.json", FORGED, owner)
    found, out, err = asked("status", "--run-dir", str(shared / "run"))
    assert (found, "done" in out) == (expected, expected == 0)
    assert ("EP033 the entrypoint has ended without a result" in err) == (expected == 69)


@pytest.mark.promise("`status` and `report` trust no file that another user wrote")
@needs_root
@pytest.mark.parametrize(("owner", "expected"), [(0, 0), (OTHER, 77)])
def test_a_timeline(owner: int, expected: int, shared: Path) -> None:
    timeline = {
        "version": 1, "toolkit": "0.1.0", "job": "job", "me": 0, "hosts": ["node-0"], "alone": True,
        "phases": [["roll call", 0, 1, ""]], "peers": {},
    }  # fmt: skip
    put(shared / "run-timeline.json", timeline, owner)
    put(shared / "run-result.json", {**FORGED, "reason": "forged"}, OTHER)
    found, out, err = asked("report", str(shared / "run"))
    assert (found, "node-0" in out) == (expected, expected == 0)
    assert "forged" not in out + err
    if expected:
        assert f"EP031 this timeline is another user's | {shared}/run-timeline.json is owned by {OTHER}" in err


@needs_root
def test_who_answers_for_a_boot(shared: Path) -> None:
    (shared / "run").mkdir()
    os.chown(shared / "run", OTHER, OTHER)
    found, _, err = asked("status", "--run-dir", str(shared / "run"))
    assert (found, f"EP031 this boot is another user's | {shared}/run is owned by {OTHER}" in err) == (77, True)


@needs_root
def test_whose_files_are_believed(shared: Path, tmp_path: Path) -> None:
    for name, place, owner, expected in (
        ("run", shared, OTHER, False),
        ("run", tmp_path, OTHER, True),  # nobody else could put it there
        ("run", shared, 0, True),
        (f"entrypoint-{OTHER}-36666", shared, OTHER, True),  # root asks for that user's boot
        ("entrypoint-1000-36666", shared, OTHER, False),
    ):
        put(place / name, "", owner)
        assert files.is_trusted(str(place / name), os.lstat(place / name)) is expected, name


DEEP = "[" * 100_000
NO_RESULT = {
    "deep": f'{{"status": {DEEP}',
    "many digits": json.dumps(FORGED).replace("0,", f"{HUGE},", 1),
    "no number": json.dumps(FORGED).replace("0,", "1e400,", 1),
    "true": json.dumps({**FORGED, "status": True}),
    "a list": "[]",
    "nothing": "",
}


@pytest.mark.parametrize("kind", NO_RESULT)
def test_a_result_that_is_none(kind: str, tmp_path: Path) -> None:
    (tmp_path / "run-result.json").write_text(NO_RESULT[kind])
    assert status.result(tmp_path / "run") is None
    (tmp_path / "run-result.json").write_text(json.dumps(FORGED))
    assert status.result(tmp_path / "run") == {"phase": "ended", **FORGED}, "the control"


TIMELINE = (
    '{"version":1,"toolkit":"0.1.0","job":"j","me":0,"hosts":["a"],"alone":true,"peers":{},"phases":[["run",0,1,""]]}'
)


def timeline_with(old: str, new: str) -> str:
    """Return a timeline that is valid except for one value."""
    assert TIMELINE.count(old) == 1
    return TIMELINE.replace(old, new)


NO_TIMELINE = {
    "deep": f'{{"version": 1, "hosts": {DEEP}',
    "endless": timeline_with("0,1,", "0,1e400,"),
    "not a number": timeline_with("0,1,", "0,NaN,"),
    "long": timeline_with("0,1,", "0,1e200,"),
    "no rank": timeline_with('"me":0', '"me":1e400'),
    "digits": timeline_with('"me":0', f'"me":{HUGE}'),
    "no names": timeline_with('["a"]', "[1]"),
}


@pytest.mark.parametrize("kind", NO_TIMELINE)
def test_a_timeline_that_is_none(kind: str, tmp_path: Path) -> None:
    (tmp_path / "run-timeline.json").write_text(NO_TIMELINE[kind])
    found, _, err = asked("report", str(tmp_path / "run"))
    assert (found, "EP042" in err) == (66, True), err


@pytest.mark.parametrize("words", [HUGE, f"EP{HUGE}", "x" * 100_000, "999"])
def test_long_words_are_not_explained(words: str) -> None:
    found, _, err = asked("explain", words)
    assert (found, "EP130" in err, len(err) < 400) == (64, True, True), err


@pytest.mark.parametrize("words", [["local", "--nodes", HUGE, "--", "true"], ["plan", "--slots", HUGE, "--", "true"]])
def test_numbers_of_many_digits_are_refused(words: list[str]) -> None:
    found, _, err = asked(*words)
    assert found in (64, 65), err
