"""examples/observe/ with the real programs: Prometheus scrapes a running job of two nodes, promtool
checks the alerts, the dashboard asks for metrics that exist, and Fluent Bit reads the log of a job."""

from __future__ import annotations

import functools
import itertools
import json
import re
import shutil
import subprocess
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
import yaml

from entrypoint.features.record.metrics import METRICS
from tests import TREE, command
from tests.cluster import free_port
from tests.local import Make
from tests.waits import until

OBSERVE = TREE / "examples/observe"
NAME = "observe-example"
ALERTS = {"EntrypointNodeMissing", "EntrypointKeepsRestarting", "EntrypointStalled"}
real = pytest.mark.skipif(not shutil.which("promtool"), reason="needs Debian's package prometheus")
COLUMNS = 24  # of Grafana's grid


# --------------------------------------------------------------------------------------------------
# The files as text


def dashboard() -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((OBSERVE / "dashboard.json").read_text())
    return loaded


def expressions(board: Mapping[str, Any]) -> list[str]:
    return [target["expr"] for panel in board["panels"] for target in panel["targets"]]


def unknown(text: str) -> set[str]:
    """The metrics in a text that no node serves."""
    return {*re.findall(r"\bentrypoint_\w+", text)} - METRICS.keys()


def problems(board: Mapping[str, Any]) -> list[str]:
    """What Grafana would not take, or would show wrongly."""
    found = [
        f"no {name}"
        for name, kind in {"title": str, "schemaVersion": int, "panels": list}.items()
        if not isinstance(board.get(name), kind)
    ]
    variables = {each["name"] for each in board["templating"]["list"]}
    places: dict[tuple[int, int], str] = {}
    numbers = [panel["id"] for panel in board["panels"]]
    found += [f"id {number} twice" for number in {*numbers} if numbers.count(number) > 1]
    for panel in board["panels"]:
        title, grid = panel["title"], panel["gridPos"]
        if grid["x"] + grid["w"] > COLUMNS:
            found.append(f"{title} is too wide")
        for place in itertools.product(
            range(grid["x"], grid["x"] + grid["w"]), range(grid["y"], grid["y"] + grid["h"])
        ):
            if (other := places.setdefault(place, title)) is not title:
                found.append(f"{title} covers {other}")
                break
        names = re.findall(r"\$\{?(\w+)", json.dumps(panel))
        found += [f"{title} has no variable {name}" for name in {*names} - variables]
    return found


@pytest.mark.promise("dashboard and alerts ask only for metrics that a node serves")
def test_dashboard_and_alerts_have_the_names_of_real_metrics() -> None:
    board = dashboard()
    assert problems(board) == []
    asked = "\n".join([*expressions(board), (OBSERVE / "alerts.yml").read_text()])
    assert unknown(asked) == set()
    assert {name for name in METRICS if name not in asked} == set()  # nothing is left out


@pytest.mark.control("dashboard and alerts ask only for metrics that a node serves")
def test_a_wrong_dashboard_is_noticed() -> None:
    assert unknown("max(entrypoint_node_down) + entrypoint_nodes") == {"entrypoint_node_down"}
    board = dashboard()
    first, second = board["panels"][:2]
    first["gridPos"]["w"] = 25
    second["id"] = first["id"]
    second["targets"][0]["expr"] += " + $other"
    del board["schemaVersion"]
    titles = [panel["title"] for panel in board["panels"] if panel["gridPos"]["y"] == 0]
    assert problems(board) == [
        "no schemaVersion",
        f"id {first['id']} twice",
        f"{first['title']} is too wide",
        *(f"{title} covers {first['title']}" for title in titles[1:2]),
        f"{second['title']} has no variable other",
        *(f"{title} covers {first['title']}" for title in titles[2:]),
    ]


def test_the_pod_monitor_selects_rendered_pods() -> None:
    monitor, pod = yaml.safe_load((OBSERVE / "podmonitor.yml").read_text())["spec"], rendered_pod()
    assert monitor["selector"]["matchLabels"].items() <= pod["metadata"]["labels"].items()
    (endpoint,) = monitor["podMetricsEndpoints"]
    ports = {port["name"]: port["containerPort"] for port in pod["spec"]["containers"][0]["ports"]}
    assert (ports[endpoint["port"]], endpoint["honorLabels"]) == (9464, True)


# --------------------------------------------------------------------------------------------------
# promtool


def promtool(*words: str | Path) -> tuple[int, str]:
    done = command.captured(["promtool", *words])
    return done.returncode, done.stdout + done.stderr


@real
@pytest.mark.slow
@pytest.mark.promise("each alert fires when it should, and not before")
def test_the_alerts_fire() -> None:
    status, said = promtool("check", "config", OBSERVE / "prometheus.yml")
    assert status == 0, said
    status, said = promtool("check", "rules", OBSERVE / "alerts.yml")
    assert (status, "3 rules found" in said) == (0, True), said
    status, said = promtool("test", "rules", TREE / "tests/samples/observe/alerts_test.yml")
    assert status == 0, said


@real
@pytest.mark.slow
@pytest.mark.control("each alert fires when it should, and not before")
@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("for: 5m", "for: 4m"),
        ("(entrypoint_node_up) == 0", "(entrypoint_node_up) < 0"),
        ("by (namespace, job, node)", "by (namespace, job)"),
        (">= 3", "> 3"),
        ("[1h]", "[3h]"),
        ("> 1800", "> 1700"),
        ("min by (namespace, job) (entrypoint_idle", "max by (namespace, job) (entrypoint_idle"),
    ],
)
def test_a_wrong_alert_fails(right: str, wrong: str, tmp_path: Path) -> None:
    alerts = (OBSERVE / "alerts.yml").read_text()
    assert alerts.count(right) == 1
    (tmp_path / "alerts.yml").write_text(alerts.replace(right, wrong))
    cases = (TREE / "tests/samples/observe/alerts_test.yml").read_text()
    (tmp_path / "alerts_test.yml").write_text(cases.replace("../../../examples/observe/", ""))
    assert promtool("test", "rules", tmp_path / "alerts_test.yml")[0] == 1


# --------------------------------------------------------------------------------------------------
# A real Prometheus


class Prometheus:
    """A real Prometheus with this configuration."""

    def __init__(self, folder: Path, config: Mapping[str, Any]) -> None:
        (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
        self._api = f"127.0.0.1:{free_port()}"
        self._log = folder / "log"
        with self._log.open("w") as log:
            self.process = subprocess.Popen(
                [
                    "prometheus", f"--config.file={folder}/prometheus.yml",
                    f"--storage.tsdb.path={folder}/data", f"--web.listen-address={self._api}",
                ],
                stdout=log, stderr=log, cwd=folder,
            )  # fmt: skip

    def get(self, path: str, **query: str) -> Any:
        """What its API answers."""
        url = f"http://{self._api}/api/v1/{path}?{urlencode(query)}"
        with urllib.request.urlopen(url) as answer:
            return json.load(answer)["data"]

    def serves(self) -> bool:
        """Whether it has started."""
        assert self.process.poll() is None, self._log.read_text()
        try:
            return bool(self.get("status/config"))
        except OSError:
            return False

    def samples(self, expression: str) -> list[tuple[dict[str, str], str]]:
        """The labels and the value of each sample that an expression has now."""
        result = self.get("query", query=expression)["result"]
        return [(each["metric"], each["value"][1]) for each in result]

    def alerts(self) -> dict[str, set[str]]:
        """The state of each alert, and the nodes that it is about."""
        (group,) = self.get("rules")["groups"]
        assert {rule["health"] for rule in group["rules"]} <= {"ok", "unknown"}, group
        return {
            rule["name"]: {each["labels"].get("node", "") for each in rule["alerts"]}
            for rule in group["rules"]
        }


Scrape = Callable[[Mapping[str, Any]], Prometheus]


@pytest.fixture
def scrape(tmp_path: Path) -> Iterator[Scrape]:
    """Starts Prometheus, which ends with the test."""
    made: list[Prometheus] = []

    def start(config: Mapping[str, Any]) -> Prometheus:
        made.append(Prometheus(tmp_path, config))
        until(made[-1].serves, "the start of Prometheus")
        return made[-1]

    yield start
    for each in made:
        each.process.kill()
        each.process.wait()


def scraped(file: str, port: int) -> dict[str, Any]:
    """A configuration of the examples, with this port, short intervals and absolute paths."""
    config: dict[str, Any] = yaml.safe_load(
        (OBSERVE / file).read_text().replace(":9464", f":{port}")
    )
    config["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    config["rule_files"] = [str(OBSERVE / name) for name in config["rule_files"]]
    return config


def rendered_pod() -> dict[str, Any]:
    """The template of the Pods for the job of the examples."""
    done = command.run(
        TREE, "deploy", "kubernetes", "--spec", str(OBSERVE / "job.yaml"), "--image", "x", env={}
    )
    template: dict[str, Any] = list(yaml.safe_load_all(done.stdout))[-1]["spec"]["template"]
    return template


def discovered(port: int) -> list[dict[str, Any]]:
    """Each port of a rendered Pod as Prometheus's discovery finds it, here at worker-0's
    address."""
    pod = rendered_pod()
    before = "__meta_kubernetes_"
    labels = {
        f"{before}pod_label_{re.sub('[^a-z]', '_', name)}": value
        for name, value in pod["metadata"]["labels"].items()
    }
    return [
        {
            "targets": [f"127.0.0.2:{port}"],
            "labels": {
                f"{before}namespace": "team",
                f"{before}pod_container_port_name": each["name"],
                **labels,
            },
        }
        for each in pod["spec"]["containers"][0]["ports"]
    ]


@real
@pytest.mark.slow
@pytest.mark.promise("Prometheus reads a running job, as docs/how-to/metrics.md says")
def test_prometheus_scrapes_a_running_job(local: Make, scrape: Scrape) -> None:
    port = free_port()
    config = scraped("prometheus.yml", port)
    (pods,) = scraped("prometheus-kubernetes.yml", port)["scrape_configs"]
    (nodes,) = config["scrape_configs"]
    pods |= {"job_name": "pods", "static_configs": discovered(port)}
    del pods["kubernetes_sd_configs"]  # Debian's package has no discovery of Pods
    config["scrape_configs"] += [pods, {**nodes, "job_name": "control", "honor_labels": False}]
    prometheus = scrape(config)
    words = ("--spec", "examples/observe/job.yaml", "--late", "worker-1@12s")
    job = local(*words, cwd=TREE, ENTRYPOINT_METRICS_PORT=str(port))

    def seen(what: Callable[[], object], name: str) -> None:
        until(what, name)  # a scrape that comes late leaves no sample

    # worker-1 is missing, and then comes
    seen(lambda: prometheus.alerts()["EntrypointNodeMissing"] == {"worker-1"}, "a pending alert")
    reached = f'entrypoint_node_up{{job="{NAME}",node="worker-1",seen_from="worker-0"}}'
    seen(lambda: {value for _, value in prometheus.samples(reached)} == {"1"}, "worker-1")
    seen(lambda: prometheus.alerts() == {name: set() for name in ALERTS}, "no alert")

    # every node of the static targets; of the Pod only the port `metrics`, with its namespace
    def nodes_of(selector: str) -> set[str]:
        return {each["node"] for each, _ in prometheus.samples(f"entrypoint_info{{{selector}}}")}

    own = f'job="{NAME}"'
    seen(lambda: nodes_of(f'{own},namespace=""') == {"worker-0", "worker-1"}, "both nodes")
    seen(lambda: nodes_of(f'{own},namespace="team"') == {"worker-0"}, "the Pod")
    dropped = prometheus.get("targets")["droppedTargets"]
    found = [each["discoveredLabels"] for each in dropped]
    assert [each["__meta_kubernetes_pod_container_port_name"] for each in found] == ["ssh"]
    # Control: without `honor_labels` the job's name is in another label.
    seen(lambda: nodes_of(f'job="control",exported_{own}'), "the control")

    # every panel shows something, except what a job has only at its end, or after a failure
    for expression in expressions(dashboard()):
        if not re.search("exit_status|cause_seconds|blamed", expression):
            asked = expression.replace("$namespace", ".*").replace("$job", NAME)
            seen(functools.partial(prometheus.samples, asked), expression)
    job.interrupt()
    assert job.ends() == 130


# --------------------------------------------------------------------------------------------------
# A real Fluent Bit

FAILS = """\
import os
print("step 1", flush=True)
if os.environ["RANK"] == "1":
    print("x" * 100_000, flush=True)
    raise RuntimeError("no such shard")
__import__("time").sleep(600)
"""
END = "slurmstepd: the last line, no JSON"
Record = dict[str, Any]


def containerd(line: str) -> str:
    return f"2026-11-28T12:00:00.123456789Z stdout F {line}"


def docker(line: str) -> str:
    return json.dumps({"log": f"{line}\n", "stream": "stdout", "time": "2026-11-28T12:00:00.1Z"})


def collected(
    program: str, folder: Path, logs: Mapping[str, list[str]], change: tuple[str, str] = ("", "")
) -> list[Record]:
    """The records that Fluent Bit makes of these log files, by their paths on a host. Each of them
    ends with END."""
    for name in ("fluent-bit.conf", "fluent-bit-parsers.conf"):
        text = (OBSERVE / name).read_text().replace(*change)
        (folder / name).write_text(text.replace(" /var/", f" {folder}/var/"))
    (folder / "var/lib/fluent-bit").mkdir(parents=True)
    for path, lines in logs.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text("".join(f"{line}\n" for line in lines))
    with (folder / "out").open("w") as out, (folder / "err").open("w") as err:
        argv = [program, "-c", str(folder / "fluent-bit.conf")]
        process = subprocess.Popen(argv, stdout=out, stderr=err)
    try:
        written = folder / "out"
        until(lambda: written.read_text().count(END) == len(logs), "the last record")
    finally:
        process.kill()
        process.wait()
    return [json.loads(line) for line in written.read_text().splitlines()]


@pytest.fixture
def fluent_bit(python_with: Callable[[str], str]) -> str:
    """The path that scripts/dev/fluent-bit prints."""
    return python_with("fluent-bit")


@pytest.mark.slow
@pytest.mark.promise("Fluent Bit makes a record of each line of a job, with its time and its rank")
def test_fluent_bit_makes_records(local: Make, fluent_bit: str, tmp_path: Path) -> None:
    words = ("--nodes", "2", "--slots", "1", "--launcher", "plain", "--log-format", "json")
    job = local(*words, "--", "python3", "-c", FAILS)
    assert job.ends() == 1, job.err
    lines = [*job.out.splitlines(), *job.err.splitlines()]
    short = [line for line in lines if len(line) < 16_000]  # longer ones come in pieces
    assert len(short) < len(lines)
    logs = {
        "var/log/entrypoint/job.log": [*lines, END],
        "var/log/containers/pod.log": [containerd(line) for line in (*short, END)],
        "var/log/containers/other.log": [docker(line) for line in (*short, END)],
    }
    records = collected(fluent_bit, tmp_path, logs)

    # each line once from each file, field by field, with its time as the record's
    texts = [record for record in records if END in record["text"]]
    assert (len(texts), sum("rank" in record for record in texts)) == (3, 0)
    found = [record for record in records if record not in texts]
    expected = [json.loads(line) for line in (*lines, *short, *short)]
    for record in found:  # Fluent Bit keeps a time as a float
        date, when = (datetime.fromisoformat(record[key]) for key in ("date", "time"))
        assert abs(date - when) < timedelta(milliseconds=1)
        del record["date"]
    key = functools.partial(json.dumps, sort_keys=True)
    assert sorted(map(key, found)) == sorted(map(key, expected))
    # a traceback's lines stay lines of their rank; an error has its id
    (trace,) = [each for each in expected[: len(lines)] if each["text"].startswith("RuntimeError")]
    assert (trace["rank"], trace["node"], trace["stream"]) == (1, "worker-1", "stderr")
    assert {each["id"] for each in expected if each.get("level") == "error"} == {"EP600"}


@pytest.mark.slow
@pytest.mark.control("Fluent Bit makes a record of each line of a job, with its time and its rank")
@pytest.mark.parametrize(
    ("right", "wrong", "seen"),
    [
        ("", "", [3, "x", True]),
        ("Key_Name         log", "Key_Name         text", [None, None, False]),
        ("%S.%L%z", "%S%z", [3, "x", False]),
        ("Rename           log text", "Rename           log other", [3, "x", True]),
    ],
)
def test_a_wrong_configuration_makes_others(
    right: str, wrong: str, seen: list[object], fluent_bit: str, tmp_path: Path
) -> None:
    """The control; its first case is the configuration as it is."""
    row = {"time": "2026-11-22T16:35:54.551611Z", "rank": 3, "text": "x"}
    logs = {"var/log/entrypoint/job.log": [json.dumps(row), END]}
    first, last = collected(fluent_bit, tmp_path, logs, (right, wrong))
    fields = [first.get("rank"), first["text"] if "rank" in first else None]
    assert [*fields, first["date"] == row["time"]] == seen
    assert ("text" in last) == ("other" not in wrong)
