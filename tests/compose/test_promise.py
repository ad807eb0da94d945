"""`entrypoint plan` of the smoke job, in its own containers, is what `run` then does there."""

from __future__ import annotations

import json
from shlex import split

from tests import TREE
from tests.cluster import until
from tests.composed import Compose
from tests.containers import docker, logs

SPEC = TREE / "examples/horovod/job.yaml"
PROGRAM = ["python", "train.py", "--steps", "1000000"]  # long enough to be looked at


def test_plan_of_the_smoke_job_is_what_run_does(compose: Compose) -> None:
    compose.render(SPEC, *PROGRAM)
    plans = {}
    for rank in range(3):
        said = compose.run(
            *split("run --rm -T --no-deps --entrypoint entrypoint"),
            f"worker-{rank}",
            *split("plan --json --"),
            *PROGRAM,
        )
        plans[f"worker-{rank}"] = json.loads(said[said.index("{\n") : said.rindex("}") + 1])
    compose.run("up", "-d")
    containers = compose.containers()
    until(lambda: "6 ranks on 3 nodes" in logs(containers["worker-0"]), 60, "six ranks")
    for host, plan in plans.items():
        inside, run_dir = containers[host], plan["run_dir"]
        written = docker("exec", inside, "sh", "-c", f"cd {run_dir} && stat -c '%n %a' *").split(
            "\n"
        )
        modes = dict(line.split() for line in written if line)
        for file in plan["files"]:
            assert modes.pop(file["name"]) == file["mode"].lstrip("0"), (host, file["name"])
            if "text" in file:
                text = docker("exec", inside, "cat", f"{run_dir}/{file['name']}")
                assert text == file["text"], (host, file["name"])
        # mpirun's own, or orted's
        sessions = docker("exec", inside, "ls", f"{run_dir}/tmp").split()
        assert len(sessions) == 1, host
        expected = {
            "lock",
            "tmp",
            "ranks",
            "program-ranks",
            "last-output",
            "attend",
            "attend.sessions",
            "attend.end",
            "stacks",
        }
        if host == "worker-0":
            hosts = [f"worker-{rank}" for rank in range(3)]
            expected |= {
                "line",
                "started.txt",
                "agents",
                *(f"agent.{each}" for each in hosts),
                *(f"agent.{each}.command" for each in hosts[1:]),
            }
        assert set(modes) == expected, host
    leader = plans["worker-0"]
    find = (
        "for p in /proc/[0-9]*; do case $(tr '\\0' ' ' <$p/cmdline) in 'mpirun '*) echo $p; esac;"
        " done"
    )
    mpirun = docker("exec", containers["worker-0"], "sh", "-c", find).split()[0]
    words = docker("exec", containers["worker-0"], "cat", f"{mpirun}/cmdline").split("\0")
    assert words[-len(PROGRAM) - 1 : -1] == PROGRAM
    assert words[words.index("-np") + 1] == str(leader["world_size"]) == "6"
    entries = docker("exec", containers["worker-0"], "cat", f"{mpirun}/environ").split("\0")
    environment = dict(entry.split("=", 1) for entry in entries if entry)
    for variable in leader["env"] + leader["programs"][0]["env"]:
        assert environment[variable["name"]] == variable["value"], variable["name"]
    assert [plans[host]["programs"] for host in ("worker-1", "worker-2")] == [[], []]
