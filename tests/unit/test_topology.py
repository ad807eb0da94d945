"""Topology: who is in the job, which node this is, and what wins when two sources say so."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from entrypoint.base import registry
from entrypoint.base.errors import ConfigError, SpecError
from entrypoint.base.model import Device, Facts, Node, Site, Source, Topology
from entrypoint.base.values import replace
from entrypoint.plan import topology
from entrypoint.plan.members import assume_members
from entrypoint.platforms._clues import read
from entrypoint.spec import JobSpec, Override, load
from entrypoint.spec.jobspec import SshSpec
from tests import table
from tests.growth import grows_too_fast
from tests.unit.cases import collect, read_expected, read_facts

TABLE = table("tests/tables/topology.yaml")

LOCAL = Site("local")
CPU = Device("cpu", 0, "no accelerator")


def facts(hostname: str = "container", **more: Any) -> Facts:
    plain = {"env": {}, "cwd": "/job", "uid": 1000, "user": "ma-user", "home": "/home/ma-user"}
    return Facts(hostname=hostname, **{**plain, **more})


def build(
    text: str = "",
    site: Site = LOCAL,
    device: Device = CPU,
    hostname: str = "container",
    **flags: str,
) -> Topology:
    spec = load(
        text, "job.yaml", {}, {path: Override(value, f"--{path}") for path, value in flags.items()}
    )
    return topology.build(spec, facts(hostname), site, device)


def refusal(*args: Any, **kwargs: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        build(*args, **kwargs)
    assert caught.value.status == 78
    return str(caught.value)


def hosts(*names: str) -> str:
    return f"hosts: [{', '.join(names)}]"


# --------------------------------------------------------------------------------------------------
# Nodes


@pytest.mark.parametrize(
    ("env", "number"),
    [
        ({}, ""),
        ({"SLURM_STEP_ID": "0"}, ""),
        ({"SLURM_JOB_ID": "17", "SLURM_STEP_ID": "2"}, "17.2"),
        ({"SLURM_HET_JOB_ID": "17", "SLURM_JOB_ID": "18", "SLURM_STEP_ID": "2"}, "17.2"),
        ({"PBS_JOBID": "5.server"}, "5.server"),
        ({"LSB_JOBID": "x" * 500}, "x" * 100),
    ],
)
def test_the_scheduler_s_number_of_the_job(env: dict[str, str], number: str) -> None:
    made = topology.build(load("", "job.yaml", {}, {}), facts(env=env), LOCAL, CPU)
    assert made.job_id == number


def test_nothing_given_is_one_node() -> None:
    made = build(hostname="3f1c2ad0b1e5")
    assert made.nodes == (Node(0, "3f1c2ad0b1e5", 1),)
    assert (made.me, made.is_leader, made.world_size, made.peers) == (0, True, 1, ())
    assert (made.job, made.platform, made.user) == ("job", "local", "ma-user")


def test_name_and_address() -> None:
    made = build(
        hosts("worker-0=10.0.0.7", "worker-1=fd00::2", "worker-2=node.example", "worker-3"),
        node_rank="3",
    )
    assert [(node.host, node.address) for node in made.nodes] == [
        ("worker-0", "10.0.0.7"),
        ("worker-1", "fd00::2"),
        ("worker-2", "node.example"),
        ("worker-3", None),
    ]


@pytest.mark.parametrize("rank", [0, 1, 2])
def test_addresses_of_a_platform(rank: int) -> None:
    """An IPv6 address gets a name, the same one on all nodes; an IPv4 address is one."""
    made = build(site=Site("p", hosts=("fd00::1", "10.0.0.2", "FD00:0:0::3"), index=rank))
    assert [(node.host, node.address, node.where) for node in made.nodes] == [
        ("node-0", "fd00::1", "fd00::1"),
        ("10.0.0.2", None, "10.0.0.2"),
        ("node-2", "FD00:0:0::3", "FD00:0:0::3"),
    ]
    assert made.me == rank


def test_a_worker_and_a_parameter_server_at_one_address_of_a_platform() -> None:
    """As names they would be one host; their sshds have a port each."""
    made = build(
        site=Site(
            "p",
            hosts=("10.0.0.1", "10.0.0.2", "10.0.0.1"),
            index=2,
            tasks=("worker", "worker", "ps"),
        )
    )
    assert [(node.host, node.where, node.label) for node in made.nodes] == [
        ("node-0", "10.0.0.1", "worker-0"),
        ("10.0.0.2", "10.0.0.2", "worker-1"),
        ("node-2", "10.0.0.1", "ps-0"),
    ]
    assert made.nodes[0].ssh_port != made.nodes[2].ssh_port


def test_a_final_dot_is_no_part_of_a_name() -> None:
    """In hosts, in addresses, and in a platform's list."""
    made = build(hosts("a.ns.", "b.ns.:2=c.ns."), node_rank="0")
    expected = [("a.ns", None, 1), ("b.ns", "c.ns", 2)]
    assert [(node.host, node.address, node.slots) for node in made.nodes] == expected
    made = build(site=Site("p", hosts=("a.ns.", "b.ns."), index=1))
    assert [node.host for node in made.nodes] == ["a.ns", "b.ns"]
    with pytest.raises(SpecError, match="the name is empty"):
        build(hosts("'.'", "b"))


@pytest.mark.parametrize("rank", ["0", "1", "2"])
def test_slots_of_a_host(rank: str) -> None:
    made = build(hosts("a:1", "b:3=fd00::2", "c=fd00::3") + "\nslots: 2", node_rank=rank)
    expected = [("a", 1, None), ("b", 3, "fd00::2"), ("c", 2, "fd00::3")]
    assert [(node.host, node.slots, node.address) for node in made.nodes] == expected
    assert made.world_size == 6
    assert str(made.origins["slots"]) == (
        "spec job.yaml:2:8" if rank == "2" else "spec job.yaml:1:8"
    )


# --------------------------------------------------------------------------------------------------
# Which node is this one


WORKERS = TABLE["workers"]


@pytest.mark.parametrize(("names", "hostname", "me"), TABLE["found"])
def test_found_by_host_name(names: list[str], hostname: str, me: int) -> None:
    made = build(hosts(*names), hostname=hostname)
    assert made.me == me
    assert made.origins["node_rank"] == Source("default", f"host name {hostname}")


@pytest.mark.parametrize(
    ("names", "hostname", "seen"),
    [
        (WORKERS, "worker-12", "is not one of worker-0, worker-1, worker-2, worker-3 and 8 more"),
        (["worker-10", "worker-11"], "worker-1", "is not one of worker-10, worker-11"),
        (["aworker-1", "b"], "worker-1", "is not one of aworker-1, b"),
        (["node.rack1", "node.rack2"], "node", "matches several of node.rack1, node.rack2"),
        (["a", "b"], "", "is not one of a, b"),
        (["a=10.0.0.1", "b=10.0.0.2"], "10.0.0.1", "is not one of a, b"),
    ],
)
def test_not_found_by_host_name(names: list[str], hostname: str, seen: str) -> None:
    assert refusal(hosts(*names), hostname=hostname) == (
        f"EP202 node index unknown: {len(names)} nodes are given and no index"
        f" | host name {hostname!r} {seen} | set ENTRYPOINT_NODE_RANK (0 for worker-0), or give the"
        " container one of these host names"
    )


def test_one_host_is_this_one_whatever_it_is_called() -> None:
    assert build(hosts("a"), hostname="b").me == 0
    assert build(hosts("a"), Site("modelarts", index=0), hostname="b").me == 0
    assert build(hosts("a"), Site("modelarts", index=5), hostname="b", node_rank="0").me == 0


INDEX_ORIGIN = {"node_rank": "VC_TASK_INDEX"}


@pytest.mark.parametrize(
    ("text", "site", "flags", "seen"),
    [
        ("", Site("p", (), 1), {}, "platform VC_TASK_INDEX) | 1, with 1 host (default this c"),
        ("", Site("p", ("a",), 5), {}, "platform VC_TASK_INDEX) | 5, with 1 host (platform p)"),
        (hosts("a"), Site("p", (), 1), {}, "platform VC_TASK_INDEX) | 1, with 1 host (spec job.y"),
        ("", Site("p", ("a", "b"), 2), {}, "platform VC_TASK_INDEX) | 2, with 2 hosts (platform p)"),
        ("", Site("p", ("a", "b"), 0), {"node_rank": "2"}, "flag --node_rank) | 2, with 2 hosts"),
    ],
)  # fmt: skip
def test_an_index_beyond_the_last_node_is_refused(
    text: str, site: Site, flags: dict[str, str], seen: str
) -> None:
    """Also with one host: each node would run the whole job alone, and end with 0."""
    message = refusal(text, replace(site, origins=INDEX_ORIGIN), hostname="b", **flags)
    assert message.startswith(f"EP203 node_rank is beyond the last node ({seen}")
    assert message.endswith(" | count from 0, or name all hosts")


def test_an_index_of_the_user_s_wins_over_one_that_is_beyond_the_last_node() -> None:
    assert build("", Site("p", hosts=("a", "b"), index=7), node_rank="1").me == 1


# --------------------------------------------------------------------------------------------------
# What wins


SITE = Site(
    "modelarts",
    hosts=("p-0", "p-1", "p-2"),
    index=2,
    slots=4,
    job="ma-job-1",
    origins={
        "hosts": "VC_WORKER_HOSTS",
        "node_rank": "MA_TASK_INDEX",
        "slots": "MA_NUM_GPUS",
        "name": "MA_VJ_NAME",
    },
)
GPUS = Device("nvidia", 8, "8 /dev/nvidia*")


def told(made: Topology) -> dict[str, tuple[Any, str]]:
    hosts = [node.host for node in made.nodes]
    values = {"hosts": hosts, "node_rank": made.me, "slots": made.this.slots, "name": made.job}
    return {name: (value, str(made.origins[name])) for name, value in values.items()}


TEXT = "name: mine\nslots: 2\nnode_rank: 1\nhosts: [s-0, s-1]\n"
FLAGS = {"name": "other", "slots": "3", "node_rank": "0", "hosts": "f-0,f-1"}
BY_PLATFORM = {
    "hosts": (["p-0", "p-1", "p-2"], "platform VC_WORKER_HOSTS"),
    "node_rank": (2, "platform MA_TASK_INDEX"),
    "slots": (4, "platform MA_NUM_GPUS"),
    "name": ("ma-job-1", "platform MA_VJ_NAME"),
}
BY_SPEC = {
    "hosts": (["s-0", "s-1"], "spec job.yaml:4:8"),
    "node_rank": (1, "spec job.yaml:3:12"),
    "slots": (2, "spec job.yaml:2:8"),
    "name": ("mine", "spec job.yaml:1:7"),
}
BY_FLAG = {
    "hosts": (["f-0", "f-1"], "flag --hosts"),
    "node_rank": (0, "flag --node_rank"),
    "slots": (3, "flag --slots"),
    "name": ("other", "flag --name"),
}


@pytest.mark.parametrize(
    ("text", "flags", "expected"),
    [("", {}, BY_PLATFORM), (TEXT, {}, BY_SPEC), (TEXT, FLAGS, BY_FLAG)],
    ids=["platform over default", "spec over platform", "flag over all"],
)
def test_what_wins(text: str, flags: dict[str, str], expected: dict[str, Any]) -> None:
    assert told(build(text, SITE, GPUS, **flags)) == expected


def test_what_is_there_without_a_platform_and_a_spec() -> None:
    made = told(build(hosts("a", "b"), device=GPUS, hostname="b"))
    assert (made["slots"], made["name"]) == ((8, "default 8 /dev/nvidia*"), ("job", "default"))
    given = told(build("name: job", SITE))
    assert given["name"] == ("job", "spec job.yaml:1:7"), "given, though it is the default"


def test_platform_without_origins_is_named_itself() -> None:
    made = build("", Site("slurm", hosts=("a", "b"), index=1, slots=2))
    assert {str(made.origins[field]) for field in ("hosts", "node_rank", "slots")} == {
        "platform slurm"
    }


# --------------------------------------------------------------------------------------------------
# What a platform cannot say


def modelarts(text: str = "", flags: Mapping[str, str] | None = None, **env: str) -> Topology:
    site = read(registry.load("platforms", "modelarts"), facts("c-1", env=env))
    return build(text, site, hostname="c-1", **(flags or {}))


@pytest.mark.parametrize(("env", "message", "cure", "names"), TABLE["unsaid"])
def test_an_error_where_nobody_says_it_asks_for_what_cures_it(
    env: dict[str, str], message: str, cure: dict[str, str], names: list[str]
) -> None:
    with pytest.raises(ConfigError) as caught:
        modelarts(**env)
    assert (str(caught.value), caught.value.status) == (message, 78)
    made = modelarts(flags=cure, **env)
    assert ([node.host for node in made.nodes], made.me) == (names, 1)


@pytest.mark.parametrize(("name", "folder"), collect("platforms"))
def test_the_spec_can_say_what_a_platform_does_not(name: str, folder: Path) -> None:
    """Hosts and a rank cure every case but those where a variable is wrong; and what is unknown
    asks for them."""
    if not (folder / "expect.yaml").exists() or "error" in read_expected(folder):
        return
    site = read(registry.load("platforms", name), read_facts(folder))
    assert [do for _, _, do in site.unknown.values() if "ENTRYPOINT_" not in do] == []
    text = "pre_start: skip" if "pre_start" in site.unknown else ""
    made = build(text, site, hosts="x,y", node_rank="1")
    assert ([node.host for node in made.nodes], made.me) == (["x", "y"], 1)


def test_hosts_of_the_spec_on_a_platform_that_knows_none() -> None:
    """Every node would be the leader if the platform's silence meant index 0."""
    assert modelarts(hosts("c-0", "c-1"), MA_NUM_HOSTS="1").me == 1
    assert modelarts(hosts("c-0", "c-1"), MA_NUM_HOSTS="1", VC_TASK_INDEX="0").me == 0


# --------------------------------------------------------------------------------------------------
# What cannot be


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (
            ("a" * 63, "b" * 64 + ".job"),
            f"EP205 1 of 2 host names are invalid (platform VC_WORKER_HOSTS) | {'b' * 64}.job (a"
            " label of it has 64 characters, DNS allows 63) | shorten the job's name",
        ),
        (("a", "b", "a", "b", "c"), "EP206 a host is named twice (platform VC_WORKER_HOSTS) | a, b | name each node once"),
        # DNS knows no case: sshd's keys and the hostfile would name one machine twice.
        (("Node-0", "node-0"), "EP206 a host is named twice (platform VC_WORKER_HOSTS) | node-0 | name each node once"),
        (
            ("10.0.0.1", "10.0.0.1"),
            "EP206 two hosts have one address (platform VC_WORKER_HOSTS) | node-0 and node-1 are"
            " both 10.0.0.1 | give each node an address of its own",
        ),
        (("h",) * 16385, "EP204 too many hosts (platform VC_WORKER_HOSTS) | 16385 | a job has 16384 at most"),
    ],
    ids=["a long label", "twice", "twice in another case", "one address", "too many"],
)  # fmt: skip
def test_hosts_of_a_platform_that_cannot_be(names: tuple[str, ...], message: str) -> None:
    site = Site("p", hosts=names, index=0, origins={"hosts": "VC_WORKER_HOSTS"})
    assert refusal("", site) == message


def test_all_bad_names_at_once() -> None:
    fine = Site("p", hosts=("a" * 63, "b" * 63 + "." + "c" * 63), index=0)
    assert build("", fine).world_size == 2
    site = Site("p", hosts=("a b", "fine", "-c", "d..e", "f" * 64), index=1)
    message = refusal("", site)
    assert message.startswith("EP205 4 of 5 host names are invalid (platform p) | ")
    names = ("a b (", "-c (", "d..e (", "f" * 64 + " (")
    assert [name for name in names if name not in message] == []


@pytest.mark.parametrize(
    ("names", "do"),
    [
        (("fd00::1", "b c"), "ENTRYPOINT_HOSTS=worker-0=fd00::1,worker-1=ADDRESS"),
        (("fe80::1%eth0", "fe80::2%eth0"), "ENTRYPOINT_HOSTS=worker-0=ADDRESS,worker-1=ADDRESS"),
        (("knoten-ä", "b", "c"), "ENTRYPOINT_HOSTS=worker-0=ADDRESS,worker-1=ADDRESS,..."),
    ],
)
def test_advice_fits_what_was_seen(names: tuple[str, ...], do: str) -> None:
    message = refusal("", Site("p", hosts=names, index=0))
    assert message.endswith(f" | give every node a name and its address: {do}")


@pytest.mark.parametrize(
    ("names", "seen"),
    [
        (("a=10.0.0.1", "b=10.0.0.1"), "a and b are both 10.0.0.1"),
        (("a=::1", "b=0:0::1"), "a and b are both 0:0::1"),
        (("10.0.0.1", "b=10.0.0.1"), "10.0.0.1 and b are both 10.0.0.1"),
        (("a=b", "b"), "a and b are both b"),
    ],
)
def test_two_hosts_at_one_address(names: tuple[str, ...], seen: str) -> None:
    assert refusal(hosts(*names), node_rank="0") == (
        f"EP206 two hosts have one address (spec job.yaml:1:8) | {seen} | give each node an"
        " address of its own"
    )


def test_a_worker_and_a_parameter_server_may_share_an_address() -> None:
    text = hosts("w=10.0.0.1", "p=10.0.0.1") + "\ntensorflow: {ps: 1}"
    assert [node.label for node in build(text, node_rank="0").nodes] == ["worker-0", "ps-0"]


@pytest.mark.parametrize("servers", [2, 3])
def test_parameter_servers_leave_a_node_to_work(servers: int) -> None:
    """But a program that has some can be tried on one node."""
    text = f"tensorflow: {{ps: {servers}}}\n"
    assert [node.label for node in build(text).nodes] == ["worker-0"]
    assert refusal(text + hosts("a", "b"), node_rank="0") == (
        f"EP209 no worker is left | tensorflow.ps is {servers}, with 2 hosts | name the"
        " workers first, then the parameter servers"
    )


def test_our_processes_run_in_the_interpreter_that_we_run_in() -> None:
    spec = load("", "job.yaml", {}, {})
    here = facts(python="/opt/py/bin/python3")
    assert topology.build(spec, here, LOCAL, CPU).python == "/opt/py/bin/python3"


def test_only_some_platforms_start_programs_that_are_no_jobs() -> None:
    """On the others, a command without a spec is a job, too."""
    pod, step = {"KUBERNETES_SERVICE_HOST": "::1"}, {"SLURM_JOB_ID": "7", "SLURM_NODEID": "0"}
    answers = [topology.starts_any_program(facts(env=env)) for env in ({}, pod, step)]
    assert answers == [True, True, False]


# --------------------------------------------------------------------------------------------------
# Directories


def test_the_run_directory() -> None:
    """Two jobs of two ports, or of two users, share one machine."""
    made = build()
    assert (made.run_dir, str(made.origins["run_dir"])) == ("/tmp/entrypoint-1000-36666", "default")
    spec = JobSpec(ssh=SshSpec(port=40022))
    assert topology.build(spec, facts(uid=0), LOCAL, CPU).run_dir == "/tmp/entrypoint-0-40022"
    made = build("run_dir: /run/job")
    assert (made.run_dir, str(made.origins["run_dir"])) == ("/run/job", "spec job.yaml:1:10")


@pytest.mark.parametrize("run_dir", ["/" + "d" * 86, "/" + "ä" * 43])
def test_the_run_directory_must_hold_a_socket(run_dir: str) -> None:
    fits = "/" + "d" * 85
    assert build(f"run_dir: {fits}").run_dir == fits
    assert refusal(f"run_dir: {run_dir}") == (
        f"EP125 run_dir is too long for a socket in it | 87 bytes: {run_dir} | give one of"
        " at most 86 bytes"
    )


def test_logs_lie_outside_the_run_directory() -> None:
    assert refusal("run_dir: /x/run\nlog_dir: /x/run/log/") == (
        "EP124 log_dir is in the run directory (spec job.yaml:2:10) | /x/run/log is in /x/run, which"
        " is removed with the job | set log_dir to another directory"
    )
    assert build("run_dir: /x/run\nlog_dir: /x/runs").log_dir == "/x/runs"
    assert build("run_dir: /x/run/").log_dir == "/x/run-log"


# --------------------------------------------------------------------------------------------------
# Bounds


def test_many_hosts_cost_little() -> None:
    """As many as a job may have: each host is looked at once."""

    def site(size: int) -> Site:
        hosts = tuple(f"h{number}" for number in range(size))
        return Site("modelarts", hosts, index=1, tasks=("worker",) * size)

    assert not grows_too_fast(lambda given: build(site=given), site(1024), site(4096))
    made = build(site=site(16384))
    assert (len(made.nodes), made.nodes[-1].label) == (16384, "worker-16383")


def test_many_nodes_at_loopback_addresses_cost_little() -> None:
    """Each of 9,999 such nodes had a list of all the others: 1.3 GB, and a minute of CPU."""

    def local(size: int) -> Topology:
        made = build(site=Site("modelarts", tuple(f"h{number}" for number in range(size)), index=1))
        return replace(made, nodes=tuple(replace(it, address="127.0.0.2") for it in made.nodes))

    assumed = assume_members(local(3), facts("h1", cpu_pool="0-7"))
    assert [len(report.neighbours) for report in assumed.reports] == [0, 2, 0]
    assert [report.cpu_pool for report in assumed.reports] == ["", "0-7", ""]
    short, long = local(1024), local(4096)
    assert not grows_too_fast(lambda given: assume_members(given, facts("h1")), short, long)


def test_too_many_slots() -> None:
    site = Site("modelarts", index=0, slots=4097, origins={"slots": "MA_NUM_GPUS"})
    do = "a node has 4096 at most; ENTRYPOINT_SLOTS wins over the platform"
    assert refusal(site=site) == f"EP126 too many slots (platform MA_NUM_GPUS) | 4097 | {do}"
    with pytest.raises(SpecError, match="slots: EP100 a whole number from 1 to 4096 is needed"):
        build(slots="1" + 23 * "0")


# --------------------------------------------------------------------------------------------------
# The script that a platform's own boot would run first


def test_the_platform_s_script_runs_unless_it_is_refused() -> None:
    site = Site("modelarts", pre_start="/jobs/code/ma-pre-start.sh")
    assert build(site=site).pre_start == "/jobs/code/ma-pre-start.sh"
    assert build("pre_start: skip", site=site).pre_start == ""
    assert build(site=Site("modelarts")).pre_start == ""


def test_two_of_them_are_an_error_unless_they_are_refused() -> None:
    site = Site("modelarts", unknown={"pre_start": ("two scripts", "a, b", "leave one")})
    assert refusal(site=site) == "EP210 two scripts | a, b | leave one"
    assert build("pre_start: skip", site=site).pre_start == ""


# --------------------------------------------------------------------------------------------------
# TensorFlow's chief


def test_the_platform_s_chief_is_one_among_the_platform_s_hosts() -> None:
    site = Site(
        "tfjob", hosts=("c", "w", "p"), index=0, tasks=("worker", "worker", "ps"), chief=True
    )
    made = build(site=site)
    assert (made.chief, str(made.origins["tensorflow.chief"])) == (True, "platform tfjob")
    assert not build(f"{hosts('a', 'b')}\nnode_rank: 0", site=site).chief
    assert not build("tensorflow: {chief: none}", site=site).chief
    assert build("tensorflow: {chief: worker-0}").chief
