"""Four containers, each with another fault or none: `check --all` and `netcheck` name exactly these
nodes and causes.

worker-1 has 1 MB of shared memory, the packets of worker-2 take 200 ms, the clock of worker-3 is 10
minutes off. The delay is that of `tc netem` where the kernel has it, else tests/netdelay.py makes
it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from tests import netdelay
from tests.containers import IMAGE, logs
from tests.networks.pods import Pods
from tests.rows import ended, said

pytestmark = pytest.mark.see

NODES = ["eth0=main"] * 4
# The entrypoint with another clock, since all containers of a machine have one. Not by faketime: a
# Python under it cannot start programs reliably.
CLOCK = (
    "import time; now = time.time; time.time = lambda: now() + 600; from entrypoint.cli import"
    " script; script()"
)
CHECK = ("check", "--all", "--json", "--launcher", "torchrun", "--", "true")
NETCHECK = ("netcheck", "--json")
# What this machine may be short of for all of them.
OWN = {"cpus", "memory", "disk", "pids"}
Row = tuple[str, str, str]  # node, cause, seen


def look(pods: Pods, command: Sequence[str], odd: bool) -> Any:
    """What worker-0 prints, once every node has ended well."""
    python = ("-s", "--", "/opt/entrypoint/bin/python3", "-I", "-c", CLOCK, *command)
    own = {
        "worker-1": (("--shm-size", "1m"), ("entrypoint", *command)),
        "worker-3": (("--entrypoint", "/usr/bin/tini"), python),
    }
    # Long enough for the processors to have served all, where this machine has other work.
    given = {"ENTRYPOINT_SLOTS": "2", "ENTRYPOINT_NETCHECK_SECONDS": "3"}
    containers = pods.start(IMAGE, "entrypoint", *command, own=own if odd else {}, **given)
    assert ended(containers, 150) == dict.fromkeys(pods.nodes, 0), said(containers)
    return json.loads(logs(containers["worker-0"], stderr=False))


def of_check(seen: Any) -> list[Row]:
    lines = [each for each in seen["findings"] if each["level"] != "ok" and each["id"] not in OWN]
    return sorted((" ".join(each["nodes"]), each["id"], each["seen"]) for each in lines)


def of_netcheck(seen: Any) -> list[Row]:
    """Its first cause; a slow node is often slow in several ways."""
    return sorted(
        (" ".join(each["nodes"]), each["causes"][0], each["text"]) for each in seen["findings"]
    )


def table(given: str, check: list[Row], netcheck: list[Row]) -> str:
    rows = [("asked", "node", "cause", "seen")]
    for asked, found in (("check --all", check), ("netcheck", netcheck)):
        rows += [(asked, *row) for row in found] or [(asked, "nobody", "", "")]
    return "\n".join([given, *("  {:11}  {:8}  {:13}  {}".format(*row).rstrip() for row in rows)])


@pytest.mark.promise("`netcheck` names the node whose packets are late, and its cause")
@pytest.mark.promise(
    "`check --all` names exactly the nodes with something wrong, and starts nothing"
)
@pytest.mark.see("odd nodes", "4 containers, each with another fault or none: who is named")
def test_exactly_the_odd_nodes_are_named_with_their_causes(
    lay_out: Callable[..., Pods], record_property: Callable[[str, object], None]
) -> None:
    pods = lay_out(*NODES)
    how = (
        "tc netem"
        if netdelay.has_netem()
        else "a process between two tap devices: this kernel has no netem"
    )
    well = of_check(look(pods, CHECK, odd=False)), of_netcheck(look(pods, NETCHECK, odd=False))
    assert well == ([], [])

    pods.delay("worker-2", 0.2)
    checked, measured = look(pods, CHECK, odd=True), look(pods, NETCHECK, odd=True)
    check, netcheck = of_check(checked), of_netcheck(measured)
    given = (
        "worker-1: 1 MB of /dev/shm; worker-2: its packets 200 ms late; worker-3: its clock 10"
        " minutes off"
    )
    shown = [
        f"(late by {how})",
        table(given, check, netcheck),
        table("the same four, none with a fault", *well),
    ]
    record_property(
        "seen",
        f"check: {', '.join(row[0] for row in check)}; netcheck: {netcheck[0][0]}; control: nobody",
    )
    record_property("shown", "\n".join(shown))
    expected = [
        ("worker-1", "shared-memory", r"1 MiB free of 1 MiB in /dev/shm"),
        ("worker-2", "latency", r"2\d\d ms to worker-0 and back"),
        ("worker-3", "clock", r"(59[89]|60[012])s ahead of the others"),
    ]
    assert [row[:2] for row in check] == [row[:2] for row in expected]
    for (_, _, seen), (_, _, words) in zip(check, expected, strict=True):
        assert re.fullmatch(words, seen)
    assert checked["observed"]["worker-2"]["names"], "names are looked up where no address is given"
    assert [row[:2] for row in netcheck] == [("worker-2", "latency")]
    slow = r"worker-2 is slow: a small all-reduce takes [2-5]\d\d ms \(usual "
    assert re.match(slow, netcheck[0][2])
    assert measured["backend"] == "gloo"
    assert measured["together"]["latency_ms"] > 200  # the late node holds up all
