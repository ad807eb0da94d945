"""Pods of Jobs and JobSets: what a spec says is enough, and `entrypoint deploy kubernetes` writes
such specs."""

from __future__ import annotations

import pytest

from entrypoint.base import registry
from entrypoint.base.errors import ConfigError
from entrypoint.base.model import Facts, Topology
from entrypoint.plan import locate
from entrypoint.spec import load
from tests import table
from tests.unit.cases import as_facts, chosen

PODS = table("tests/tables/pods.yaml")


def pod(hostname: str, index: int, **env: str) -> Facts:
    """What a Pod is, with what Kubernetes gives every Pod of an Indexed Job."""
    given = {"KUBERNETES_SERVICE_HOST": "10.96.0.1", "JOB_COMPLETION_INDEX": str(index)}
    return as_facts({"hostname": hostname, "env": given | env})


def located(facts: Facts, text: str = "") -> Topology:
    return locate(load(text, "job.yaml", facts.env, {}), facts)


def test_the_index_is_kubernetes_own_where_the_hosts_are_addresses() -> None:
    topology = located(pod("train-1", 1), "hosts: [a=10.0.0.1, b=10.0.0.2]")
    assert (topology.me, topology.job) == (1, "train")
    assert str(topology.origins["node_rank"]) == "platform JOB_COMPLETION_INDEX"


def test_a_pod_of_a_jobset_is_found_by_its_whole_name() -> None:
    hosts = "hosts: [js-w-0-0.js, js-w-0-1.js, js-w-1-0.js, js-w-1-1.js, js-w-1-10.js]"
    assert located(pod("js-w-1-1", 1), hosts).me == 3
    assert located(pod("js-w-1-10", 10), hosts).me == 4


@pytest.mark.control("the Pods of every kind know the nodes by the platform's own adapter")
@pytest.mark.parametrize(
    ("facts", "text", "message"),
    [
        (pod("train-0", 0), "", "EP201 Kubernetes does not say how many Pods this Job has"),
        (pod("js-w-0-0", 0), "", "EP201 a JobSet does not say which Pods it has, and neither does a Job"),
        (pod("train-2", 2), "hosts: [a, b]", "EP203 node_rank is beyond the last node"),
        (pod("machine", 1), "hosts: [a, b]", "EP202 the host name does not say whether this Pod is a Job's, or a JobSet's"),
        (pod("js-w-1-0", 0), "hosts: [a, b]", "EP202 node index unknown: 2 nodes are given and no index"),
    ],
)  # fmt: skip
def test_what_is_missing_is_said(facts: Facts, text: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        located(facts, text)
    assert caught.value.summary.startswith(message)
    assert "ENTRYPOINT_" in caught.value.hint or "name all hosts" in caught.value.hint


@pytest.mark.parametrize("hostname", ["train-0", "js-w-0-0", "machine"])
def test_what_the_messages_ask_for_cures(hostname: str) -> None:
    facts = pod(hostname, 0, ENTRYPOINT_HOSTS="a,b", ENTRYPOINT_NODE_RANK="1")
    assert located(facts).me == 1
    assert located(pod(hostname, 0, ENTRYPOINT_HOSTS=hostname)).me == 0


@pytest.mark.parametrize(("hostname", "index", "platform"), PODS["jobs"])
def test_job_or_jobset(hostname: str, index: int, platform: str) -> None:
    """Never both: that would be an error."""
    assert chosen("platforms", pod(hostname, index), "local") == platform
    others = {
        name
        for line in registry.matching("platforms", pod(hostname, index), "local")
        for name in line
    }
    assert others == {platform}
