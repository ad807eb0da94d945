"""scripts/test - run tests, with all their set-up

    scripts/test                            what must hold for every change: make test
    scripts/test all [AREA...]              each test once, and one table: make test-all
    scripts/test release [AREA...]          what must hold before a tag, too: make test-release
    scripts/test table [AREA...]            what was tried last, a line each
    scripts/test PYTEST ARGUMENT...         some tests; nothing is set up for them
    scripts/test simulate --help            schedules of failures in simulated time
    scripts/test mutants --help             wrong changes of spec, plan and job that no fast test notices (10 minutes of CPU)
    scripts/test failures                   how well failures are judged: precision and recall
    scripts/test promises                   what is promised, by which tests, and what their controls are
    scripts/test screenshots                the pictures of our pages, into docs/images: make screenshots

Options of the first three:

    --changed       leave out what passed when all that it depends on was as it is now. Each row of
                    the table says how many tests that is, and of which commits their results are
    --rounds N      so many times in a row

The status is 0 only if nothing failed. The results are in build/proof/results.jsonl.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests import TREE
from tests.proof.areas import AREAS, EVERY_CHANGE, SESSIONS, STEPS, TIERS, Area, Step
from tests.proof.inputs import Inputs
from tests.proof.results import append, begin, read
from tests.proof.tables import home, of_lines, of_run

FOLDER = TREE / "build/proof"
ROOM = 15  # GB on docker's disk: with less, tests of containers fail in the middle of a run
MARKS = {
    "test": "not slow and not release and not full",
    "all": "not release and not full",
    "release": "not full",
}


# Programs of the tests, with their own arguments.
PROGRAMS = {
    "simulate": ("tests.simulation",),
    "mutants": ("scripts.mutants",),
    "failures": ("tests.failures.score",),
    "promises": ("tests.promises",),
    "screenshots": ("tests.pages", "docs/images"),
}


def say(text: str) -> None:
    print(f"[test] {text}", file=sys.stderr, flush=True)


def words_of(command: str) -> list[str]:
    """Return the words of a command of areas.yaml, whose `python` is this one."""
    first, *more = command.split()
    return [sys.executable if first == "python" else first, *more]


def run_pytest(words: Sequence[str]) -> int:
    """Run pytest; return its status. Its temporary files are in a folder of their own, since another
    run may remove those of the default. Those of failed tests stay."""
    folder = tempfile.mkdtemp(prefix="pytest-")  # short, since a unix socket's path is
    own = (f"--basetemp={folder}", "-o", "tmp_path_retention_policy=failed")
    argv = [sys.executable, "-m", "pytest", *own, *words]
    status = 0
    try:
        status = subprocess.run(argv, cwd=TREE, check=False).returncode
    finally:
        if status == 1:
            say(f"temporary files of failed tests: {folder}")
        else:
            shutil.rmtree(folder, ignore_errors=True)
    return status


def made(command: str) -> tuple[int, str]:
    """Run a command that makes something; return its status and what it printed on stdout."""
    done = subprocess.run(
        words_of(command), cwd=TREE, stdout=subprocess.PIPE, text=True, check=False
    )
    return done.returncode, done.stdout.strip()


def set_up(packages: Iterable[str], needs: Iterable[str]) -> tuple[list[str], list[str]]:
    """Install packages and make what tests need, by two commands at a time; return pytest's
    arguments for it, and what could not be made, whose tests are skipped."""
    arguments: list[str] = []
    lacking: list[str] = []
    if packages and made(f"scripts/dev/need {' '.join(packages)}")[0]:
        lacking += packages
    if made("scripts/dev/setup-engine")[0]:
        lacking.append("a container engine")
    with ThreadPoolExecutor(2) as pool:
        paths = pool.map(made, [need.rpartition("=")[2] for need in needs])
        for need, (status, path) in zip(needs, paths, strict=True):
            name = need.rpartition("=")[0]
            if status:
                lacking.append(need)
            elif name:
                arguments.append(f"--with={name}={path}")
    return arguments, lacking


def keys_of(inputs: Inputs) -> dict[str, str]:
    """Return the name of the contents of all that each test file and each step depends on."""
    bases = base_images()
    keys = {}
    for file in inputs.test_files():
        on = inputs.of(file)
        keys[file] = inputs.key(on) + (bases if inputs.runs_images(on) else "")
    for step in STEPS:
        on = inputs.of(step.module) if step.module else inputs.below(*step.inputs)
        keys[step.name] = inputs.key(on)
    return keys


def base_images() -> str:
    """Return a name for the images that ours are made from, as they are on this machine."""
    ids = docker("image ls --no-trunc --quiet --filter reference=entrypoint-base").split()
    return hashlib.sha256("\n".join(sorted(ids)).encode()).hexdigest()[:8]


def docker(words: str) -> str:
    """Return what a command of docker prints; "" without docker."""
    argv = ["docker", *words.split()]
    try:
        return subprocess.run(argv, capture_output=True, text=True, check=False).stdout.strip()
    except FileNotFoundError:
        return ""


def proven(keys: Mapping[str, str], areas: Iterable[Area]) -> set[str]:
    """Return the names of these areas' tests, and of the steps, that passed when all that they
    depend on was as it is now."""
    homes = {area.name for area in areas} | {step.name for step in STEPS}
    last = {each["test"]: each for each in read(FOLDER)}
    return {
        name
        for name, result in last.items()
        if result["outcome"] == "passed"
        and result["key"] == keys.get(name.partition("::")[0])
        and home(name) in homes
    }


def commit() -> str:
    """Return the commit that is checked out, with a + where something differs from it."""
    name, differs = (
        subprocess.run(words.split(), cwd=TREE, capture_output=True, text=True, check=False).stdout
        for words in ("git rev-parse --short=10 HEAD", "git status --porcelain")
    )
    return (name.strip() or "none") + ("+" if differs else "")


def take(step: Step, tier: str) -> int:
    """Run a step; return its status, and leave its result."""
    begun = time.monotonic()
    log = FOLDER / f"{step.name}.log"
    with log.open("w") as file:
        argv = words_of(step.command)
        env = dict(os.environ)
        if tier == "test":  # depends on no network
            env["WITHOUT"] = f"{env.get('WITHOUT', '')} audit"
        done = subprocess.run(
            argv, cwd=TREE, env=env, stdout=file, stderr=subprocess.STDOUT, check=False
        )
    seconds = round(time.monotonic() - begun, 1)
    outcome = "failed" if done.returncode else "passed"
    append(FOLDER, {"test": step.name, "outcome": outcome, "seconds": seconds, "noted": {}, "says": [step.what]})  # fmt: skip
    if done.returncode or step.name == "lint":
        print(log.read_text(), file=sys.stderr, end="")
    return done.returncode


def choice(areas: Sequence[Area], tier: str) -> list[str]:
    """Return pytest's arguments that choose the tests of these areas."""
    starts = [start for area in areas for start in area.tests]
    others = [
        start
        for area in AREAS
        for start in area.tests
        if start not in starts and start.startswith(tuple(f"{each}/" for each in starts))
    ]
    return [
        "-m", MARKS[tier], f"--proof={FOLDER}",
        *(f"--ignore=tests/{start}" for start in others), *(f"tests/{start}" for start in starts),
    ]  # fmt: skip


def with_tests_left(areas: Sequence[Area], tier: str) -> list[Area]:
    """Return those of these areas of which a test is left to run."""
    argv = [sys.executable, "-m", "pytest", "--collect-only", "-q", *choice(areas, tier)]
    done = subprocess.run(argv, cwd=TREE, capture_output=True, text=True, check=False)
    if done.returncode not in (0, 5):  # 5: none
        return list(areas)  # pytest itself says what is wrong
    names = {home(line) for line in done.stdout.splitlines() if line.startswith("tests/")}
    return [area for area in areas if area.name in names]


def pytest(session: str, areas: Sequence[Area], tier: str, arguments: Sequence[str]) -> int:
    """Run the tests of a session; return pytest's status, where none was left to run 0."""
    here = [area for area in areas if area.session == session]
    if not here:
        return 0
    status = run_pytest([
        "-q", "--no-header", "--durations=10", f"-n{SESSIONS[session]}", "--dist=worksteal",
        *choice(here, tier), *arguments,
    ])  # fmt: skip
    return 0 if status == 5 else status  # 5: none was left


def room() -> float:
    """Return how many GB are free where the container engine has its images."""
    path = Path(docker("info --format {{.DockerRootDir}}") or "/var/lib/docker")
    while not path.exists():
        path = path.parent
    return shutil.disk_usage(path).free / 1e9


def prove(tier: str, areas: Sequence[Area], changed: bool, rounds: int) -> int:
    """Run a tier's tests of these areas; return 0 if nothing failed."""
    begun = time.monotonic()
    keys = keys_of(Inputs())
    known = proven(keys, areas) if changed else set()
    run = f"{time.time():.0f}"
    here = commit()
    begin(FOLDER, run, here, keys, known)
    whole = all(area in areas for area in AREAS if tier_has(tier, area.tier))
    steps = [step for step in STEPS if whole and tier in step.tiers and step.name not in known]
    if changed:
        areas = with_tests_left(areas, tier)
    in_containers = tier != "test" and any(area.session == "containers" for area in areas)
    if in_containers and (free := room()) < ROOM:
        say(
            f"too little room for images and containers | {free:.1f} GB are free on docker's disk,"
            f" {ROOM} are needed | make room, such as by `docker system prune`, or name other areas"
        )
        return 1
    packages = [package for area in areas for package in area.packages]
    needs = list(dict.fromkeys(need for area in areas for need in area.needs))
    if tier == "test":
        packages, needs = [], list(EVERY_CHANGE)
    status = 0
    with ThreadPoolExecutor(1) as background:
        # They take the core that a set-up or a waiting test leaves.
        taken = [background.submit(take, step, tier) for step in steps if not step.alone]
        arguments, lacking = set_up(packages, needs)
        for _ in range(rounds):
            for session in SESSIONS:
                status = pytest(session, areas, tier, arguments) or status
        status = max([status, *(step.result() for step in taken)])
    for step in steps:
        if step.alone:
            status = max(status, take(step, tier))
    print(of_run(read(FOLDER), run, here, known, time.monotonic() - begun))
    if (now := commit()) != here:
        say(f"the checkout changed under the tests | from {here} to {now} | run them again")
        status = 1
    if lacking:
        say(f"could not be had here, and its tests were skipped: {', '.join(lacking)}")
    # `make test` has to pass on a machine without an engine; the other tiers claim more.
    return 1 if status or (lacking and tier != "test") else 0


def tier_has(tier: str, first: str) -> bool:
    """Whether a tier has what an earlier or the same one has first."""
    return TIERS.index(first) <= TIERS.index(tier)


def main(words: list[str]) -> int:
    known = {area.name: area for area in AREAS}
    if words and words[0] in ("-h", "--help"):
        print(__doc__, end="\nAreas:\n\n")
        for area in AREAS:
            print(f"    {area.name:<12}{area.what}")
        return 0
    if words and words[0] in PROGRAMS:
        argv = [sys.executable, "-m", *PROGRAMS[words[0]], *words[1:]]
        return subprocess.run(argv, cwd=TREE, check=False).returncode
    tier = words[0] if words and words[0] in (*TIERS[1:], "table") else "test"
    if tier == "test" and words and not words[0].startswith(("--changed", "--rounds")):
        return run_pytest(words)
    parser = argparse.ArgumentParser(prog=f"scripts/test {tier}")
    parser.add_argument("areas", nargs="*", metavar="AREA")
    parser.add_argument("--changed", action="store_true")
    parser.add_argument("--rounds", type=int, default=1, metavar="N")
    asked = parser.parse_args(words if tier == "test" else words[1:])
    if unknown := {*asked.areas} - {*known}:
        say(f"no such area | {', '.join(sorted(unknown))} | known: {', '.join(known)}")
        return 64
    if tier == "table":
        print(of_lines(read(FOLDER), asked.areas or known))
        return 0
    areas = [
        area
        for area in AREAS
        if (area.name in asked.areas if asked.areas else tier_has(tier, area.tier))
    ]
    return prove(tier, areas, asked.changed, asked.rounds)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
