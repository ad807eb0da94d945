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

from tests.process.test_version import BUILT_FROM

TREE = Path(__file__).parents[2]
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


@pytest.mark.promise("a release is checked offline: no byte of it can be changed unnoticed")
@pytest.mark.parametrize("how", ["added", "removed", "renamed"])
def test_a_file_too_many_or_too_few_is_noticed(made: release.Release, how: str) -> None:
    wheel = next(made.out.glob("*.whl"))
    if how == "added":
        (made.out / "more").write_text("")
    elif how == "removed":
        wheel.unlink()
    else:
        wheel.rename(wheel.with_name("other.whl"))
    done = verify(made.out, "--unsigned")
    assert done.returncode == 1
    assert f"not what {release.SUMS} lists: " in done.stderr


@pytest.mark.parametrize("label", ["1.2.4", ""])
def test_an_image_of_another_version_is_noticed(made: release.Release, label: str) -> None:
    """Though the digests are right: somebody made a release of parts that do not belong
    together."""
    layout(made.work / "other", label)
    image = made.out / f"entrypoint-toolkit-{VERSION}.oci.tar"
    release.pack(made.work / "other", image, 1_700_000_000)
    (made.out / release.PROVENANCE).unlink()
    (made.out / release.SUMS).unlink()
    made.provenance(["toolkit"], [])
    made.sums()
    done = verify(made.out, "--unsigned")
    assert done.returncode == 1
    assert f"{image.name} is of version {label}, and the release 1.2.3" in done.stderr


def test_a_key_signs_the_same_each_time(made: release.Release, tmp_path: Path) -> None:
    private, _ = key(tmp_path, "us")
    signatures = []
    for _ in range(2):
        release.sign(made.out, private)
        signatures.append((made.out / release.SIGNATURE).read_bytes())
        (made.out / release.SIGNATURE).unlink()
    assert signatures[0] == signatures[1]


def test_without_a_key_it_says_so(
    made: release.Release, capsys: pytest.CaptureFixture[str]
) -> None:
    release.sign(made.out, None)
    assert "NOT SIGNED: no key was given" in capsys.readouterr().err
    assert not (made.out / release.SIGNATURE).exists()


def test_an_archive_depends_on_names_and_contents_alone(tmp_path: Path) -> None:
    """Not on owner, mode, time or the order of creation."""
    for name, order in (("one", "abc"), ("two", "cba")):
        folder = tmp_path / name / "deep"
        folder.mkdir(parents=True)
        for letter in order:
            (folder / letter).write_text(letter)
            (folder / letter).chmod(0o600 if name == "one" else 0o664)
            os.utime(folder / letter, (1, 1 if name == "one" else 2))
        release.pack(tmp_path / name, tmp_path / f"{name}.tar", 7)
    first, second = ((tmp_path / f"{name}.tar").read_bytes() for name in ("one", "two"))
    assert first == second


def test_the_provenance_names_the_commit_and_every_file(made: release.Release) -> None:
    """As in-toto's statement and SLSA's predicate have it."""
    statement = json.loads((made.out / release.PROVENANCE).read_text())
    assert statement["_type"] == "https://in-toto.io/Statement/v1"
    assert statement["predicateType"] == "https://slsa.dev/provenance/v1"
    named = {each["name"]: each["digest"]["sha256"] for each in statement["subject"]}
    files = {file.name: file for file in made.out.iterdir()}
    del files[release.PROVENANCE], files[release.SUMS]
    assert named == {name: release.sha256(file) for name, file in files.items()}
    build = statement["predicate"]["buildDefinition"]
    assert build["resolvedDependencies"][0]["digest"] == {"gitCommit": made.commit}
    assert "builder" in statement["predicate"]["runDetails"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--key", "/nowhere"], "there is no such key | /nowhere"),
        ([], "not all is committed | ?? new"),
    ],
)
def test_what_cannot_be_released(tmp_path: Path, words: list[str], said: str) -> None:
    """Status 1, one line, and no folder that looks like a release."""
    tree = clone(tmp_path)
    if not words:
        (tree / "new").write_text("")
    argv = [sys.executable, "scripts/release.py", "--images", "", "--out", tmp_path / "out", *words]
    done = subprocess.run(argv, cwd=tree, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert said in done.stderr
    assert not (tmp_path / "out").exists()


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
