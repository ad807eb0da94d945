"""`status` and `report` believe nothing that another user has put where a boot leaves its files."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from entrypoint.base.wire import Invalid
from entrypoint.features.record import status
from entrypoint.features.record.status import load
from entrypoint.output.log import Logger
from entrypoint.ranks import hooks
from entrypoint.system import files
from entrypoint.system.signals import Signals
from tests import command
from tests.process.bench import executable

RESULT = {"status": 0, "reason": "done", "node": "worker-0", "job": "job", "class": "success"}
RECORD = {
    "version": 1, "toolkit": "0.1.0", "result": RESULT,
    "timeline": {
        "job": "j", "me": 0, "names": ["a"], "alone": True, "began": 1.0, "peers": {}, "phases": [["run", 0, 1, ""]],
    },
}  # fmt: skip
OTHER = 3000  # a user who is nobody here
HUGE = "9" * 5000

needs_root = pytest.mark.skipif(
    os.geteuid() != 0, reason="only root can give a file to another user"
)


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    """A folder like /tmp."""
    folder = tmp_path / "shared"
    folder.mkdir()
    folder.chmod(0o1777)
    return folder


def asked(*words: str) -> tuple[int, str, str]:
    done = command.run(Path("/"), *words, env={"PATH": os.environ["PATH"]})
    return done.returncode, done.stdout, done.stderr


def put(path: Path, content: object, owner: int) -> None:
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    os.chown(path, owner, owner)


@pytest.mark.promise(
    "`status` and `report` trust no file that another user wrote",
    control="their own case of the right owner",
)
@needs_root
@pytest.mark.parametrize(("owner", "expected"), [(0, 0), (OTHER, 77)])
def test_a_record_in_a_folder_of_all(owner: int, expected: int, shared: Path) -> None:
    """Its own record is believed, and that of another user is not."""
    put(shared / "run-state.json", RECORD, owner)
    for words, shown in (
        (["status", "--run-dir", str(shared / "run")], "done"),
        (["report", str(shared / "run")], "a"),
    ):
        found, out, err = asked(*words)
        assert (found, shown in out) == (expected, expected == 0), err
        refused = (
            f"EP031 this record belongs to another user | {shared}/run-state.json is owned by {OTHER}"
            in err
        )
        assert refused == (expected == 77)


@needs_root
def test_whose_files_are_believed(shared: Path, tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"  # a folder that nobody else could put files into
    theirs.mkdir()
    os.chown(theirs, OTHER, OTHER)
    for name, place, owner, expected in (
        ("run", shared, OTHER, False),
        ("run", tmp_path, OTHER, True),  # nobody else could put it there
        ("run", shared, 0, True),
        ("run", theirs, OTHER, False),
        (f"entrypoint-{OTHER}-36666", shared, OTHER, False),
    ):
        put(place / name, "", owner)
        assert files.is_trusted(str(place / name), os.lstat(place / name)) is expected, name


DEEP = "[" * 100_000
TEXT = json.dumps(RECORD)


def text_with(old: str, new: str) -> str:
    """Return a record that is valid except for one value."""
    assert TEXT.count(old) == 1
    return TEXT.replace(old, new)


NO_RECORD = {
    "deep": text_with('"result": {', f'"result": {DEEP}'),
    "many digits": text_with('"status": 0', f'"status": {HUGE}'),
    "endless": text_with("0, 1,", "0, 1e400,"),
    "no names": text_with('["a"]', "[1]"),
    "nothing": "",
}


@pytest.mark.parametrize("kind", NO_RECORD)
def test_a_record_that_is_none(kind: str, tmp_path: Path) -> None:
    file = tmp_path / "run-state.json"
    file.write_text(NO_RECORD[kind])
    with pytest.raises(Invalid):
        load(str(file))
    with pytest.raises(status.Silent, match="EP033 the record cannot be read"):
        status.ask(tmp_path / "run")
    file.write_text(TEXT)
    assert load(str(file)).timeline, "the control"
    assert status.ask(tmp_path / "run") == {"phase": "ended", "command": "", **RESULT}


def test_a_missing_record_and_one_that_is_none_are_errors(tmp_path: Path) -> None:
    record = tmp_path / "run-state.json"
    missing = f"EP042 there is no timeline to read | {record}: No such file or directory | "
    for text, says in (("", missing), ("{}", f"EP042 {record} is not a record")):
        if text:
            record.write_text(text)
        found, _, err = asked("report", f"{tmp_path}/run/")
        assert (found, err.count("\n")) == (66, 1), err
        assert err.startswith(f"[entrypoint] {says}")


@pytest.mark.parametrize("words", [HUGE, f"EP{HUGE}", "x" * 100_000, "999"], ids=range(4))
def test_long_words_are_not_explained(words: str) -> None:
    found, _, err = asked("explain", words)
    assert (found, "EP130" in err, len(err) < 400) == (64, True, True), err


@pytest.mark.parametrize("words", [("local", "--nodes"), ("plan", "--slots")], ids=" ".join)
def test_numbers_of_many_digits_are_refused(words: tuple[str, ...]) -> None:
    found, _, err = asked(*words, HUGE, "--", "true")
    assert found in (64, 65), err


@needs_root
@pytest.mark.promise(
    "no start hook runs that somebody else may have written", control="the last row"
)
@pytest.mark.parametrize(
    "whose", ["the folder", "the hook", "a folder for all", "nobody's", "ours"]
)
def test_a_start_hook_of_another_user(
    whose: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hook = executable(tmp_path / "start.d/10-hook", f"touch {tmp_path}/ran")
    if whose.startswith("the"):
        os.chown(hook if whose == "the hook" else hook.parent, OTHER, -1)
    elif whose == "a folder for all":
        hook.parent.chmod(0o777)
    elif whose == "nobody's":  # a link that leads nowhere
        (hook.parent / "20-gone").symlink_to("/gone")
    monkeypatch.setattr(hooks, "FOLDER", hook.parent)
    log = Logger()
    failed = next(
        hooks.run(hooks.FOLDER, {"PATH": os.environ["PATH"]}, "/", 1.0, Signals(log), log), None
    )
    assert (tmp_path / "ran").exists() == (whose == "ours")
    if whose != "ours":
        assert failed
        assert failed.status == 126
        assert failed.reason.startswith(f"EP442 cannot use the start hooks | {hook.parent}")
