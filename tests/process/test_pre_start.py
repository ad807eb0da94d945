"""ma-pre-start.sh of ModelArts' code directory: a start hook whose exports reach the ranks of its
node."""

from __future__ import annotations

import json
import subprocess

import pytest

from tests.process.bench import Bench

RANK = 'echo "rank ${GREETING-unset} ${GIVEN-unset}" >>"$NOTES"'


class Job:
    """A job of one node on ModelArts, whose code directory has this script."""

    def __init__(
        self, bench: Bench, script: str, folders: tuple[str, ...] = ("demo code",)
    ) -> None:
        self.bench, self.jobs = bench, bench.folder / "user-job-dir"
        for name in folders:
            (self.jobs / name).mkdir(parents=True)
            # OBS knows no mode: not executable
            (self.jobs / name / "ma-pre-start.sh").write_text(script)
        self.env = {"MA_JOB_DIR": str(self.jobs), "GIVEN": "container"}

    def start(self, *flags: str, program: str = RANK, **env: str) -> subprocess.Popen[str]:
        return self.bench.start("sh", "-c", program, slots=1, flags=flags, **{**self.env, **env})

    def run(self, *flags: str, **how: str) -> int:
        return self.start(*flags, **how).wait()


@pytest.mark.promise("ma-pre-start.sh runs once on each node, before ranks, which get its exports")
def test_it_runs_first_and_what_it_exports_is_the_ranks(bench: Bench) -> None:
    job = Job(
        bench,
        'echo "hook in $PWD by ${0##*/}" >>"$NOTES"; export GREETING="a b\'c"; unset GIVEN;'
        " OWN=x\n",
    )
    assert job.run() == 0, bench.err
    assert bench.notes == [f"hook in {job.jobs} by ma-pre-start.sh", "rank a b'c unset"]
    assert "start hook ma-pre-start.sh\n" in bench.err
    assert "start hook ma-pre-start.sh has changed GIVEN, GREETING\n" in bench.err


@pytest.mark.promise("ma-pre-start.sh runs once on each node, before ranks, which get its exports")
@pytest.mark.parametrize(
    ("script", "status"),
    [("false\n", 1), ("exit 7", 7), ("set -e; ls /none; true", 2), ("kill -9 $$", 137), ("fi", 2)],
)
def test_its_failure_is_the_job_s(bench: Bench, script: str, status: int) -> None:
    """With its own status, as a start hook's; no rank starts."""
    assert Job(bench, script).run("--restarts", "2") == status
    assert bench.notes == []
    said = bench.err.splitlines()[-1]
    assert said.startswith("[entrypoint] EP441 start hook ma-pre-start.sh ")
    assert said.endswith(f"; exit {status}")
    assert json.loads((bench.folder / "run-state.json").read_text())["result"]["class"] == "job"


@pytest.mark.parametrize(
    ("script", "flags", "note"),
    [
        ("export GREETING=x; exit", (), "rank x container"),
        # nothing of a script that became another program
        ("export GREETING=x; exec true", (), "rank unset container"),
        # a lone program takes our place, after the hook
        ("export GREETING=hello", ("--launcher", "plain"), "rank hello container"),
        # the spec's variables win, and our settings are read before
        ("export GREETING=script ENTRYPOINT_SLOTS=2", ("--env", "GREETING=spec"), "rank spec container"),
    ],
)  # fmt: skip
def test_what_ranks_get(bench: Bench, script: str, flags: tuple[str, ...], note: str) -> None:
    assert Job(bench, script).run(*flags) == 0, bench.err
    assert bench.notes == [note]


def test_every_byte_passes(bench: Bench) -> None:
    job = Job(bench, "export GREETING=$'two\\nlines \\xff'")
    assert job.run(program='printf %s "$GREETING" >"$NOTES"') == 0, bench.err
    assert (bench.folder / "notes").read_bytes() == b"two\nlines \xff"


@pytest.mark.control("ma-pre-start.sh runs once on each node, before ranks, which get its exports")
def test_it_can_be_refused(bench: Bench) -> None:
    assert Job(bench, "exit 7").run(ENTRYPOINT_PRE_START="skip") == 0, bench.err
    assert bench.notes == ["rank unset container"]


@pytest.mark.parametrize("refused", [False, True])
def test_two_of_them(bench: Bench, refused: bool) -> None:
    job = Job(bench, "exit 7", folders=("one", "two"))
    assert job.run(ENTRYPOINT_PRE_START="skip" if refused else "") == (0 if refused else 78)
    assert (
        "several folders below MA_JOB_DIR have a script to run first | " in bench.err
    ) is not refused


def test_it_sees_no_secret(bench: Bench) -> None:
    job = Job(bench, 'echo "${ENTRYPOINT_SECRET-none}" >>"$NOTES"')
    assert job.run(program="true", ENTRYPOINT_SECRET="5ecret" * 9) == 0, bench.err
    assert bench.notes == ["none"]


@pytest.mark.parametrize("command", ["plan", "facts"])
def test_it_is_named_before_it_runs(bench: Bench, command: str) -> None:
    job = Job(bench, 'echo ran >>"$NOTES"', folders=("code",))
    words = ("--", "true") if command == "plan" else ()
    process = bench.popen([str(bench.folder / "bin/entrypoint"), command, *words], job.env)
    assert process.wait() == 0, bench.err
    assert f"{job.jobs}/code/ma-pre-start.sh" in bench.out
    assert bench.notes == []
