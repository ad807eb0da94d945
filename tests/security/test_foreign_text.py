"""Whatever users, platforms, files and peers say: no answer and no message moves a terminal's
cursor or gets a line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from entrypoint.base.text import LONGEST, escaped, escaped_lines, one_line
from tests import table

EVIL = "\x1b]0;owned\x07\x1b[2J\r\x9b1m\u202e\nFORGED"
TIMELINE = {
    "job": EVIL, "me": 0, "hosts": [f"a{EVIL}", "b"], "alone": False,
    "phases": [[f"x{EVIL}", 0, 1, ""], ["roll call", 0, 1, EVIL]],
    "peers": {"1": {"part": None, "answered": None, "why": EVIL}},
}  # fmt: skip
RESULT = {"status": 7, "reason": EVIL, "node": EVIL, "job": EVIL, "class": "job"}
VARIABLES = {
    "none": {}, "name": {f"ENTRYPOINT_{EVIL}": "x"}, "workdir": {"ENTRYPOINT_WORKDIR": f"/{EVIL}"},
    "hosts": {
        "TRAINING_JOB_NAME": "job", "SM_HOSTS": json.dumps([f"a{EVIL}", "b"]), "SM_CURRENT_HOST": "b",
    },
}  # fmt: skip
COMMANDS = table("tests/tables/foreign_text.yaml")["commands"]


def said(folder: Path, words: str, variables: str = "none") -> tuple[int, str]:
    record = {"version": 1, "toolkit": EVIL, "result": RESULT, "timeline": TIMELINE}
    (folder / "broken-state.json").write_text(json.dumps(record))
    record["timeline"] = {**TIMELINE, "phases": [["roll call", 0, 1, ""]], "peers": {}}
    (folder / "run-state.json").write_text(json.dumps(record))
    (folder / "table.json").write_text(json.dumps({"version": EVIL, "status": EVIL}))
    base = {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "ENTRYPOINT_RUN_DIR": str(folder / "boot"),
    }
    argv = [word.replace("EVIL", EVIL) for word in words.split()]
    done = subprocess.run(
        [sys.executable, "-m", "entrypoint", *argv], env={**base, **VARIABLES[variables]},
        cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout.decode("utf-8", "surrogateescape")


@pytest.mark.promise("no message moves a terminal's cursor or adds lines of others")
@pytest.mark.parametrize("case", COMMANDS)
def test_no_control_character_and_no_line_of_others(case: str, tmp_path: Path) -> None:
    status, text = said(tmp_path, *COMMANDS[case])
    assert text.strip()
    assert status not in (70, -6), text
    assert [line for line in text.split("\n") if not line.isprintable()] == []
    assert not [line for line in text.split("\n") if line.lstrip(" '\"").startswith("FORGED")]


@pytest.mark.control("no message moves a terminal's cursor or adds lines of others")
def test_the_check_sees_what_is_not_escaped() -> None:
    """The control."""
    assert not EVIL.isprintable()
    assert escaped(EVIL) == r"\x1b]0;owned\x07\x1b[2J\r\x9b1m\u202e\nFORGED"
    assert escaped_lines("a\n\x1bb\n") == "a\n\\x1bb\n"
    assert one_line(EVIL) == "  1m\ufffd FORGED".replace("  1m", " \ufffd1m")
    assert len(escaped("x" * (LONGEST + 1))) == LONGEST
