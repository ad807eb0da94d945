"""Exit codes and signals of a program by table: kept by the entrypoint alone, and through this
machine's real mpirun.

A few in `make test`, more in `make test-all`; all 256 and 31 with `-m full`.
"""

from __future__ import annotations

import shutil
import sys

import pytest

from tests import exit_table
from tests.cluster import clean_environment

pytestmark = pytest.mark.fault("17", "every status, every signal", launcher="plain, mpirun")
RUN = [sys.executable, "-m", "entrypoint", "run"]


KINDS = pytest.mark.parametrize("kind", ["codes", "signals"])
LAUNCHERS = pytest.mark.parametrize("launcher", ["plain", "mpirun"])


def keeps(launcher: str, kind: str, size: str) -> None:
    if launcher == "mpirun" and shutil.which("mpirun") is None:
        pytest.skip("no mpirun on this machine")
    wanted = exit_table.wanted(kind, size)
    words = [*RUN, "--launcher", launcher, "--slots", "1"]
    assert exit_table.run(kind, wanted, words, clean_environment(), 4) == wanted


@pytest.mark.promise("every exit code and signal of a program is kept")
@pytest.mark.timeout(1200)
@KINDS
@LAUNCHERS
@pytest.mark.parametrize("size", ["few", "some"])
def test_every_end_is_kept(launcher: str, kind: str, size: str) -> None:
    keeps(launcher, kind, size)


@pytest.mark.full
@pytest.mark.timeout(1200)
@KINDS
@LAUNCHERS
def test_every_end_of_the_table_is_kept(launcher: str, kind: str) -> None:
    keeps(launcher, kind, "all")


@pytest.mark.control("every exit code and signal of a program is kept")
@pytest.mark.parametrize(("kind", "value"), [("codes", 7), ("signals", 9)])
def test_the_table_sees_what_is_not_kept(kind: str, value: int) -> None:
    """The control: a way to start that flattens statuses, as launchers do."""
    flattens = ["sh", "-c", 'shift; "$@" || exit 1', "sh"]
    assert exit_table.run(kind, [value], flattens, clean_environment(), 1) == {value: 1}


def test_the_whole_table_is_there() -> None:
    assert list(exit_table.wanted("codes", "all").items()) == [(code, code) for code in range(256)]
    assert list(exit_table.wanted("signals", "all")) == list(range(1, 32))
