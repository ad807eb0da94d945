"""What scripts/dev/setup-kubernetes does with a folder of a cluster's programs, by stand-ins for these
and for the container engine."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests import TREE
from tests.process.bench import executable

PROGRAMS = {"jobset": "jobset", "mpijob": "mpi-operator"}  # of operators -> their process
BINARIES = ("kube-apiserver", "kubectl")
KUBECTL = """\
[ "$1" = get ] && exec test -e "$KUBE_RUN/conf/admin.kubeconfig"
[ "$1" = wait ] && seq "$(cat "$KUBE_RUN/nodes")"
"""
DOCKER = """\
case "$1 $2" in
  "image inspect") cat "$PLACE/id" ;;
  save*) echo "save $2" >>"$PLACE/calls" ;;
esac
"""
CTR = """\
case "$5 $6" in
  "images ls") grep -sF "${8#*==}" "$2.loaded" ;;
  "images import") echo "import ${2##*/}" >>"$PLACE/calls" ;;
  "images tag") echo "$9" >>"$2.loaded" ;;
esac
"""
SCRIPTS = {
    "unpack.sh": 'echo "${KUBE_BIN:-$(dirname "$0")/bin}"',
    "up.sh": (
        'mkdir -p "$KUBE_RUN/conf" "$KUBE_RUN/pids"; touch "$KUBE_RUN/conf/admin.kubeconfig"\n'
        'echo "$1" >"$KUBE_RUN/nodes"; echo $PID >"$KUBE_RUN/pids/kubelet1"\n'
        'touch "$KUBE_RUN/c1.sock" "$KUBE_RUN/c2.sock"; echo up >>"$PLACE/calls"'
    ),
    "operators.sh": (
        'case $1 in mpijob) name=mpi-operator ;; *) name=$1 ;; esac\n'
        'echo $PID >"$KUBE_RUN/pids/$name"; echo "operator $1" >>"$PLACE/calls"'
    ),
    "down.sh": 'rm -rf "$KUBE_RUN"; echo down >>"$PLACE/calls"',
}  # fmt: skip
STARTED = {"up", "operator jobset", "operator mpijob"}
IMPORTED = {f"save entrypoint-{image}" for image in ("toolkit:dev", "base:bookworm")}
IMPORTED |= {"import c1.sock", "import c2.sock"}
LOADED = {"save some:dev"} | IMPORTED


class Checkout:
    """A checkout that has the script alone, beside `shared`."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.tree = place / "tree"
        (self.tree / "scripts/dev").mkdir(parents=True)
        for name in ("common", "setup-kubernetes"):
            shutil.copy(TREE / "scripts/dev" / name, self.tree / "scripts/dev")
        executable(self.tree / "scripts/build-image", f"echo build $1 >>{place}/calls")
        (place / "bin").mkdir()
        for name, text in {"docker": DOCKER, "ctr": CTR, "id": "echo 0"}.items():
            executable(place / "bin" / name, text)
        (place / "id").write_text("sha256:" + "a1" * 32)

    def kit(self, folder: Path, scripts: bool = True) -> Path:
        """Make a folder as ../shared/kubernetes is, or one of release binaries."""
        binaries = folder / "bin" if scripts else folder
        binaries.mkdir(parents=True)
        for name in (*BINARIES, *PROGRAMS.values()):
            executable(binaries / name, KUBECTL if name == "kubectl" else "")
        for name, text in SCRIPTS.items() if scripts else ():
            executable(folder / name, text)
        return folder

    def run(self, *words: str, folder: Path | None = None) -> subprocess.CompletedProcess[str]:
        env = {
            "PATH": f"{self.place}/bin:/usr/bin:/bin", "HOME": str(self.place),
            "ENTRYPOINT_CACHE": f"{self.place}/cache", "KUBE_RUN": f"{self.place}/run",
            "PLACE": str(self.place), "PID": str(os.getpid()),
            **({"KUBERNETES": str(folder)} if folder else {}),
        }  # fmt: skip
        script = self.tree / "scripts/dev/setup-kubernetes"
        return subprocess.run(
            [script, *words], env=env, capture_output=True, text=True, check=False
        )

    def calls(self) -> set[str]:
        """Return what was called since the last look."""
        file = self.place / "calls"
        found = set(file.read_text().splitlines()) if file.exists() else set()
        file.unlink(missing_ok=True)
        return found


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return Checkout(tmp_path)


@pytest.fixture
def ready(checkout: Checkout) -> Checkout:
    """A checkout whose cluster runs, with the image."""
    checkout.kit(checkout.place / "shared/kubernetes")
    done = checkout.run("some:dev")
    assert done.returncode == 0, done.stderr
    assert checkout.calls() == STARTED | LOADED
    return checkout


def test_where_there_is_nothing_it_says_so_and_prints_no_folder(checkout: Checkout) -> None:
    done = checkout.run()
    assert (done.returncode, done.stdout) == (0, "")
    assert "no Kubernetes here | neither KUBERNETES nor ../shared/kubernetes" in done.stderr
    assert checkout.calls() == set(), "no image is built for it"


@pytest.mark.promise("a cluster that is ready is left alone", control="what has changed, below")
def test_what_is_ready_is_left_alone(ready: Checkout) -> None:
    done = ready.run("some:dev")
    folder = ready.tree / "build/kubernetes"
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{folder}\n", "")
    assert ready.calls() == set()
    assert (folder / "image").read_text() == "some:a1a1a1a1a1a1\n"


def test_an_image_is_loaded_again_when_its_id_has_changed(ready: Checkout) -> None:
    (ready.place / "id").write_text("sha256:" + "b2" * 32)
    assert ready.run("some:dev").returncode == 0
    assert ready.calls() == LOADED
    assert (ready.tree / "build/kubernetes/image").read_text() == "some:b2b2b2b2b2b2\n"


def test_a_cluster_of_which_a_process_is_gone_is_started_again(ready: Checkout) -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    (ready.place / "run/pids/kubelet1").write_text(f"{gone.pid}\n")
    assert ready.run("some:dev").returncode == 0
    assert ready.calls() == {"down"} | STARTED | LOADED


def test_another_folder_s_cluster_is_started_again(ready: Checkout) -> None:
    other = ready.kit(ready.place / "other")
    assert ready.run("some:dev", folder=other).returncode == 0
    assert ready.calls() == {"down"} | STARTED | LOADED


def test_down_removes_it(ready: Checkout) -> None:
    assert ready.run("--down").returncode == 0
    assert ready.calls() == {"down"}
    assert not (ready.place / "run").exists()
    assert not (ready.tree / "build/kubernetes").exists()


def test_without_an_image_the_tests_own_is_built(ready: Checkout) -> None:
    assert ready.run().returncode == 0
    assert "build mpi" in ready.calls()


def test_a_folder_of_release_binaries_takes_its_scripts_from_beside(checkout: Checkout) -> None:
    binaries = checkout.kit(checkout.place / "release", scripts=False)
    alone = checkout.run("some:dev", folder=binaries)
    assert alone.returncode == 1
    assert "has binaries alone, and there are no scripts" in alone.stderr
    checkout.kit(checkout.place / "shared/kubernetes")
    done = checkout.run("some:dev", folder=binaries)
    assert done.returncode == 0, done.stderr
    assert checkout.calls() == STARTED | LOADED
    kubectl = (checkout.tree / "build/kubernetes/bin/kubectl").read_text()
    programs = Path(kubectl.rpartition('exec "')[2].partition('/kubectl"')[0])
    assert (programs / "kubectl").resolve() == binaries / "kubectl"


@pytest.mark.parametrize(
    ("folder", "says"),
    [("none", "which is no folder"), ("bin", "has neither up.sh nor kube-apiserver")],
)
def test_a_folder_that_is_none(folder: str, says: str, checkout: Checkout) -> None:
    done = checkout.run(folder=checkout.place / folder)
    assert (done.returncode, done.stdout) == (1, "")
    assert says in done.stderr


def test_other_words_are_refused(checkout: Checkout) -> None:
    assert checkout.run("--up").returncode == 64
