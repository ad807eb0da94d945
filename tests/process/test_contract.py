"""What users rely on is there as in the last release: nothing is lost but what was removed by
name, and a version says so."""

from __future__ import annotations

import functools
import re
import subprocess

import pytest
import yaml

from entrypoint.spec.former import FORMER
from tests.contract import LIST, contract, least_version

# Settings whose value was an empty list, which has no keys.
EMPTY = {
    (path, "value")
    for path, former in FORMER.items()
    if former.now == "launcher_args" and former.form == "-"
}
REMOVED = {
    "fields": {"kubernetes.patch", "metrics.file", "netcheck.limit", "netcheck.port", "torch.version"},
    "variables": {
        "ENTRYPOINT_KUBERNETES_PATCH", "ENTRYPOINT_METRICS_FILE", "ENTRYPOINT_NETCHECK_LIMIT", "ENTRYPOINT_NETCHECK_PORT",
        "ENTRYPOINT_TIMEOUTS_LEASE", "ENTRYPOINT_TORCH_VERSION", "TORCH_VERSION",
    },
    "flags": {"deploy --patch", "local --late-dns", "report --otel"},
    "messages": {
        "EP014 71", "EP023 78", "EP040 78", "EP041 69", "EP114 warning", "EP443 warning", "EP617 warning", "EP810 65",
        "EP811 65", "EP611 129 130 131 143",  # and 75, of an attempt
        "EP441 1-255", "EP442 126",  # and a warning, of an end hook
    },
    "json": {
        f"plan of {plan}.settings.{field}.{key}"
        for plan in ("mpirun", "torchrun", "one program")
        for field in ("netcheck.limit", "netcheck.port", "torch.version", *FORMER)  # a former one sets the present
        for key in ("origin", "value")
        if (field, key) not in EMPTY
    },
    "templates": {
        f"{template}: {name}"
        for template, names in {
            "kubernetes/job.yaml.j2": "restarts",  # backoffLimitPerIndex is in the Job's limits
            "ssh/sshd_config.j2": "port host",  # the port goes on in `more`
            "mpirun/rank.sh.j2": "host number supervisor",  # ranks/rank.sh.j2 stands for all ranks
            "torchrun/rank.sh.j2": "host supervisor",
            "mpirun/run_mpi.sh.j2": "agent given hostfile mpi_major np run_dir tags",
            "netcheck/netcheck.html.j2": "backend findings job left_out maps no_sweep nodes pairs rejected sweep",
            "accelerate/accelerate.sh.j2": "max_restarts origin rdzv_timeout",
            "torchrun/common.sh.j2": "node_addr reserved torch_version",
            "torchrun/torchrun.sh.j2": "least rdzv_timeout",
        }.items()
        for name in names.split()
    },
}  # fmt: skip
BEFORE: dict[str, list[str]] = yaml.safe_load(LIST.read_text())


@functools.cache
def now() -> dict[str, list[str]]:
    return contract()


@pytest.mark.promise(
    "users lose no command, field, variable, message, status, JSON key or adapter unless by name"
)
@pytest.mark.parametrize("part", BEFORE)
def test_nothing_is_lost(part: str) -> None:
    assert set(BEFORE[part]) - set(now()[part]) == REMOVED.get(part, set())


@pytest.mark.control(
    "users lose no command, field, variable, message, status, JSON key or adapter unless by name"
)
@pytest.mark.parametrize("part", BEFORE)
def test_a_loss_is_noticed(part: str) -> None:
    lost = sorted(set(now()[part]) & set(BEFORE[part]))[0]
    assert lost in set(BEFORE[part]) - (set(now()[part]) - {lost})
    assert len(BEFORE[part]) > 5, "the list itself holds something"


@pytest.mark.parametrize(
    ("last", "lost", "more", "least"),
    [
        ("0.1.0", False, False, "0.1.1"),
        ("0.1.1", False, True, "0.2.0"),
        ("0.1.1", True, False, "0.2.0"),
        ("1.4.2", False, False, "1.4.3"),
        ("1.4.2", False, True, "1.5.0"),
        ("1.4.2", True, True, "2.0.0"),
        ("1.9.9", True, False, "2.0.0"),
    ],
)
def test_what_is_lost_or_new_decides_the_version(
    last: str, lost: bool, more: bool, least: str
) -> None:
    assert least_version(last, lost, more) == least


@pytest.mark.promise("a version says whether something that users rely on was removed or added")
def test_the_version_of_this_commit_is_large_enough() -> None:
    """On a commit that has a version's tag, by the lists of the tag before it."""
    here, before = git("tag", "--points-at", "HEAD", "v*"), git("describe", "--tags", "HEAD^")
    assert not too_small(here, re.sub(r"-\d+-g\w+$", "", before))


def too_small(here: str, before: str) -> str:
    """Return what is wrong with a tag after this one; "" without two of them."""
    if not (here and before):
        return ""
    last = yaml.safe_load(git("show", f"{before}:tests/contract.yaml"))
    now = yaml.safe_load(git("show", f"{here}:tests/contract.yaml"))
    lost = any(set(names) - set(now.get(part, ())) for part, names in last.items())
    more = any(set(names) - set(last.get(part, ())) for part, names in now.items())
    least = least_version(before.removeprefix("v"), lost, more)
    return "" if numbers(here) >= numbers(least) else f"{here} has to be at least {least}"


def numbers(version: str) -> list[int]:
    return [int(part) for part in version.removeprefix("v").split(".")]


def git(*words: str) -> str:
    """What git says of this repository; "" if that is an error."""
    done = subprocess.run(
        ["git", *words], cwd=LIST.parent, capture_output=True, text=True, check=False
    )
    return done.stdout.strip() if done.returncode == 0 else ""


@pytest.mark.control("a version says whether something that users rely on was removed or added")
def test_a_version_that_hides_a_loss_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    lists = {"v1.0.0": "flags: [run, run -e]", "v1.1.0": "flags: [run]", "v2.0.0": "flags: [run]"}
    monkeypatch.setitem(globals(), "git", lambda _, what: lists[what.partition(":")[0]])
    assert too_small("v1.1.0", "v1.0.0") == "v1.1.0 has to be at least 2.0.0"
    assert not too_small("v2.0.0", "v1.0.0")
    assert not too_small("v2.0.0", "v1.1.0")
