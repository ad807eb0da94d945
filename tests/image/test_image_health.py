"""Point 5: the health check, which is a Kubernetes probe too."""

from __future__ import annotations

from tests.containers import container, engine, inspect, kill, logs
from tests.image.boxes import Pair, run, started
from tests.waits import until

PROGRAM = ("sh", "-c", "echo up; exec sleep 1000")


def probe(box: str) -> tuple[int, str]:
    """What a probe of the container gets: status and words."""
    status, (out, err) = container(box).exec_run("entrypoint health", demux=True)
    assert err is None
    return status, out.decode().strip()


def test_the_images_health_check(image: str) -> None:
    """5.1 HEALTHCHECK is `entrypoint health`, all four numbers stated; docker then calls a running
    job healthy"""
    stated = engine().images.get(image).attrs["Config"]["Healthcheck"]
    second = 10**9
    assert stated == {
        "Test": ["CMD", "entrypoint", "health"],
        "Interval": 10 * second,
        "Timeout": 5 * second,
        "StartPeriod": 600 * second,
        "Retries": 3,
    }
    with started(image, *PROGRAM, options=("--health-interval", "1s")) as box:
        until(lambda: inspect(box)["State"]["Health"]["Status"] == "healthy", "healthy")


def test_not_ready_before_the_roll_call_is_complete(image: str) -> None:
    """5.2 entrypoint health: 1 until every node has answered and the job starts, then 0, on every
    node"""
    with Pair(image) as pair:
        box = pair.start(0, *PROGRAM)
        until(lambda: "waiting for 1 of 1 peers" in logs(box), "the roll call")
        assert probe(box) == (1, "not ready: the job has not started on this node yet")
        pair.start(1, *PROGRAM)
        until(lambda: logs(box).count("up\n") == 4, "the job runs")
        for each in pair.boxes.values():
            assert probe(each) == (0, "ready: the job has started on this node")


def test_health_after_a_restart(image: str) -> None:
    """5.3 after a restart of the container it is 1 again: what an earlier run left is not
    believed"""
    with Pair(image) as pair:
        pair.start_both(*PROGRAM)
        box = pair.boxes[0]
        until(lambda: probe(box)[0] == 0, "ready")
        for each in pair.boxes.values():
            kill(each)
        container(box).start()
        until(lambda: logs(box).count("waiting for 1 of 1 peers") == 1, "the roll call again")
        assert probe(box)[0] == 1


def test_health_is_local_and_cheap(image: str) -> None:
    """5.4 entrypoint health needs no network and no writable file, and takes less than half a
    second of one core"""
    script = "entrypoint health && entrypoint health && entrypoint health && times"
    options = ("--entrypoint", "bash", "--network", "none", "--read-only", "--cap-drop", "ALL")
    done = run(image, "-c", script, options=options)
    *said, _, times = done.out.strip().split("\n")
    assert said == ["no boot is going on here: the program runs on its own"] * 3
    seconds = [
        float(text.split("m")[0]) * 60 + float(text.split("m")[1].rstrip("s"))
        for text in times.split()
    ]
    assert sum(seconds) / 3 < 0.5
