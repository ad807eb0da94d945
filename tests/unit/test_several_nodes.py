"""Several nodes without hosts: what says so is an error, since each node would train alone."""

from __future__ import annotations

import itertools
import os
import random
import re
from collections.abc import Iterator, Mapping

import pytest

from entrypoint.base import registry
from entrypoint.base.errors import ConfigError, EntrypointError
from entrypoint.base.model import Facts, Topology
from entrypoint.base.values import replace
from entrypoint.cli.recognition import recognize
from entrypoint.plan import env_of_ranks, environment, locate, settle
from entrypoint.plan.numbering import several_nodes
from entrypoint.spec import Override, load
from tests import TREE, table

PAGE = TREE / "docs/reference/platforms.md"
# By their variables these cases are of all "platforms".
CASES = table("tests/tables/numbering.yaml")
SAYINGS, ALONE = CASES["several"], CASES["alone"].split()


def facts(env: Mapping[str, str], hostname: str = "dlc1abc-worker-0") -> Facts:
    return Facts(env=env, hostname=hostname, cwd="/job", uid=1000, user="u", home="/home/u")


def found(env: Mapping[str, str], text: str = "", platform: str = "") -> Topology:
    flags = {"platform": Override(platform, "--platform")} if platform else {}
    return locate(load(text, "job.yaml", {}, flags), facts(env))


def starts_alone(env: Mapping[str, str]) -> bool:
    """Whether this container would train on its own, or fail otherwise than it should."""
    try:
        return len(found(env).nodes) == 1
    except EntrypointError as error:
        return error.status != 78


def combinations() -> Iterator[dict[str, str]]:
    names = list(SAYINGS)
    for number in (1, 2):
        yield from (
            {name: SAYINGS[name] for name in some} for some in itertools.combinations(names, number)
        )
    chance = random.Random(51)
    for _ in range(5000):
        yield {
            name: SAYINGS[name] for name in chance.sample(names, chance.randint(3, len(names)))
        } | dict.fromkeys(chance.sample(ALONE, 2), "1")


@pytest.mark.promise("several nodes without hosts are an error, whichever variables say so")
def test_no_combination_starts_alone() -> None:
    """Each variable alone, each pair, and random larger groups"""
    assert [env for env in combinations() if starts_alone(env)] == []


def test_each_variable_is_named_where_it_is_the_only_one() -> None:
    assert {name: several_nodes(facts({name: value})) for name, value in SAYINGS.items()} == {
        name: (name,) for name in SAYINGS
    }


def test_every_variable_of_the_page_is_here() -> None:
    """Variables in the table of platforms are in one of the two lists above"""
    table = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line[:3] == "| `"]
    text = re.sub(r"`(VC|MLP)_<(TASK|ROLE)>_(\w+)`", r"`\1_WORKER_\3`", "\n".join(table))
    names = set(re.findall(r"`([A-Z][A-Z0-9]*_[A-Z0-9_]+)`", text)) - {"MLP_WORKER_GPU"}
    assert names - SAYINGS.keys() - {*ALONE} == set()


@pytest.mark.control("several nodes without hosts are an error, whichever variables say so")
@pytest.mark.parametrize("env", CASES["one node"])
def test_one_node_that_says_so(env: dict[str, str]) -> None:
    """One node runs, whatever counts it"""
    assert several_nodes(facts(env)) == ()
    assert starts_alone(env)


UNKNOWN = [(name, env) for name, envs in CASES["unknown"].items() for env in envs]


@pytest.mark.promise("a job of several nodes on an unknown platform is an error on each node")
@pytest.mark.parametrize(("name", "env"), UNKNOWN)
def test_an_unknown_platform_is_understood(name: str, env: dict[str, str]) -> None:
    """By the form of its variables, whatever its name is; `nodes: 1`, hosts or `local` override it"""
    with pytest.raises(ConfigError, match=r"EP201 the environment describes several nodes"):
        found(env)
    assert len(found(env, "nodes: 1").nodes) == 1
    assert len(found(env, "hosts: [dlc1abc-worker-0]").nodes) == 1
    assert len(found(env, platform="local").nodes) == 1


@pytest.mark.control("a job of several nodes on an unknown platform is an error on each node")
@pytest.mark.parametrize("env", CASES["single machine"])
def test_a_single_machine_starts_alone(env: dict[str, str]) -> None:
    """The same words for workers of a data loader, services, limits and arrays of jobs"""
    assert several_nodes(facts(env)) == ()
    assert len(found(env).nodes) == 1


WORDS = ["FOO", "acme_cloud", "X9", "Zeta_JOB", ""]
SEPARATORS = ["_", "-", "."]


def drawn(kind: str) -> list[dict[str, str]]:
    """Two-node jobs of a platform that nobody knows: this node counts them, or has a number."""
    nouns = {
        "node": "node host machine replica pod container",
        "part": "instance worker task trainer member peer",
    }
    jobs = []
    for prefix, separator, noun in itertools.product(WORDS, SEPARATORS, nouns[kind].split()):
        units = (noun, noun.upper(), f"{noun}s")
        count, place = (
            (f"num{separator}{units[2]}", f"{noun}{separator}count", f"total_{units[2]}"),
            (f"{noun}_rank", f"{noun}{separator}index", f"{noun}_idx"),
        )
        start = f"{prefix}{separator}" if prefix else ""
        jobs += [
            {f"{start}{many}": "2", f"{start}{one}": "0"}
            for many, one in itertools.product(count, place)
        ]
        jobs += [{f"{start}{one}": "1"} for one in place]
        if kind == "node":
            jobs += [{f"{start}{many}".upper(): "2"} for many in count]
    return jobs


@pytest.mark.parametrize("kind", ["node", "part"])
def test_names_of_any_platform(kind: str) -> None:
    """Prefixes, units and separators in each combination, for one node too"""
    jobs = drawn(kind)
    assert [env for env in jobs if starts_alone(env)] == []
    alone = [{name: "1" if value == "2" else "0" for name, value in env.items()} for env in jobs]
    assert [env for env in alone if not starts_alone(env)] == []


DLC = {"MASTER_ADDR": "dlc1abc-master-0", "MASTER_PORT": "23456", "WORLD_SIZE": "2", "RANK": "1"}


def test_what_is_said() -> None:
    """The error shows the variables, and the two ways out of it; with torch's own the nodes call in"""
    assert found(DLC).call_in == "dlc1abc-master-0"
    with pytest.raises(ConfigError) as caught:
        found(DLC, "roll_call: none")
    assert str(caught.value) == (
        "EP201 the environment describes several nodes, and nothing names the hosts | WORLD_SIZE is"
        " '2', RANK is '1', MASTER_ADDR is 'dlc1abc-master-0' | set ENTRYPOINT_HOSTS to all nodes,"
        " the same list on each; or, if this node is to train alone, nodes: 1 (ENTRYPOINT_NODES=1)"
    )
    assert recognize(facts(DLC), None)["site"]["unknown"]["hosts"][0].startswith("the environment")
    assert len(found(DLC, platform="local").nodes) == 1
    assert len(found(DLC, "hosts: [dlc1abc-master-0, dlc1abc-worker-0]").nodes) == 2
    assert len(found(DLC, "hosts: [dlc1abc-worker-0]").nodes) == 1


def test_one_node_is_said() -> None:
    """`nodes: 1` is this node alone, and contradicts several hosts"""
    assert found({"JOB_COMPLETION_INDEX": "1"}, "nodes: 1").me == 0
    assert (
        settle(load("nodes: 1\ncommand: [x]", "job.yaml", {}, {}), facts(DLC)).launch.min_nodes
        is None
    )
    for text, env in (
        ("hosts: [a, b]\n", {}),
        ("", {"SKYPILOT_NODE_RANK": "0", "SKYPILOT_NODE_IPS": "10.0.0.1\n10.0.0.2"}),
    ):
        with pytest.raises(
            ConfigError, match=r"EP120 nodes is 1, and the hosts are others .* 2 hosts"
        ):
            found(env, f"{text}nodes: 1")


# Next to these, a count decides whether there are several nodes.
DECIDES = [
    ("WORLD_SIZE", {"RANK": "0"}),
    ("WORLD_SIZE", {"MASTER_ADDR": "localhost"}),
    ("NNODES", {"NODE_RANK": "0", "NUM_NODES": "auto"}),
    ("PET_NNODES", {"PET_NODE_RANK": "0"}),
    ("PMI_SIZE", {"PMI_RANK": "0"}),
    ("CLOUD_NUM_NODES", {"CLOUD_NODE_INDEX": "0"}),
]


@pytest.mark.promise("a count of nodes that is no number is an error if it decides")
@pytest.mark.parametrize("value", ["two", "-1", "1e1", "0", "1.0", "+1", "٢", "1000000000", "1:"])
@pytest.mark.parametrize(("name", "others"), DECIDES)
def test_an_invalid_count_is_not_one_node(name: str, others: dict[str, str], value: str) -> None:
    """Node 0 would train alone while the others are refused"""
    env = {name: value, **others}
    with pytest.raises(ConfigError) as caught:
        found(env)
    first = next(iter(others))
    assert f"EP201 the number of nodes is not known: {COUNT} | {name} is " in str(caught.value)
    assert f"{first} is" not in str(caught.value)
    assert f" | fix {name}; or set ENTRYPOINT_HOSTS" in str(caught.value)
    assert len(found(env, "hosts: [dlc1abc-worker-0]").nodes) == 1
    assert len(found(env, platform="local").nodes) == 1


COUNT = "a count is not a whole number of 1 or more"


@pytest.mark.control("a count of nodes that is no number is an error if it decides")
@pytest.mark.parametrize(
    "env",
    [
        *({name: "1", **others} for name, others in DECIDES),
        {"WORLD_SIZE": "two"},
        {"WORLD_SIZE": " ", "RANK": "0"},
        {"WORLD_SIZE": "two", "RANK": "0", "NNODES": "1"},
        {"SHOP_NUM_NODES": "all", "RANK": "0", "MASTER_ADDR": "localhost"},
        {"PET_NNODES": "1:1", "PET_NODE_RANK": "0", "WORLD_SIZE": "auto", "RANK": "0"},
    ],
)
def test_a_count_that_decides_nothing(env: dict[str, str]) -> None:
    """An invalid count that stands alone, is another program's, or is next to a valid one"""
    assert len(found(env).nodes) == 1


# --------------------------------------------------------------------------------------------------
# Several starts on one node


@pytest.mark.promise("one of several starts on a node is an error, whichever launcher made them")
@pytest.mark.parametrize("hosts", ["", "hosts: [dlc1abc-worker-0]", "hosts: [a, dlc1abc-worker-0]"])
@pytest.mark.parametrize("env", CASES["starts"].values(), ids=CASES["starts"])
def test_one_of_several_starts_is_refused(env: dict[str, str], hosts: str) -> None:
    """Each would train alone, and end with 0; a list of nodes says nothing of it"""
    with pytest.raises(ConfigError, match=r"EP208 .*more than once"):
        found(env, hosts)
    assert len(found(env, "hosts: [dlc1abc-worker-0]", platform="local").nodes) == 1


@pytest.mark.control("one of several starts on a node is an error, whichever launcher made them")
@pytest.mark.parametrize("env", CASES["single start"].values(), ids=CASES["single start"])
def test_the_only_start_of_a_node_runs(env: dict[str, str]) -> None:
    """Numbers of processes that are not this start's own stop nobody"""
    assert len(found(env).nodes) == 1


def test_what_is_said_of_several_starts() -> None:
    """The error shows the variables, and what to do"""
    step = CASES["starts"]["srun on one node"]
    with pytest.raises(ConfigError) as caught:
        found(step)
    assert (caught.value.status, str(caught.value)) == (
        78,
        "EP208 a launcher has started this program more than once on this node, and one entrypoint"
        " starts all ranks of its node | SLURM_STEP_NUM_TASKS is '8', SLURM_STEP_NUM_NODES is '1' |"
        " start it once on each node (srun --ntasks-per-node=1, mpirun --map-by ppr:1:node,"
        " process_count_per_instance: 1 in Azure ML); or set ENTRYPOINT_PLATFORM=local, if each start"
        " is a job of its own",
    )
    assert recognize(facts(step), None)["status"] == 78


# --------------------------------------------------------------------------------------------------
# What ranks inherit


FOREIGN, KEPT = dict.fromkeys(CASES["numbers"].split(), "4177"), CASES["kept"]
# The platform is named, since FOREIGN also says that this is one of several starts on its node.
TWO = "platform: local\nhosts: [a, dlc1abc-worker-0]\nslots: 2\n"
ONE = "platform: local\nhosts: [dlc1abc-worker-0]\nslots: {}\n"


def environments(launcher: str, text: str, container: Mapping[str, str]) -> list[dict[str, str]]:
    """What the programs of this node get, and the ranks of MPI."""
    given = replace(facts(container), mpi="4.1.4")
    spec = load(f"launcher: {launcher}\ncommand: [x.py]\n{text}", "job.yaml", {}, {})
    plan = settle(spec, given)
    found = [environment(given.env, (*plan.env, *each.env)) for each in plan.launch.programs]
    if entries := [os.fsdecode(entry).partition("=") for entry in env_of_ranks(given, plan)]:
        found.append({name: value for name, _, value in entries})
    return found


@pytest.mark.promise("ranks never inherit a rank's number from the container")
@pytest.mark.parametrize("text", [TWO, ONE.format(1), ONE.format(2)], ids=["two", "one", "slots"])
@pytest.mark.parametrize("launcher", registry.names("launchers"))
def test_ranks_inherit_no_number(launcher: str, text: str) -> None:
    """No launcher passes on a number of the container; other variables stay"""
    for env in environments(launcher, text, FOREIGN | KEPT):
        assert [name for name in FOREIGN if env.get(name) == FOREIGN[name]] == []
        assert {name: env.get(name) for name in KEPT} == KEPT


@pytest.mark.control("ranks never inherit a rank's number from the container")
@pytest.mark.parametrize("launcher", ["plain", "mpirun", "torchrun"])
def test_what_the_user_says_stays(launcher: str) -> None:
    """A number in the spec's `env` stays, whatever the launcher sets"""
    text = ONE.format(1) + "env: {OMPI_COMM_WORLD_RANK: '3', PMI_RANK: '4'}\n"
    for env in environments(launcher, text, FOREIGN):
        assert (env["OMPI_COMM_WORLD_RANK"], env["PMI_RANK"]) == ("3", "4")


STEP = {"SLURM_STEP_ID": "0", "PMIX_MCA_psec": "munge", "PMIX_SECURITY_MODE": "munge,native"}


@pytest.mark.promise("PMIx settings of a step of Slurm reach no program")
@pytest.mark.parametrize("launcher", ["plain", "mpirun", "torchrun"])
def test_a_step_s_pmix_settings_are_dropped(launcher: str) -> None:
    """They are for srun's own tasks; those of the spec's `env` are for the job"""
    for text, env in ((TWO, STEP), (ONE.format(2), STEP)):
        for found in environments(launcher, text, env):
            assert [name for name in found if name.startswith("PMIX_")] == []
        given = f"{text}env: {{PMIX_MCA_gds: hash}}\n"
        assert {found["PMIX_MCA_gds"] for found in environments(launcher, given, env)} == {"hash"}


@pytest.mark.control("PMIx settings of a step of Slurm reach no program")
def test_pmix_settings_of_an_image_stay() -> None:
    """A batch script and a container have those that the image or its user has set"""
    for step in ({}, {"SLURM_STEP_ID": "4294967291"}):
        for found in environments("mpirun", TWO, {**STEP, "SLURM_STEP_ID": "", **step}):
            assert found["PMIX_MCA_psec"] == "munge"


def test_the_only_program_gets_numbers_of_this_job() -> None:
    """Under plain, a variable that the container has gets this job's value; others stay unset"""
    container = {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "other", "MASTER_PORT": "23456"}
    text = ONE.format(1) + "torch: {port: 23456}\n"
    (env,) = environments("plain", text, container)
    values = {name: env.get(name) for name in (*container, "LOCAL_RANK", "NNODES")}
    assert values == {
        "RANK": "0",
        "WORLD_SIZE": "1",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "23456",
        "LOCAL_RANK": None,
        "NNODES": None,
    }
