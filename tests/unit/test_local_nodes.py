"""What `entrypoint local` makes of its options and of a spec, before anything starts."""

from __future__ import annotations

from shlex import split

import pytest

from entrypoint.base.errors import UsageError
from entrypoint.spec import Override, load
from entrypoint.tools.local import faults, settings
from entrypoint.tools.local.faults import Fault

pytestmark = pytest.mark.see


@pytest.mark.parametrize(
    ("word", "at", "ends"),
    [
        ("worker-2@5s", 5.0, None),
        ("worker-2@500ms", 0.5, None),
        ("worker-2@1.5s", 1.5, None),
        ("worker-2@2m", 120.0, None),
        ("worker-2@1h", 3600.0, None),
        ("worker-2@3s+5s", 3.0, 8.0),
        ("worker-2@0s+500ms", 0.0, 0.5),
    ],
)
@pytest.mark.parametrize("kind", ["freeze", "kill"])
def test_a_time(kind: str, word: str, at: float, ends: float | None) -> None:
    assert faults.read({kind: [word]}, 3) == [Fault(kind, 2, at, ends, f"--{kind} {word}")]


@pytest.mark.parametrize(
    "word", ["worker-1", "1@5s", "worker-1@5", "worker-1@5d", "worker-1@-5s", "@5s", "worker-1@5s "]
)
def test_what_is_no_time(word: str) -> None:
    with pytest.raises(UsageError, match="not NODE@TIME"):
        faults.read({"kill": [word]}, 3)


def test_faults_come_in_the_order_of_time() -> None:
    made = faults.read({"kill": ["worker-1@5s"], "late": ["worker-2@1s"]}, 3)
    assert [(each.kind, each.at) for each in made] == [("late", 1.0), ("kill", 5.0)]


def test_all_that_is_wrong_is_told_at_once() -> None:
    given = {
        "kill": ["worker-3@5s", "worker-1@2s"],
        "stop": ["worker-1@2s+1s"],
        "late": ["worker-1@1s", "worker-1@2s"],
    }
    with pytest.raises(UsageError) as raised:
        faults.read(given, 3)
    assert raised.value.summary == "EP020 3 of the faults cannot be injected"
    assert (
        raised.value.detail
        == "--kill 'worker-3@5s' (the nodes are worker-0 to worker-2), --stop 'worker-1@2s+1s'"
        " (only a freeze and a kill end), --late 'worker-1@2s' (worker-1 is late twice)"
    )


SPEC = "hosts: [gpu-17:8, gpu-18]\nslots: 2\nenv: {OPENMPI_MCA_ARGS: '%s'}\n"


def test_a_node_knows_itself_and_the_others() -> None:
    ours = settings.settings(load(SPEC % "", "job.yaml", {}, {}), 3, 1, "/tmp/x", 20000)
    assert ours == {
        "ENTRYPOINT_HOSTS": "worker-0:8=127.0.0.2,worker-1=127.0.0.3,worker-2=127.0.0.4",
        "ENTRYPOINT_NODE_RANK": "1",
        "ENTRYPOINT_RUN_DIR": "/tmp/x/worker-1",
        "ENTRYPOINT_SECRET_FILE": "/tmp/x/secret",
        "ENTRYPOINT_PLATFORM": "local",
        "ENTRYPOINT_NETWORK_INTERFACE": "auto",
        "ENTRYPOINT_METRICS_ADDRESS": "127.0.0.3",
        "ENTRYPOINT_MPI_INTERFACE": "lo",
        "ENTRYPOINT_SSH_PORT": "20000",
        "ENTRYPOINT_PORT": "20002",
        "ENTRYPOINT_LOG_DIR": "/tmp/x-log",
    }


def test_who_tells_open_mpi_the_interface_is_left_alone() -> None:
    spec = load(SPEC % "-mca btl_tcp_if_include lo", "job.yaml", {}, {})
    assert "ENTRYPOINT_MPI_INTERFACE" not in settings.settings(spec, 2, 0, "/tmp/x", 20000)


def test_no_setting_of_another_job_reaches_a_node() -> None:
    """Under any name, but for what is not ours to say."""
    ours = settings.settings(load(None, "", {}, {}), 2, 0, "/tmp/x", 20000)
    own = {
        "ENTRYPOINT_HOSTS": "a,b",
        "MY_TASK_INDEX": "7",
        "MASTER_PORT": "1",
        "ENTRYPOINT_RAY_PORT": "1",
        "ENTRYPOINT_RESTARTS": "2",
        "A": "b",
    }
    env = settings.environment(own, ours, 0, "/tmp/x")
    assert {"MY_TASK_INDEX", "MASTER_PORT", "ENTRYPOINT_RAY_PORT"} & env.keys() == set()
    assert env["ENTRYPOINT_HOSTS"] == ours["ENTRYPOINT_HOSTS"]
    assert (env["ENTRYPOINT_RESTARTS"], env["A"], env["HOSTNAME"]) == ("2", "b", "worker-0")
    assert env["TMPDIR"] == "/tmp/x/tmp-0"
    unheard = settings.unheard()
    assert {*split("ENTRYPOINT_SECRET MY_TASK_INDEX SSHD_PORT ENTRYPOINT_SSH_PORT")} <= unheard
    assert "ENTRYPOINT_HOSTS" not in unheard


@pytest.mark.parametrize(
    ("own", "cards", "nodes", "shares"),
    [
        (None, 8, 2, ["0,1,2,3", "4,5,6,7"]),
        (None, 5, 2, ["0,1", "2,3"]),
        ("6, 4,5,7", 4, 2, ["6,4", "5,7"]),
        ("GPU-a,GPU-b", 2, 2, ["GPU-a", "GPU-b"]),
        (None, 1, 2, [None, None]),
        (None, 0, 2, [None, None]),
        ("3", 1, 1, [None]),
    ],
)
def test_a_node_s_share_of_the_accelerators(
    own: str | None, cards: int, nodes: int, shares: list[str | None]
) -> None:
    env = {"CUDA_VISIBLE_DEVICES": own} if own else {}
    made = [
        settings.share("CUDA_VISIBLE_DEVICES", env, cards, nodes, node) for node in range(nodes)
    ]
    assert [each.get("CUDA_VISIBLE_DEVICES") for each in made] == shares


def test_flags_are_passed_on() -> None:
    given = {
        "launcher": Override("plain", "--launcher"),
        "timeouts.peers": Override("5", "--timeout"),
        "env": Override(["A=b c", "D="], "--env"),
        "command": Override(["python", "train.py"], "--"),
    }
    words = split("--launcher=plain --timeout=5 '--env=A=b c' --env=D= -- python train.py")
    assert settings.flags(given) == words


@pytest.mark.parametrize(
    ("hosts", "asked", "count"), [("a,b,c", None, 3), ("a,b,c", "2", 2), ("a", "4", 4)]
)
def test_how_many_nodes_there_are(hosts: str, asked: str | None, count: int) -> None:
    assert (
        settings.node_count(load(None, "", {}, {"hosts": Override(hosts, "--hosts")}), asked)
        == count
    )
