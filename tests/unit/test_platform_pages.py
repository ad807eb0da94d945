"""The pages of clouds: what each block gives a container, with what its platform says, is a job of
two nodes.

A block is read as its platform reads it: which variables it sets, and what it starts. What the
platform adds is a case of tests/platforms.
"""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from entrypoint import cli
from entrypoint.base import registry
from entrypoint.base.model import Facts, Plan
from entrypoint.base.values import replace
from entrypoint.cli.inputs import overrides
from entrypoint.cli.parser import parser
from entrypoint.plan import settle
from entrypoint.spec import load
from tests.unit.cases import ROOT, read_facts

HOW_TO = ROOT.parent / "docs/how-to"
SECRET = "5ecret" * 8
Given = tuple[dict[str, str], list[str]]  # variables, and the words that the container starts


def block(page: str, heading: str) -> str:
    """The first block of a section, whatever its language."""
    section = (
        (HOW_TO / page)
        .read_text(encoding="utf-8")
        .partition(f"\n## {heading}\n")[2]
        .partition("\n## ")[0]
    )
    found = re.search(r"(?ms)^```\w+\n(.*?)^```$", section)
    assert found, f"{page} has no block under {heading}"
    return found[1]


def sagemaker(text: str) -> Given:
    call = next(
        each
        for each in ast.walk(ast.parse(text))
        if isinstance(each, ast.Call) and len(each.keywords) > 3
    )
    given = {each.arg: ast.unparse(each.value) for each in call.keywords}
    assert given["instance_count"] == "2"
    made = given["environment"].replace("secrets.token_hex(32)", repr(SECRET))
    words = [
        *ast.literal_eval(given["container_entry_point"]),
        *ast.literal_eval(given["container_arguments"]),
    ]
    return ast.literal_eval(made), words


def azureml(text: str) -> Given:
    job = yaml.safe_load(text)
    assert (job["type"], job["resources"], job["distribution"]["process_count_per_instance"]) == (
        "command",
        {"instance_count": 2},
        1,
    )
    return job["environment_variables"], shlex.split(job["command"])


def vertex(text: str) -> Given:
    pools = yaml.safe_load(text)["workerPoolSpecs"]
    first, second = (pool["containerSpec"] for pool in pools)
    assert (first, sum(pool["replicaCount"] for pool in pools)) == (second, 2)
    return {each["name"]: each["value"] for each in first["env"]}, [
        "entrypoint",
        *(cli.of_image(first["args"]) or []),
    ]


def volcengine(text: str) -> Given:
    job = yaml.safe_load(text)
    assert [role["RoleReplicas"] for role in job["TaskRoleSpecs"]] == [2]
    command = job["Entrypoint"].removeprefix(f"cd {job['RemoteMountCodePath'].rstrip('/')} && ")
    return {each["Name"]: each["Value"] for each in job["Envs"]}, shlex.split(command)


def skypilot(text: str) -> Given:
    job = yaml.safe_load(text)
    assert job["num_nodes"] == 2
    words = shlex.split(job["run"].replace("\\\n", ""))
    image = words.index("REGISTRY/team/train:1.2")
    passed = {words[at + 1] for at in range(image) if words[at] == "-e"}
    facts = read_facts(ROOT / "platforms/skypilot/two-nodes")
    assert passed == {name for name in facts.env if name != "SKYPILOT_TASK_ID"} | set(
        job["secrets"]
    )
    return dict.fromkeys(job["secrets"], SECRET), words[image + 1 :]


def dstack(text: str) -> Given:
    job = yaml.safe_load(text)
    assert (job["type"], job["nodes"], len(job["commands"])) == ("task", 2, 1)
    return dict(each.split("=", 1) for each in job["env"]), shlex.split(job["commands"][0])


CLOUDS, LAUNCHERS = "managed-clouds.md", "skypilot-and-dstack.md"
# The page, its heading, how its block is read; the case of what the platform says, and this node's
# rank in it.
PAGES: dict[str, tuple[str, str, Callable[[str], Given], str, int]] = {
    "sagemaker": (CLOUDS, "SageMaker", sagemaker, "two-nodes", 1),
    "azureml": (CLOUDS, "Azure Machine Learning", azureml, "two-nodes", 1),
    "vertex": (CLOUDS, "Vertex AI", vertex, "primary", 0),
    "volcengine": (CLOUDS, "Volcengine", volcengine, "two-workers", 1),
    "skypilot": (LAUNCHERS, "SkyPilot", skypilot, "two-nodes", 1),
    "dstack": (LAUNCHERS, "dstack", dstack, "two-nodes", 1),
}


def planned(facts: Facts, words: list[str]) -> Plan:
    """What `entrypoint run` with these words would do in this container."""
    assert words[:2] == ["entrypoint", "run"]
    at = words.index("--")
    args: Any = parser(None, words[1:at]).parse_args(words[1:at])
    args.command = words[at + 1 :]
    spec = load(None, "", facts.env, overrides(args))
    return settle(spec, replace(facts, programs={"sshd": "/usr/sbin/sshd"}))


def test_every_platform_says_how_it_gives_all_nodes_one_secret() -> None:
    """In the message that none was given, and in a row of the page about secrets."""
    page = (HOW_TO / "secrets.md").read_text(encoding="utf-8")
    rows = "".join(line.split(" | ")[0] for line in page.splitlines() if line.startswith("| `"))
    modules = {name: registry.load("platforms", name) for name in registry.names("platforms")}
    assert [name for name in modules if not hasattr(modules[name], "SECRET")] == ["local"]
    assert [name for name in registry.names("platforms") if f"`{name}`" not in rows] == []


@pytest.mark.promise(
    "what a cloud's page shows for pasting is a job of two nodes there",
    control="the block without these variables, in the same test",
)
@pytest.mark.parametrize("name", PAGES)
def test_a_page_s_block_is_a_job_of_two_nodes(name: str) -> None:
    """What is pasted from a cloud's page is a job of two nodes there"""
    page, heading, read, case, rank = PAGES[name]
    env, words = read(block(page, heading))
    assert "ENTRYPOINT_SECRET" in env
    env["ENTRYPOINT_SECRET"] = SECRET
    container = read_facts(Path(ROOT / "platforms" / name / case))
    made = planned(replace(container, env={**container.env, **env}), words)
    assert (made.topology.platform, len(made.topology.nodes), made.topology.me) == (name, 2, rank)
    assert (made.mode, made.launcher) == ("coordinated", "torchrun")
    assert made.launch.programs[0].argv[-2:] == ("--epochs", "5")
    # Control: without what the platform says, the same block is a job of one node.
    assert len(planned(replace(container, env=env, files={}), words).topology.nodes) == 1


def test_vertex_listens_where_its_services_pass_it_on() -> None:
    env, words = vertex(block(CLOUDS, "Vertex AI"))
    container = read_facts(ROOT / "platforms/vertex/primary")
    made = planned(
        replace(container, env={**container.env, **env, "ENTRYPOINT_SECRET": SECRET}), words
    )
    assert made.topology.this.ssh_port == 2222
    assert "3333" in str(made.launch.programs[0])
