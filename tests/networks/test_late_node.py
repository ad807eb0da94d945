"""Four containers, one of whose packets take 200 ms: `entrypoint netcheck` names it and its cause.

The delay is that of `tc netem` where the kernel has it, else tests/netdelay.py makes it.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable

import pytest

from tests.containers import IMAGE
from tests.networks.pods import Pods
from tests.rows import ended

pytestmark = [pytest.mark.see, pytest.mark.slow]


def test_the_late_node_of_four_is_named_with_its_cause(lay_out: Callable[..., Pods]) -> None:
    pods = lay_out(*["eth0=main"] * 4)
    pods.delay("worker-2", 0.2)
    containers = pods.start(IMAGE, "entrypoint", "netcheck", "--json")
    assert ended(containers, 150) == dict.fromkeys(pods.nodes, 0)
    words = ["docker", "logs", containers["worker-0"]]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    seen = json.loads(done.stdout)
    nodes = [each for each in seen["findings"] if len(each["nodes"]) == 1]
    assert [each["nodes"] for each in nodes] == [["worker-2"]], done.stdout
    assert nodes[0]["causes"][0] == "latency"
    assert re.match(r"worker-2 is slow: round trips take 2\d\d ms \(usual ", nodes[0]["text"])
    assert (seen["all_reduce"]["backend"], seen["all_reduce"]["ranks"]) == ("gloo", 4), seen["all_reduce"]
    assert seen["all_reduce"]["sizes"][0]["seconds"] > 0.2  # the late node holds up all
    assert not [each for each in seen["findings"] if "latency" in each["causes"] and each["nodes"] != ["worker-2"]]
