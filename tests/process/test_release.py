"""A release: the same bytes each time, and no byte of it can be changed unnoticed."""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
import subprocess
import sys
from pathlib import Path
from shlex import split
from typing import Any

import pytest

from tests import TREE
from tests.process.test_version import BUILT_FROM

VERSION = "1.2.3"
sys.path.insert(0, str(TREE / "scripts"))
try:
    import release
finally:
    sys.path.remove(str(TREE / "scripts"))


# `make test-release` runs them.
pytestmark = pytest.mark.slow


def verify(folder: Path, *words: str | Path) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, TREE / "scripts/verify.py", folder, *words]
    return subprocess.run(list(map(str, argv)), capture_output=True, text=True, check=False)


def key(folder: Path, name: str) -> tuple[Path, Path]:
    """A key, and the list of allowed signers that has it."""
    private, signers = folder / name, folder / f"{name}.signers"
    argv = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(private)]
    subprocess.run(argv, check=True)
    signers.write_text(f"{name}@example.invalid {private.with_suffix('.pub').read_text()}")
    return private, signers


def layout(folder: Path, label: str) -> None:
    """An OCI image without layers."""
    blobs = folder / "blobs/sha256"
    blobs.mkdir(parents=True)

    def blob(content: Any) -> str:
        text = json.dumps(content).encode()
        digest = hashlib.sha256(text).hexdigest()
        (blobs / digest).write_bytes(text)
        return f"sha256:{digest}"

    labels = {"org.opencontainers.image.version": label}
    manifest = blob({"config": {"digest": blob({"config": {"Labels": labels}})}, "layers": []})
    (folder / "index.json").write_text(json.dumps({"manifests": [{"digest": manifest}]}))
    (folder / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')


@pytest.fixture
def made(tmp_path: Path) -> release.Release:
    """A release of this commit, in all parts but the packages' lists, by what is installed here."""
    out, work, source = tmp_path / "out", tmp_path / "work", tmp_path / "source"
    out.mkdir()
    work.mkdir()
    skip = shutil.ignore_patterns("__pycache__")
    for name in ("entrypoint", "templates"):
        shutil.copytree(TREE / name, source / name, ignore=skip)
    (source / "scripts").mkdir()
    for name in BUILT_FROM:
        shutil.copy(TREE / name, source / name)
    argv = [sys.executable, *split("-m hatchling build -t sdist -t wheel -d"), str(out)]
    env = {**os.environ, "ENTRYPOINT_VERSION": VERSION, "SOURCE_DATE_EPOCH": "1700000000"}
    subprocess.run(argv, cwd=source, env=env, check=True, capture_output=True)
    made = release.Release(out, work)
    made.version = VERSION
    layout(work / "image", VERSION)
    release.pack(work / "image", out / f"entrypoint-toolkit-{VERSION}.oci.tar", 1_700_000_000)
    made.provenance(["toolkit"], [])
    made.sums()
    return made


@pytest.mark.promise("a release is checked offline: no byte of it can be changed unnoticed")
def test_a_changed_byte_is_noticed(made: release.Release, tmp_path: Path) -> None:
    """In any file, signature and checksums too: at the ends and at places between."""
    private, signers = key(tmp_path, "us")
    release.sign(made.out, private)
    intact = verify(made.out, "--signers", signers)
    assert (intact.returncode, intact.stdout) == (0, ""), intact.stderr
    assert "4 files are complete and unchanged; signed by us@example.invalid" in intact.stderr
    drawn = random.Random(27)
    files = sorted(made.out.iterdir())
    assert len(files) == 6
    for file in files:
        whole = file.read_bytes()
        for at in {0, len(whole) - 1, *(drawn.randrange(len(whole)) for _ in range(6))}:
            file.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
            done = verify(made.out, "--signers", signers)
            assert (done.returncode, done.stdout) == (1, ""), f"{file.name}, byte {at}"
            assert "do not use it" in done.stderr
            assert "Traceback" not in done.stderr
        file.write_bytes(whole)
    assert verify(made.out, "--signers", signers).returncode == 0
    (made.out / "more").write_text("")
    assert verify(made.out, "--signers", signers).returncode == 1, "a file too many"
    (made.out / "more").unlink()
    next(made.out.glob("*.whl")).unlink()
    assert verify(made.out, "--signers", signers).returncode == 1, "a file too few"


@pytest.mark.control("a release is checked offline: no byte of it can be changed unnoticed")
def test_a_release_is_whose_signature_it_has(made: release.Release, tmp_path: Path) -> None:
    """Nobody's, until it is said that this is enough; and not another's."""
    _, others = key(tmp_path, "others")
    assert "no signers were given" in verify(made.out).stderr
    assert verify(made.out).returncode == 1
    unsigned = verify(made.out, "--unsigned")
    assert unsigned.returncode == 0
    assert "of unknown origin" in unsigned.stderr
    assert "NOT SIGNED by anybody" in verify(made.out, "--signers", others).stderr
    private, signers = key(tmp_path, "us")
    release.sign(made.out, private)
    assert verify(made.out, "--signers", signers).returncode == 0
    assert verify(made.out, "--signers", others).returncode == 1
    assert verify(made.out, "--unsigned").returncode == 0
    signature = made.out / release.SIGNATURE
    signature.write_text(signature.read_text().replace("\n", "\r\n", 1))
    assert verify(made.out, "--unsigned").returncode == 1


def clone(tmp_path: Path) -> Path:
    """The commit that is checked out here, elsewhere."""
    tree = tmp_path / "clone"
    subprocess.run(["git", "clone", "--quiet", TREE, tree], check=True, capture_output=True)
    return tree


@pytest.mark.timeout(3600)
@pytest.mark.promise("a release made twice has the same bytes")
def test_twice_the_same_bytes(tmp_path: Path) -> None:
    """`make release` of this commit in two folders, with the images that IMAGES names."""
    private, signers = key(tmp_path, "us")
    sums = []
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
        tree = clone(tmp_path / name)
        argv = [sys.executable, "scripts/release.py", "--images", os.environ.get("IMAGES", "")]
        argv += ["--key", str(private), "--out", str(tmp_path / name / "out")]
        sums.append(subprocess.run(argv, cwd=tree, stdout=subprocess.PIPE, check=True).stdout)
    assert sums[0] == sums[1]
    one, other = tmp_path / "one/out", tmp_path / "other/out"
    signatures = [(folder / release.SIGNATURE).read_bytes() for folder in (one, other)]
    assert signatures[0] == signatures[1]
    done = verify(other, "--signers", signers)
    assert done.returncode == 0, done.stderr
    (listed,) = one.glob("*.whl.cdx.json")
    check_list(json.loads(listed.read_text()))
    wheel = next(one.glob("*.whl"))
    wheel.write_bytes(wheel.read_bytes()[:-1] + b"?")
    assert verify(one, "--signers", signers).returncode == 1


def check_list(document: dict[str, Any]) -> None:
    """The list of a wheel is CycloneDX, and has what the toolkit needs, each with a licence."""
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator

    assert JsonStrictValidator(SchemaVersion.V1_5).validate_str(json.dumps(document)) is None
    parts = {part["name"].lower(): part["licenses"] for part in document["components"]}
    assert {"training-entrypoint", "jinja2", "pyyaml", "paramiko", "greenlet"} <= {*parts}
    assert all(licenses for licenses in parts.values())
    assert not {"pip", "setuptools"} & {*parts}


@pytest.mark.control("a release made twice has the same bytes")
def test_another_time_is_another_archive(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder/file").write_text("")
    for time in (7, 8):
        release.pack(tmp_path / "folder", tmp_path / f"{time}.tar", time)
    assert (tmp_path / "7.tar").read_bytes() != (tmp_path / "8.tar").read_bytes()
