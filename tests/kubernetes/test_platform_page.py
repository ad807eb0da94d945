"""What docs/how-to/kubernetes-platform.md says, typed line by line on a real Kubernetes.

Other than on the page are the names of images and namespace, and quantities that two nodes of one
machine do not have.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import TREE
from tests.kubernetes.realcluster import DONE, Namespace, block

PAGE = f"{TREE}/docs/how-to/kubernetes-platform.md"
SPEC = """\
name: demo
launcher: plain
slots: 1
restarts: 3
command: [sh, -c, 'touch /out/$RANK; until [ -e /out/end ]; do sleep 0.2; done']
timeouts: {peers: 120, grace: 5}
metrics: {port: 9464}
"""
HERE = {"cpu=32": "cpu=100m", "memory=256Gi": "memory=512Mi"}


class Team(Namespace):
    """The namespace that the page's lines make, instead of the one that the tests have."""

    toolkit = ""

    def here(self, text: str) -> str:
        """Return the page's lines with the names and quantities that are here."""
        names = {
            "team-a": self.name,
            "registry.example/tools/entrypoint-toolkit:1.0": self.toolkit,
            "registry.example/team/base:1.2": self.image,
        }
        for old, new in (names | HERE).items():
            text = text.replace(old, new)
        return text

    def lines(self, words: str) -> str:
        """Type the page's block that has these words; return what its last line prints."""
        return self.typed(self.here(block(PAGE, words)))


@pytest.fixture
def team(kit: Path, tmp_path: Path) -> Iterator[Team]:
    """A team's namespace, with what the page puts there, and its volume in the folder `out`."""
    if not all((kit / name).exists() for name in ("toolkit", "base")):
        pytest.skip("no entrypoint-toolkit:dev: run scripts/build-image toolkit, and set up again")
    made = Team(kit, tmp_path)
    made.toolkit, made.image = ((kit / name).read_text().strip() for name in ("toolkit", "base"))
    made.kubectl("delete", "namespace", made.name, "--wait=false")
    made.name += "-a"
    try:
        made.lines("create namespace")
        for node in ("node1", "node2"):
            made.seats("nvidia.com/gpu", node, 64)
        out = tmp_path / "out"
        out.mkdir()
        made.volume("checkpoints", out, shared="shared")
        (objects,) = re.findall(r"(?ms)^```yaml\n(.*?)^```$", _section("## Quotas"))
        (tmp_path / "team.yaml").write_text(objects)
        made.lines("kubectl apply -f team.yaml")
        yield made
    finally:
        made.close()


def _section(title: str) -> str:
    text = Path(PAGE).read_text(encoding="utf-8")
    return text[text.index(title) :].split("\n## ")[0]


@pytest.mark.promise("the platform page's lines work as they stand there", control="a job without limits in the same namespace, and a user of no team")  # fmt: skip
def test_a_team_s_job(team: Team) -> None:
    """quota, limit range, claim, network policy, metrics: a job with an image that nobody prepared"""
    (team.folder / "job.yaml").write_text(SPEC)
    team.lines("deploy kubernetes")
    out = team.folder / "out"
    team.until(lambda: len(list(out.iterdir())) == 4, 120, "all ranks")
    quota = json.loads(team.kubectl("get", "quota", "training", "-o", "json"))["status"]["used"]
    assert (quota["limits.cpu"], quota["requests.nvidia.com/gpu"]) == ("400m", "32")
    assert "entrypoint_ranks{" in team.lines("get --raw")
    (out / "end").touch()
    assert team.ended(4) == [0] * 4, team.said()
    team.lines("delete secret")
    assert team.pods() == []


@pytest.mark.parametrize("kind", [*DONE])
def test_every_kind_within_the_quota(kind: str, team: Team) -> None:
    """what controllers make of a rendered file has the limits that the quota asks for, and passes"""
    (team.folder / "out/end").touch()
    (team.folder / "job.yaml").write_text(SPEC.replace("restarts: 3\n", ""))
    lines = team.here(block(PAGE, "deploy kubernetes")).replace(
        "--nodes 4", f"--nodes 2 --kind {kind}"
    )
    team.kubectl("delete", "limitrange", "training")  # it would give limits to those without
    team.typed("\n".join(lines.splitlines()[:-1]))
    assert team.ended(2) == [0, 0], team.said()


def test_the_quota_counts_what_has_no_limit(team: Team) -> None:
    """the limit range's defaults are what such Pods get; without it, the quota refuses them"""
    (team.folder / "job.yaml").write_text(SPEC.replace("restarts: 3\n", ""))
    deploy = re.sub(r" --resource \S+", "", team.here(block(PAGE, "deploy kubernetes")))
    team.kubectl("delete", "limitrange", "training")
    team.typed(deploy.replace("--nodes 4", "--nodes 2"))
    team.until(lambda: "FailedCreate" in team.typed("kubectl describe job demo"), 60, "the refusal")
    assert team.pods() == []


def test_who_may(team: Team) -> None:
    """a member of the team's group may make what a rendered file has, and others may not"""
    asks = "kubectl auth can-i create {} --as=somebody --as-group={}"
    for kind in ("jobs.batch", "services", "configmaps", "networkpolicies.networking.k8s.io", "secrets"):  # fmt: skip
        assert team.typed(asks.format(kind, team.name)) == "yes\n"
        assert team.sh(asks.format(kind, "others")).stdout == "no\n"
