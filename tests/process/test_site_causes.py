"""A site's own signatures of failures: which tables count, and where their rows are used."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from entrypoint.causes import judge as judging
from entrypoint.causes import table
from entrypoint.causes.judge import judge
from entrypoint.ranks.keeping import Failure
from entrypoint.system import causes as site
from tests import TREE
from tests.command import captured
from tests.process.diagnoses import causes

PAGE = (TREE / "docs/how-to/why-did-my-job-stop.md").read_text(encoding="utf-8")
(EXAMPLE,) = re.findall(r"(?s)```tsv\n(.*?)```", PAGE)
HEAD = "cause\tneedle\tpattern\tsays\tother\n"
ROW = "storage-io\tacmefs: lost\t\t\t"
LOST = "acmefs: lost lease of /data/a"
NO_DRIVER = "RuntimeError: Found no NVIDIA driver on your system."
# The folder is the site's; here the first argument is.
FROM = (
    "import sys; from pathlib import Path; from entrypoint.cli import script;"
    " from entrypoint.system import causes; causes.FOLDER = Path(sys.argv.pop(1)); script()"
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The site's folder, which nothing has been read from."""

    def forget() -> None:
        for cached in (site.add_site, table.signatures, judging._by_probe):
            cached.cache_clear()

    made = tmp_path / "causes.d"
    made.mkdir(mode=0o755)
    monkeypatch.setattr(site, "FOLDER", made)
    monkeypatch.setattr(table, "_site", [])
    forget()
    yield made
    monkeypatch.undo()
    forget()


def warnings() -> list[str]:
    lines: list[str] = []
    site.add_site(lines.append)
    return lines


@pytest.mark.promise(
    "a site's own signatures are used, and a bad table costs one warning and no job",
    control="the judge without the tables, in the same test",
)
def test_explain_uses_the_table_of_the_page(folder: Path) -> None:
    argv = [sys.executable, "-c", FROM, str(folder), "explain", "-"]

    def answer() -> subprocess.CompletedProcess[str]:
        return captured(argv, input=f"{LOST}\n", check=True)

    assert answer().stdout.startswith("user-code\n")
    (folder / "10-acme.tsv").write_text(EXAMPLE)
    (folder / "20-bad.tsv").write_text(f"{HEAD}gpu-eec\tx\n")
    done = answer()
    assert done.stdout.startswith("storage-io\n")
    assert "the volume /data/a was detached (storage; retry elsewhere" in done.stdout
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"[entrypoint] warning: EP903 {folder}/20-bad.tsv is not used | 20-bad.")
    assert "20-bad.tsv:2: no kind of cause: 'gpu-eec'" in line


def test_a_failed_rank_is_judged_by_every_row_of_the_page(folder: Path) -> None:
    (folder / "10-acme.tsv").write_text(EXAMPLE)
    lines = (LOST, "acme-batch: reclaiming node 4", NO_DRIVER)
    found = causes(*(Failure(f"rank {rank}", 1, (line,)) for rank, line in enumerate(lines)))
    assert {cause.rank: (cause.slug, cause.retry, cause.fix) for cause in found} == {
        "rank 0": ("storage-io", "elsewhere", table.KINDS["storage-io"].fix),
        "rank 1": ("preempted", "same", "wait: Acme queues the job again"),
        "rank 2": ("user-args", "no", "submit with --pool=gpu"),
    }


def test_the_last_row_for_the_same_words_wins(folder: Path) -> None:
    """That of the site over ours, and of its tables the last by name."""
    for name, cause in (("2.tsv", "setup"), ("1.tsv", "user-args"), ("3.txt", "disk-full")):
        (folder / name).write_text(f"{HEAD}{cause}\tFound no NVIDIA driver\n")
    (folder / ".4.tsv").write_text("Kubernetes creates such files")
    assert warnings() == []
    assert judge([NO_DRIVER], 1).slug == "setup"
    rows = [row for row in table.signatures() if row.needle == "Found no NVIDIA driver"]
    assert [row.slug for row in rows] == ["setup"]


# A sentence of words, without its full stop: for each word one more step would be twice the time.
SENTENCE = "acmefs: " + "the lease of volume data was lost while it was written to " * 4
HANGS = HEAD + "storage-io\tacmefs: \t(\\w+\\s?)*\\.$\n"


@pytest.mark.promise(
    "no row of a site holds a node", control="a row that may take long is used, below"
)
def test_a_row_that_could_take_for_ever_is_not_used(folder: Path) -> None:
    """Neither by a job whose rank has failed, nor by `explain`."""
    (folder / "a.tsv").write_text(HANGS)
    (folder / "b.tsv").write_text(HEAD + ROW)
    lines: list[str] = []
    (found,) = causes(Failure("rank 0", 1, (SENTENCE, LOST)), log=lines.append)
    assert len(lines) == 1
    assert found.slug == "storage-io"
    argv = [sys.executable, "-c", FROM, str(folder), "explain", "-"]
    done = captured(argv, input=f"{SENTENCE}\n", check=True)
    assert done.stdout.startswith("user-code\n")
    assert "a.tsv is not used | a.tsv:2: pattern: it may take too long" in done.stderr


@pytest.mark.control("no row of a site holds a node")
def test_what_rows_of_a_site_cost_is_bounded_together(folder: Path) -> None:
    """As many of the worst rows that are allowed as a table holds, on the worst lines for them."""
    pattern = "a{0,99}a{0,99}x"
    rows = [f"storage-io\ta\t{pattern}{number}" for number in range(200)]
    (folder / "a.tsv").write_text(HEAD + "\n".join([*rows, ROW]))
    assert warnings() == []
    begin = time.process_time()
    assert judge(["a" * 1000] * 500 + [f"{'a' * 990}Error"] * 500 + [LOST], 1).slug == "storage-io"
    assert time.process_time() - begin < 10
    assert judge(["baaax7"], 1).slug == "storage-io"


def test_a_folder_that_is_not_there_is_no_problem(folder: Path) -> None:
    folder.rmdir()
    assert warnings() == []


def as_link(file: Path) -> None:
    file.rename(file.parent.parent / "data")
    file.symlink_to(file.parent.parent / "data")


def test_a_link_to_a_file_is_read_as_in_a_configmap(folder: Path) -> None:
    (folder / "a.tsv").write_text(HEAD + ROW)
    as_link(folder / "a.tsv")
    assert warnings() == []
    assert judge([LOST], 1).slug == "storage-io"


def as_pipe(file: Path) -> None:
    file.unlink()
    os.mkfifo(file, 0o644)


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (lambda file: file.write_text(f"{HEAD}{ROW}\nstorage-io\tx\t(\n"), "a.tsv:3: pattern: "),
        (lambda file: file.write_text(f"{HEAD}setup\tx\tx{{{10**20}}}\n"), "a.tsv:2: pattern: "),
        (lambda file: file.write_text("storage-io\tx\n"), "a.tsv:1: the columns are cause, needle"),
        (lambda file: file.write_bytes(b"\xff"), "'utf-8' codec can't decode"),
        (lambda file: file.write_text(HEAD + "#" * site.MOST), "more than 1 MiB"),
        (lambda file: file.chmod(0o666), "others may change it: -rw-rw-rw-"),
        (as_pipe, "not a regular file"),
        (lambda file: file.parent.chmod(0o777), "others may change it: drwxrwxrwx"),
        pytest.param(
            lambda file: os.chown(file, 4321, 4321),
            "it belongs to user 4321",
            marks=pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away"),
        ),
    ],
)
def test_a_bad_table_is_one_warning(
    spoil: Callable[[Path], object], why: str, folder: Path
) -> None:
    (folder / "a.tsv").write_text(HEAD + ROW)
    spoil(folder / "a.tsv")
    (line,) = warnings()
    assert line.startswith(f"warning: EP903 {folder}")
    assert f" is not used | {why}" in line
    assert judge([LOST], 1).slug == "user-code"
