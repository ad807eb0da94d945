"""The image's own start, as an install records it and a boot reads it; an MPI that is on no PATH."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from entrypoint.base.errors import ConfigError, UsageError
from entrypoint.base.model import Facts, Installation
from entrypoint.cli import recognition
from entrypoint.cli import record_start as image_record
from entrypoint.plan import environment, session_env, settle, with_installed
from entrypoint.spec import load, settings_in
from entrypoint.system.image import mpi
from entrypoint.system.image import start as image_start
from entrypoint.system.image.start import ImageStart


def put(root: Path, **files: str) -> str:
    """Write files by their paths, with _ for /."""
    for name, text in files.items():
        file = root / name.replace("__", "/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        file.chmod(0o755)
    return str(root)


@pytest.mark.parametrize(
    ("entrypoint", "rest"),
    [
        (["tini", "--"], ()),
        (["/usr/bin/tini", "-g", "--", "start.sh"], ("start.sh",)),
        (["tini", "-p", "SIGTERM", "-vv", "/run.sh", "-x"], ("/run.sh", "-x")),
        (["dumb-init", "--rewrite", "15:2", "--", "/run.sh"], ("/run.sh",)),
        (["tini", "--", "dumb-init", "/run.sh"], ("/run.sh",)),
        (["/opt/nvidia/nvidia_entrypoint.sh"], ("/opt/nvidia/nvidia_entrypoint.sh",)),
        ([], ()),
    ],
)
def test_an_init_in_front_is_not_doubled(entrypoint: list[str], rest: tuple[str, ...]) -> None:
    assert image_record.without_init(entrypoint) == rest


def test_the_dockerfile_gets_an_entrypoint_that_fits() -> None:
    ours = 'ENTRYPOINT ["/usr/bin/tini", "-s", "--", "/usr/local/bin/image-entry"]'
    assert image_record.dockerfile(None) == ours
    assert image_record.dockerfile(ImageStart(("/run.sh",))) == ours
    assert image_record.dockerfile(ImageStart(("/init",), "s6-svscan")).splitlines() == [
        "ENV S6_CMD_RECEIVE_SIGNALS=1",
        'ENTRYPOINT ["/init", "/usr/local/bin/image-entry"]',
    ]


@pytest.mark.parametrize(
    ("text", "given"),
    [
        ("", None),
        ("none", ()),
        ("null", ()),
        ('["/run.sh","-q"]', ("/run.sh", "-q")),
        ('["/usr/bin/tini","-s","--","/usr/local/bin/image-entry"]', None),
    ],
)
def test_what_an_install_is_given(text: str, given: tuple[str, ...] | None) -> None:
    assert image_record.given(text) == given


@pytest.mark.parametrize("text", ["/run.sh", "{}", "[1]"])
def test_what_is_no_list_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="EP448"):
        image_record.given(text)


def test_the_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "image.json"
    monkeypatch.setattr(image_start, "RECORD", str(file))
    assert image_start.read() is None
    file.write_text('{"start": ["/run.sh", "-q"], "first": "", "folder": "/a"}')
    assert image_start.read() == ImageStart(("/run.sh", "-q"), "", "/a")
    file.write_text('{"start": ["/run.sh"], "first": ""}')
    assert image_start.read() == ImageStart(("/run.sh",))
    for text in ("", "[]", '{"start": [1], "first": ""}', "{}"):
        file.write_text(text)
        with pytest.raises(ConfigError, match="EP447"):
            image_start.read()


def test_the_variable_names_it_before_the_record(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(image_start.VARIABLE, '["/run.sh", "-q"]')
    assert image_start.read() == ImageStart(("/run.sh", "-q"))
    for text in ("[", "[1]", "/run.sh", '"/run.sh"', "{}"):
        monkeypatch.setenv(image_start.VARIABLE, text)
        with pytest.raises(ConfigError, match=f"EP447 .*{image_start.VARIABLE}"):
            image_start.read()


@pytest.mark.parametrize(
    ("env", "removed"),
    [
        ({}, None),
        ({image_start.VARIABLE: "A,B", "A": "1", "B": ""}, []),
        ({image_start.VARIABLE: "A,B", "A": "1"}, ["B"]),
        ({image_start.VARIABLE: "done"}, []),
    ],
)
def test_variables_that_a_start_removed(env: dict[str, str], removed: list[str] | None) -> None:
    assert image_start.removed(env) == removed


@pytest.mark.promise("an image's own start runs first, and its MPI starts the ranks")
def test_an_mpi_off_path_is_found(tmp_path: Path) -> None:
    """PATH first, then the folders of NVIDIA's images, of HPC-X, of Fedora's packages"""
    root = put(tmp_path, usr__lib64__openmpi__bin__mpirun="", usr__lib64__mpich__bin__x="")
    fedora = Installation(f"{root}/usr/lib64/openmpi/bin")
    assert mpi.find("/nowhere", {}, root) == {"mpirun": fedora}
    put(tmp_path, **{"opt__hpcx__ompi__bin__mpirun": "", "opt__hpcx__ucx__lib__x": "", "opt__hpcx__ompi__lib__x": ""})  # fmt: skip
    hpcx = f"{root}/opt/hpcx"
    folders = (f"{hpcx}/ucx/lib", f"{hpcx}/ompi/lib")
    moved = Installation(f"{hpcx}/ompi/bin", folders, f"{hpcx}/ompi")
    assert mpi.find("/nowhere", {}, root) == {"mpirun": moved}
    known = mpi.find("/nowhere", {"OPAL_PREFIX": "/x"}, root)
    assert known == {"mpirun": Installation(moved.folder, folders)}
    (tmp_path / "usr/local").mkdir(parents=True)
    (tmp_path / "usr/local/mpi").symlink_to(f"{hpcx}/ompi")
    place = mpi.find(f"{root}/usr/local/mpi/bin", {}, root)["mpirun"]
    assert place == Installation(f"{root}/usr/local/mpi/bin", folders, f"{hpcx}/ompi")
    put(tmp_path, bin__mpirun="")
    assert mpi.find(f"{root}/bin", {}, root) == {}


def test_its_variables_reach_the_ranks_of_its_launcher_alone() -> None:
    place = Installation("/opt/hpcx/ompi/bin", ("/opt/hpcx/ompi/lib", "/mine"), "/opt/hpcx/ompi")
    env = {"PATH": "/usr/bin", "LD_LIBRARY_PATH": "/mine"}
    facts = Facts(
        env, "a", "/work", 1000, "me", "/home/me", mpi="4.1.7", installed={"mpirun": place},
        programs={"mpirun": "/opt/hpcx/ompi/bin/mpirun"},
    )  # fmt: skip
    wanted = {
        "PATH": "/usr/bin:/opt/hpcx/ompi/bin",
        "LD_LIBRARY_PATH": "/opt/hpcx/ompi/lib:/mine",
        "OPAL_PREFIX": "/opt/hpcx/ompi",
    }
    for launcher, expected in (("mpirun", wanted), ("torchrun", {})):
        spec = load(f"launcher: {launcher}\nslots: 2\ncommand: [python, x.py]\n", "j", {}, {})
        plan = settle(spec, facts)
        found = {var.name: var.value for var in plan.env if var.origin.startswith("mpirun in ")}
        assert found == expected
    assert with_installed(facts, "mpirun") == {**env, **wanted}
    assert session_env(facts, plan.topology, "mpirun").items() >= wanted.items()
    assert session_env(facts, plan.topology).items() >= env.items()
    assert recognition.mpi(facts) == {
        "mpi": {"mpirun": {"path": "/opt/hpcx/ompi/bin/mpirun", "env": wanted}, "version": "Open MPI 4.1.7"}
    }  # fmt: skip
    assert recognition.mpi(Facts({}, "a", "/", 0, "root", "/root")) == {}


@pytest.mark.parametrize("origin", ["spec", "container"])
def test_the_users_own_prefix_wins(origin: str) -> None:
    place = Installation("/opt/hpcx/ompi/bin", (), "/opt/hpcx/ompi")
    users = {"PATH": "/opt/hpcx/ompi/bin:/x", "OPAL_PREFIX": "/mine"}
    container = users if origin == "container" else {"PATH": "/bin"}
    facts = Facts(container, "a", "/work", 1000, "me", "/home/me", installed={"mpirun": place})
    text = "launcher: mpirun\nslots: 2\ncommand: [x]\n"
    if origin == "spec":
        text += f"env: {json.dumps(users)}\n"
    plan = settle(load(text, "j", {}, {}), facts)
    assert environment(facts.env, plan.env).items() >= users.items()


def test_that_it_ran_describes_no_job() -> None:
    assert settings_in({image_start.VARIABLE: "done"}) == set()
    assert settings_in({image_start.VARIABLE: "done", "ENTRYPOINT_SLOTS": "2"}) == {
        "ENTRYPOINT_SLOTS"
    }
