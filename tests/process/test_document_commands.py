"""Every command that README and docs show is run: each block of shell, by a real bash, with
stand-ins on PATH.

The toolkit's own commands are real, but for `run`, which becomes `plan`. What needs an accelerator,
a cluster, root or an hour is held to less, as `HELD` says; another test runs it for real where one
is named there.
"""

from __future__ import annotations

import functools
import re
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from shlex import quote, split

import pytest

from entrypoint.cli.parser import NAMES
from tests import TREE, table
from tests.command import captured
from tests.command import run as entrypoint
from tests.process.bench import executable

pytestmark = pytest.mark.see

SHIM = TREE / "tests/commands/shim.py"
PAGES = [
    TREE / "README.md",
    TREE / "CONTRIBUTING.md",
    TREE / "tests/README.md",
    TREE / "README.zh-CN.md",
    *sorted(TREE.glob("docs/**/*.md")),
]
# for real: tests/loopback/test_tutorial.py, tests/bake/test_own_image.py
TUTORIAL, TRANSLATED = "docs/tutorial/first-job.md", "docs/zh/first-job.md"
OWN_IMAGE = "docs/tutorial/own-image.md"

# What a stand-in is held to, and which test runs the real thing.
HELD: dict[str, str] = table("tests/tables/held.yaml")
# what a page takes for granted: the spec that stands on it, or beside it; None if it has none
PAGES_FILES: dict[str, dict[str, str | None]] = {
    "docs/how-to/compose.md": {
        "job.yaml": (
            "hosts: [worker-0, worker-1]\nslots: 1\nsecret_file: secret\ncommand: [train.py]\n"
        )
    },
    **{
        page: {
            "job.yaml": None,
            "run_mpi.sh": (TREE / "tests/samples/modelarts/run_mpi.sh").read_text(),
        }
        for page in ("docs/how-to/job-yaml.md", "docs/zh/job-yaml.md")
    },
}
JOB = "name: demo\nlauncher: torchrun\nslots: 8\ncommand: [train.py]\n"


def blocks(page: Path) -> Iterator[tuple[str, str]]:
    """The page's blocks of shell, each with its place; not what is rendered first."""
    text = page.read_text(encoding="utf-8")
    for found in re.finditer(r"(?ms)^( *)```sh\n(.*?)^ *```$", text):
        line = text[: found.start()].count("\n") + 1
        if "{{" not in found[2]:
            yield f"{page.relative_to(TREE)}:{line}", textwrap.dedent(found[2])


def stand_in(folder: Path, name: str, called: str = "") -> None:
    executable(folder / name, f'exec {sys.executable} {quote(str(SHIM))} {called or name} "$@"')


def workplace(tmp_path: Path, page: str) -> Path:
    """A folder as a reader of that page has it."""
    here = tmp_path / "tree"
    for name in split(
        "entrypoint make docker apptainer kubectl curl jq sbatch scancel openssl pip pytest"
    ):
        stand_in(tmp_path / "bin", name)
    (tmp_path / "venv/bin").mkdir(parents=True)
    shutil.copy(tmp_path / "bin/entrypoint", tmp_path / "venv/bin")
    for path in (
        path for place in ("*", "dev/*", "bench/*") for path in TREE.glob(f"scripts/{place}")
    ):
        if path.is_file():
            stand_in(here / path.relative_to(TREE).parent, path.name, str(path.relative_to(TREE)))
    for name in ("pip", "entrypoint"):
        stand_in(tmp_path / "made/bin", name)
    (tmp_path / "made/bin/activate").write_text(f"PATH={tmp_path}/made/bin:$PATH\n")
    executable(tmp_path / "bin/python3", f'[ "$1" = -m ] && cp -r {tmp_path}/made "$3"')
    (here / "examples").symlink_to(TREE / "examples")
    own = PAGES_FILES.get(page, {})
    files: dict[str, str | None] = {
        "job.yaml": JOB, "secret": "0123456789abcdef" * 4, "train.py": "", "job.log": "KeyError: 'a'\n",
        "run_mpi.sh": "", "torchrun.sh": "", **own,
        "code/demo-code/job.yaml": own.get("job.yaml") or JOB, "code/demo-code/run_mpi.sh": "",
        "jobstart_hccl.json": (TREE / "tests/ranktables/good/v0.1-twelve-pods.json").read_text(),
        "a/hccn.conf": "address_0=192.3.0.1\naddress_1=192.4.0.1\n",
    }  # fmt: skip
    for name, text in files.items():
        if text is None:
            continue
        (here / name).parent.mkdir(parents=True, exist_ok=True)
        (here / name).write_text(text)
    return here


def run(tmp_path: Path, page: str, text: str) -> tuple[int, str, set[str]]:
    """Status and words of a block, and the stand-ins that it called."""
    here, calls = workplace(tmp_path, page), tmp_path / "calls"
    calls.touch()
    env = {
        "PATH": f"{tmp_path}/bin:/usr/bin:/bin", "HOME": str(here), "MA_JOB_DIR": f"{here}/code",
        "ENTRYPOINT_RUN_DIR": f"{tmp_path}/run", "TOKEN": "t", "PROJECT_ID": "p", "DOCUMENT_TREE": str(TREE),
        "DOCUMENT_CALLS": str(calls), "DOCUMENT_VENV": f"{tmp_path}/venv",
    }  # fmt: skip
    text = text.replace("/user/config/", f"{here}/")
    done = captured(["bash", "-euo", "pipefail", "-c", text], cwd=here, env=env)
    return done.returncode, done.stdout[-300:] + done.stderr, set(calls.read_text().split())


BLOCKS = [
    block
    for page in PAGES
    for block in blocks(page)
    if not block[0].startswith((TUTORIAL, TRANSLATED, OWN_IMAGE))
]


@pytest.mark.promise("every command of README and docs runs")
@pytest.mark.see("words", "every block of shell in README and docs runs")
@pytest.mark.parametrize(("place", "text"), BLOCKS, ids=[place for place, _ in BLOCKS])
def test_a_block_of_shell_runs(place: str, text: str, tmp_path: Path) -> None:
    status, words, called = run(tmp_path, place.partition(":")[0], text)
    assert status == 0, words
    assert {
        name for name in called if name not in HELD and not name.startswith("scripts/")
    } == set()


def test_the_translated_tutorial_has_the_same_commands() -> None:
    english, chinese = (
        [text for _, text in blocks(TREE / page)] for page in (TUTORIAL, TRANSLATED)
    )
    assert chinese == english


@pytest.mark.control("every command of README and docs runs")
@pytest.mark.parametrize(
    "wrong",
    [
        "entrypoint run --no-such-flag -- train.py",
        "entrypoint fly",
        "entrypoint local --no-such-flag",
        "make no-such-target",
        "scripts/no-such-script",
        "scripts/test tests/no-such-folder",
        "docker run IMAGE entrypoint run --no-such-flag -- train.py",
        "docker build -f Dockerfile.gpu --build-arg NO_SUCH=1 .",
        "no-such-tool",
    ],
)
def test_what_is_wrong_is_noticed(wrong: str, tmp_path: Path) -> None:
    assert run(tmp_path, "README.md", wrong)[0] != 0


def spoken() -> Iterator[tuple[str, Sequence[str]]]:
    """The commands within sentences, each with its page."""
    for page in PAGES:
        text = re.sub(r"(?ms)^ *```.*?^ *```", "", page.read_text(encoding="utf-8"))
        for code in re.findall(r"(?<!`)`([^`\n]+)`(?!`)", text):
            if (
                re.match(r"(entrypoint|make|scripts/\S+)( |$)", code)
                and code not in NO_COMMANDS
                and "…" not in code
            ):
                yield str(page.relative_to(TREE)), code.split(" ")


NO_COMMANDS = {
    "entrypoint keys 1",  # the name that keys are derived with
    "entrypoint hosts",  # the sample command of docs/extending/command.md
    "entrypoint hosts --hosts a,b --node-rank 0",
}


@functools.cache
def help_of(*command: str) -> str:
    return entrypoint(TREE, *command, "--help", env={}).stdout


def unknown(words: Sequence[str]) -> list[str]:
    """What of a command there is not: its name, or a flag of ours."""
    if words[0].startswith("scripts/"):
        return [] if (TREE / words[0]).exists() else [words[0]]
    if words[0] == "make":
        targets = re.findall(r"(?m)^([a-z0-9-]+):", (TREE / "Makefile").read_text())
        return [word for word in words[1:2] if word not in targets]
    if len(words) == 1 or not re.match(r"[a-z-]", words[1]):
        return []  # the program as such, or a word that stands for any command
    if words[1] not in (*NAMES, "--help", "--version"):
        return [words[1]]
    ours = words[2 : words.index("--")] if "--" in words else words[2:]
    flags = [word.partition("=")[0] for word in ours if re.match("--[a-z]", word)]
    if not flags or words[2] in ("acme", "TARGET"):  # what docs/extending/ makes up, and any
        return []
    known = help_of(words[1], *words[2:3][: words[1] in ("deploy", "ranktable")])
    return [flag for flag in flags if flag not in known]


@pytest.mark.promise("every command of README and docs runs")
@pytest.mark.see("words", "every command in a sentence of theirs is one")
def test_a_command_in_a_sentence_is_one(record_property: Callable[[str, object], None]) -> None:
    found = list(spoken())
    record_property("seen", f"{len(found)} commands")
    assert len(found) > 50
    assert [(page, words) for page, words in found if unknown(words)] == []
    # Control
    assert [
        unknown(each.split())
        for each in ("entrypoint fly", "make tea", "scripts/none", "entrypoint plan --none")
    ] == [["fly"], ["tea"], ["scripts/none"], ["--none"]]
