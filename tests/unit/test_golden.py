"""Every golden tree comes out as it is written down."""

from __future__ import annotations

from pathlib import Path

import pytest

from entrypoint.spec import reference
from tests.containers import TREE
from tests.golden import CASES, cases, expected, folders, made

FOLDERS = [folder for case in cases() for folder in folders(case)]
SIZES = ("one", "two", "sixty-four")


def name(path: Path) -> str:
    return str(path.relative_to(CASES))


@pytest.mark.parametrize("folder", FOLDERS, ids=name)
def test_golden(folder: Path) -> None:
    wanted, got = expected(folder), made(folder)
    assert sorted(got) == sorted(wanted), f"{name(folder)}: run `make golden` and read the difference"
    for file, text in wanted.items():
        assert got[file] == text, f"{name(folder)}/{file}: run `make golden` and read the difference"


def test_every_template_is_shown_for_every_size() -> None:
    shown = {(folder.parent.name, file) for folder in FOLDERS for file in expected(folder)}
    everywhere = {"run_mpi.sh", "hostfile", "rank.sh", "torchrun.sh", "torchlaunch.sh", "sshd_config"}
    wanted = {(size, file) for size in SIZES for file in everywhere}
    # One node has no use for a way to the others.
    wanted |= {(size, "agent") for size in SIZES[1:]}
    assert wanted <= shown, sorted(wanted - shown)


def test_large_cases_show_the_first_and_the_last_node() -> None:
    for case in CASES.glob("*/sixty-four"):
        assert {"node-0", "node-63"} <= {folder.name for folder in folders(case)}


def test_the_reference_is_what_the_fields_say() -> None:
    assert (TREE / "docs/reference/spec.md").read_text() == reference.markdown(), "run make golden"
