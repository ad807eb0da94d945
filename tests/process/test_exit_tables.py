"""Exit codes and signals of a program by table: kept by the entrypoint alone, and through this machine's real mpirun.

Some here; all 256 and 31 with TEST_FULL=1. Through torchrun: tests/compose/test_exit_tables_torchrun.py.
"""

from __future__ import annotations

import shutil
import sys

import pytest

from tests import exit_table
from tests.cluster import clean_environment

RUN = [sys.executable, "-m", "entrypoint", "run"]


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("kind", ["codes", "signals"])
@pytest.mark.parametrize("launcher", ["plain", "mpirun"])
def test_every_end_is_kept(launcher: str, kind: str) -> None:
    if launcher == "mpirun" and shutil.which("mpirun") is None:
        pytest.skip("no mpirun on this machine")
    # Where we become the program there is little that could lose its status.
    wanted = exit_table.wanted(kind, "few" if launcher == "plain" else "some")
    words = [*RUN, "--launcher", launcher, "--slots", "1"]
    assert exit_table.run(kind, wanted, words, clean_environment(), 4) == wanted


@pytest.mark.parametrize(("kind", "value"), [("codes", 7), ("signals", 9)])
def test_the_table_sees_what_is_not_kept(kind: str, value: int) -> None:
    """The control: a way to start that flattens statuses, as launchers do."""
    flattens = ["sh", "-c", 'shift; "$@" || exit 1', "sh"]
    assert exit_table.run(kind, [value], flattens, clean_environment(), 1) == {value: 1}


def test_the_whole_table_is_there() -> None:
    assert list(exit_table.wanted("codes", "all").items()) == [(code, code) for code in range(256)]
    assert list(exit_table.wanted("signals", "all")) == list(range(1, 32))
