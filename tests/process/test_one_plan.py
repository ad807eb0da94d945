"""`plan` says what `run` does: the plan that both take is one, and what one refuses the other does,
with one status."""

from __future__ import annotations

import asyncio
import json
import secrets
from pathlib import Path
from typing import Any

import pytest

from entrypoint import node, plan, registry
from entrypoint.errors import ConfigError
from entrypoint.model import Device, Facts, Outcome, Plan, Site, Topology
from entrypoint.plan import topology as topologies
from entrypoint.record.file import RecordFile
from entrypoint.spec import JobSpec, load
from entrypoint.system import checks
from entrypoint.system.signals import Signals
from entrypoint.values import replace
from tests.command import run

SECRET = secrets.token_hex(32)
TWO = "hosts: [a, b=127.0.0.2]\nnode_rank: 1\n"
PATH = {"PATH": "/usr/local/bin:/usr/bin:/bin"}
FACTS = Facts(
    PATH,
    "a",
    "/",
    1000,
    "ma-user",
    "/home/ma-user",
    programs={"sshd": "/usr/sbin/sshd"},
    mpi="4.1.4",
)


def settle(
    text: str, facts: Facts = FACTS, device: Device | None = None, **env: str
) -> tuple[JobSpec, Topology]:
    spec = load(text, "job.yaml", env, {})
    return spec, topologies.build(
        spec, facts, Site("local"), device or Device("cpu", 0, "no accelerator")
    )


def quiet(_: str) -> None:
    """Where nobody listens."""


@pytest.mark.parametrize("given", ["secret", "no secret", "roll_call: none"])
@pytest.mark.parametrize("nodes", [1, 2])
@pytest.mark.parametrize("launcher", registry.names("launchers"))
def test_one_plan(
    launcher: str, nodes: int, given: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    text = f"{TWO * (nodes - 1)}launcher: {launcher}\nrun_dir: {tmp_path}/run\ncommand: [env]"
    text += f"\n{given}" if given == "roll_call: none" else ""
    spec, topology = settle(text, **({"ENTRYPOINT_SECRET": SECRET} if given == "secret" else {}))
    if nodes == 2 and given == "roll_call: none" and launcher in ("hydra", "mpirun", "ray"):
        with pytest.raises(ConfigError, match=f"EP313 launcher {launcher} needs the roll call"):
            plan.settle(spec, FACTS, topology)
        return
    booted: list[Plan] = []

    async def boot(attempt: node.Attempt, *_: Any) -> tuple[Outcome, int]:
        booted.append(attempt.plan)
        return Outcome(0, ""), 1

    def become(argv: tuple[str, ...], env: dict[str, str], cwd: str) -> Outcome:
        assert (argv, cwd) == (planned.launch.programs[0].argv, planned.workdir)
        assert (
            env.items()
            >= {
                var.name: var.value for var in (*planned.env, *planned.launch.programs[0].env)
            }.items()
        )
        return Outcome(0, "")

    monkeypatch.setattr(node, "boot", boot)
    monkeypatch.setattr(node.process, "replace", become)
    # no start hook brings one up
    monkeypatch.setattr(node.hooks.network, "interfaces", lambda: FACTS.interfaces)
    planned, refused = checks.dry_run(spec, FACTS, plan.settle(spec, FACTS, topology), quiet)
    assert planned.roll_call == (
        "required" if nodes == 2 and given != "roll_call: none" else "none"
    )
    assert ("host_key" in {file.name for file in planned.files}) == (
        planned.roll_call == "required"
    )
    names_secret = [
        outcome for outcome in refused if "no secret and no key files" in outcome.reason
    ]
    if nodes == 2 and given == "no secret":
        assert [outcome.status for outcome in names_secret] == [78]
        with pytest.raises(ConfigError, match="EP300"):
            node.execute(
                spec,
                FACTS,
                plan.settle(spec, FACTS, topology),
                Signals(quiet),
                quiet,
                RecordFile(quiet),
            )
        return
    assert names_secret == []
    node.execute(
        spec, FACTS, plan.settle(spec, FACTS, topology), Signals(quiet), quiet, RecordFile(quiet)
    )
    assert booted in ([planned], [])
    assert bool(booted) is not (launcher == "plain" and planned.roll_call == "none")


REFUSALS: dict[str, tuple[int, tuple[str, ...], dict[str, str]]] = {
    "nothing": (0, ("--launcher", "plain", "--", "true"), {}),
    "no secret": (78, ("--launcher", "mpirun", "--hosts", "a,b", "--", "true"), {}),
    "no secret for others than mpirun": (78, ("--launcher", "plain", "--hosts", "a,b", "--", "true"), {}),
    "no roll call for mpirun": (
        78, ("--launcher", "mpirun", "--hosts", "a,b", "--", "true"), {"ENTRYPOINT_ROLL_CALL": "none"},
    ),
    "short secret": (65, ("--hosts", "a,b", "--", "true"), {"ENTRYPOINT_SECRET": SECRET[:15]}),
    "no secret file": (66, ("--launcher", "mpirun", "--hosts", "a,b", "--secret-file", "none", "--", "true"), {}),
    "weak secret file": (78, ("--launcher", "ascend", "--hosts", "a,b", "--secret-file", "weak", "--", "true"), {}),
    "no run directory": (73, ("--launcher", "tensorflow", "--run-dir", "/proc/none", "--", "true"), {}),
    "no working directory": (127, ("--launcher", "plain", "--workdir", "none", "--", "true"), {}),
    "no such program": (127, ("--launcher", "plain", "--", "no-such-program"), {}),
    "no such program of many": (127, ("--launcher", "tensorflow", "--", "no-such-program"), {}),
    "not to be executed": (126, ("--launcher", "pytorch", "--", "./weak"), {}),
    "no such script": (127, ("--launcher", "torchrun", "--", "python", "none.py"), {}),
    "no such interface": (78, ("--launcher", "plain", "--network-interface", "none9", "--", "true"), {}),
    "no such device": (78, ("--device", "nvidia", "--", "true"), {}),
    "fewer devices than ranks": (
        78, ("--slots", "3", "--launcher", "torchrun", "--", "true"), {"ENTRYPOINT_SIMULATE_ASCEND": "2"},
    ),
    "rank table of another job": (
        78, ("--hosts", "a,b", "--", "true"), {"ENTRYPOINT_SIMULATE_ASCEND": "1", "RANK_TABLE_FILE": "table.json"},
    ),
}  # fmt: skip


@pytest.mark.promise(
    "what `run` refuses, `plan` refuses with the same status", control="its case without a mistake"
)
@pytest.mark.parametrize("name", REFUSALS)
def test_what_run_refuses_plan_does(name: str, tmp_path: Path) -> None:
    status, argv, env = REFUSALS[name]
    (tmp_path / "weak").write_text("x" * 40)
    (tmp_path / "table.json").write_text(table("0"))
    env = {
        **PATH,
        "ENTRYPOINT_NODE_RANK": "0",
        "ENTRYPOINT_RUN_DIR": f"{tmp_path}/run",
        "ENTRYPOINT_TIMEOUTS_PEERS": "1",
        **env,
    }
    said = {}
    for command in ("plan", "run"):
        done = run(tmp_path, command, *argv, env=env)
        said[command] = done.returncode
        assert bool(done.stderr) is bool(status)
        assert "Traceback" not in done.stderr
    assert said == {"plan": status, "run": status}


# --------------------------------------------------------------------------------------------------
# The rank table, which is read where it is there


def table(*devices: str) -> str:
    ranks = [
        {"device_id": name, "device_ip": f"192.1.0.{name}", "rank_id": str(n)}
        for n, name in enumerate(devices)
    ]
    server = {"server_id": "10.0.0.1", "device": ranks}
    return json.dumps(
        {"status": "completed", "version": "1.0", "server_count": "1", "server_list": [server]}
    )


@pytest.mark.parametrize(
    ("text", "origin", "order"),
    [
        (None, "assumed, the rank table decides", [("0", "0"), ("1", "1")]),
        (table("1", "0"), "the rank table", [("0", "1"), ("1", "0")]),
    ],
)
def test_the_rank_table_is_read_or_said_to_decide(
    text: str | None, origin: str, order: list[tuple[str, str]], tmp_path: Path
) -> None:
    if text:
        (tmp_path / "table.json").write_text(text)
    facts = replace(FACTS, env={**PATH, "RANK_TABLE_FILE": f"{tmp_path}/table.json"})
    device = Device("ascend", 2, "2 /dev/davinci*", cards=(0, 1), launcher="ascend")
    spec, topology = settle(f"run_dir: {tmp_path}/run\ncommand: [env]", facts, device)
    planned, refused = checks.dry_run(spec, facts, plan.settle(spec, facts, topology), quiet)
    assert refused == []
    shown = [{var.name: var for var in program.env} for program in planned.launch.programs]
    assert [(each["RANK_ID"].value, each["ASCEND_DEVICE_ID"].value) for each in shown] == order
    assert {each["ASCEND_DEVICE_ID"].origin for each in shown} == {origin}
    if text:
        from entrypoint.ranks import rank_table

        cards = asyncio.run(rank_table.wait(facts, topology, 1.0, quiet))
        assert [
            (str(rank), str(card)) for rank, card in zip(cards.ranks, cards.devices, strict=True)
        ] == order
