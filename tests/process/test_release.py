"""A release: the same bytes each time, and no byte of it can be changed unnoticed.

`make verify` runs those tests of the artefacts, with RELEASE, the folder, and KEY, which signed it.
"""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
import sys
import tarfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from entrypoint.cli.schema import schema
from tests import TREE
from tests.command import captured
from tests.containers import docker, engine
from tests.image.boxes import run

sys.path.insert(0, str(TREE / "scripts"))
try:
    import release
    import version
finally:
    sys.path.remove(str(TREE / "scripts"))


# `make test-release` runs them.
pytestmark = pytest.mark.slow


def is_checked(folder: Path, signers: Path) -> bool:
    """Whether the two commands of docs/how-to/upgrade.md accept a release."""
    page = (TREE / "docs/how-to/upgrade.md").read_text().partition("\n## Check a release\n")[2]
    shown = re.findall(r"(?m)^\$ (.+)$", page.partition("\n## ")[0])
    name = signers.read_text().split()[0]
    commands = [
        line.replace("-f signers", f"-f '{signers}'").replace("NAME", name) for line in shown
    ]
    assert len(commands) == 2
    argv = ["sh", "-c", " && ".join(commands)]
    return subprocess.run(argv, cwd=folder, capture_output=True, check=False).returncode == 0


def key(folder: Path, name: str) -> tuple[Path, Path]:
    """A key, and the list of allowed signers that has it."""
    private = folder / name
    argv = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(private)]
    subprocess.run(argv, check=True)
    return private, signers_of(private, folder)


def signers_of(private: Path, folder: Path) -> Path:
    """The list of allowed signers that has a key."""
    signers = folder / f"{private.name}.signers"
    signers.write_text(f"{private.name}@example.invalid {Path(f'{private}.pub').read_text()}")
    return signers


@pytest.fixture
def made(tmp_path: Path) -> Path:
    """The files of a release, which is not sealed yet."""
    out = tmp_path / "out"
    out.mkdir()
    (out / "toolkit-1.2.3-py3-none-any.whl").write_bytes(random.Random(27).randbytes(5000))
    (out / "entrypoint").write_text("#!/bin/sh\n")
    release.write(out / "provenance.json", release.provenance(out, "1.2.3", 1_700_000_000, []))
    return out


@pytest.mark.promise("a release is checked offline: no byte of it can be changed unnoticed")
def test_a_changed_byte_is_noticed(made: Path, tmp_path: Path) -> None:
    """In any file, signature and checksums too: at the ends and at places between."""
    private, signers = key(tmp_path, "us")
    release.seal(made, private)
    assert is_checked(made, signers)
    drawn = random.Random(27)
    files = sorted(made.iterdir())
    assert len(files) == 5
    for file in files:
        whole = file.read_bytes()
        # ssh-keygen reads a signature with other white space, too
        places = [at for at, byte in enumerate(whole) if file.suffix != ".sig" or byte != 10]
        for at in {places[0], places[-1], *drawn.sample(places, 6)}:
            file.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
            assert not is_checked(made, signers), f"{file.name}, byte {at}"
        file.write_bytes(whole)
    assert is_checked(made, signers)
    next(made.glob("*.whl")).unlink()
    assert not is_checked(made, signers), "a file too few"


@pytest.mark.control("a release is checked offline: no byte of it can be changed unnoticed")
def test_a_release_is_whose_signature_it_has(made: Path, tmp_path: Path) -> None:
    """Nobody's without one, and not another's."""
    private, signers = key(tmp_path, "us")
    _, others = key(tmp_path, "others")
    release.seal(made, None)
    assert not is_checked(made, signers)
    (made / "SHA256SUMS").unlink()
    release.seal(made, private)
    assert is_checked(made, signers)
    assert not is_checked(made, others)


CHANGELOG = """# Changelog

## [Unreleased]

More ([how](docs/more.md#so), [form](https://example.invalid/)).

## [1.2.3] - 2026-01-31

- One.

### Removed

- Two.

## [1.2.2] - unreleased

- Three.
"""


def test_the_notes_are_the_section_of_the_version() -> None:
    """They stand alone, with what each file is. A version has to have a section with a date; a
    commit between two has what comes first."""
    notes = release.notes(CHANGELOG, "1.2.3")
    text, _, files = notes.partition("\n\n### Check a release\n")
    assert text == "# training-entrypoint 1.2.3\n\n- One.\n\n### Removed\n\n- Two."
    assert "$ sha256sum --check" in files
    assert "](" not in files
    assert files.endswith("source archive.\n")
    assert release.notes(CHANGELOG, "1.2.4.dev1+g0123456789").startswith(
        "# training-entrypoint 1.2.4.dev1+g0123456789\n\n"
        "More (how: docs/more.md#so, [form](https://example.invalid/)).\n\n### Check"
    )
    for name in ("1.2.2", "1.2.4"):
        with pytest.raises(LookupError, match=re.escape(f"`## [{name}] - YYYY-MM-DD`")):
            release.notes(CHANGELOG, name)


def made_release(folder: Path, private: Path) -> Path:
    """`make release` of this commit in a clone, with the images that IMAGES names."""
    tree, out = folder / "clone", folder / "out"
    subprocess.run(["git", "clone", "--quiet", TREE, tree], check=True, capture_output=True)
    argv = [sys.executable, "scripts/release.py", "--images", os.environ.get("IMAGES", "")]
    argv += ["--key", str(private), "--out", str(out)]
    subprocess.run(argv, cwd=tree, stdout=subprocess.DEVNULL, check=True)
    return out


@pytest.fixture(scope="module")
def private(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The key of a release: KEY, else a new one."""
    given = os.environ.get("KEY")
    return Path(given) if given else key(tmp_path_factory.mktemp("key"), "us")[0]


@pytest.fixture(scope="module")
def artefacts(private: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The release that RELEASE names, else one that is made here."""
    given = os.environ.get("RELEASE")
    return Path(given) if given else made_release(tmp_path_factory.mktemp("one"), private)


@pytest.mark.timeout(3600)
@pytest.mark.promise("a release made twice has the same bytes")
def test_twice_the_same_bytes(artefacts: Path, private: Path, tmp_path: Path) -> None:
    """in two folders, with the same signature"""
    other = made_release(tmp_path, private)
    sums = [
        (folder / name).read_bytes()
        for name in ("SHA256SUMS", "SHA256SUMS.sig")
        for folder in (artefacts, other)
    ]
    assert sums[0] == sums[1]
    assert sums[2] == sums[3]
    assert is_checked(other, signers_of(private, tmp_path))
    (listed,) = artefacts.glob("*.whl.cdx.json")
    check_list(json.loads(listed.read_text()))


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
def test_another_time_is_another_release(made: Path) -> None:
    """the time of the commit is in it"""
    before = (made / "provenance.json").read_bytes()
    (made / "provenance.json").unlink()
    for time, same in ((1_700_000_000, True), (1_700_000_001, False)):
        release.write(made / "later.json", release.provenance(made, "1.2.3", time, []))
        assert ((made / "later.json").read_bytes() == before) == same
        (made / "later.json").unlink()


def test_artefacts_are_all_there_and_no_other(artefacts: Path) -> None:
    """each file has the digest that SHA256SUMS and provenance.json list, and no file is missing or
    extra"""
    names = sorted({path.name for path in artefacts.iterdir()} - {"SHA256SUMS", "SHA256SUMS.sig"})
    actual = release.run("sha256sum", "--", *names, cwd=artefacts).splitlines()
    listed = (artefacts / "SHA256SUMS").read_text().splitlines()
    wrong = sorted({line[66:] for line in {*listed} ^ {*actual}})
    assert not wrong, f"missing, altered or extra: {', '.join(wrong)}"
    assert listed == actual
    names.remove("provenance.json")
    told = json.loads((artefacts / "provenance.json").read_text())
    assert told["subject"] == release.digests(artefacts, names)


def test_artefacts_are_signed(artefacts: Path, private: Path, tmp_path: Path) -> None:
    """with KEY, or with any key if none is given"""
    if os.environ.get("KEY") or "RELEASE" not in os.environ:
        assert is_checked(artefacts, signers_of(private, tmp_path))
    elif not (artefacts / "SHA256SUMS.sig").exists():
        pytest.skip("NOT SIGNED: nobody can tell whose release it is")
    else:
        words = f"-Y check-novalidate -n {release.NAMESPACE} -s SHA256SUMS.sig <SHA256SUMS"
        release.run("sh", "-c", f"ssh-keygen {words}", cwd=artefacts)


def test_artefacts_are_of_this_commit(artefacts: Path) -> None:
    """provenance, names of files, and lists of packages, of which wheel and images have one each"""
    name, told = version.version(TREE), json.loads((artefacts / "provenance.json").read_text())
    built = told["predicate"]["buildDefinition"]
    assert built["externalParameters"]["version"] == name
    commit = release.run("git", "rev-parse", "HEAD")
    assert built["resolvedDependencies"][0]["digest"] == {"gitCommit": commit}
    kinds = {*built["externalParameters"]["images"]}
    images = [f"entrypoint-{kind}-{name}" for kind in kinds - {"folder"}]
    folders = [
        f"entrypoint-folder-{name}-{each}" for each in ("amd64", "arm64") if "folder" in kinds
    ]
    wheel = f"training_entrypoint-{name}-py3-none-any.whl"
    listed = {path.name: json.loads(path.read_text()) for path in artefacts.glob("*.cdx.json")}
    assert {*listed} == {f"{stem}.cdx.json" for stem in (wheel, *images, *folders)}
    versions = {each["metadata"]["component"]["version"] for each in listed.values()}
    assert {each.replace("+", "-") for each in versions} == {name.replace("+", "-")}
    archives = {path.name for path in artefacts.glob("*.image.tar.gz")}
    assert archives == {f"{stem}.image.tar.gz" for stem in images}
    assert [path.name for path in artefacts.glob("*.whl")] == [wheel]
    assert json.loads((artefacts / "job.schema.json").read_text()) == schema()
    with tarfile.open(artefacts / f"training_entrypoint-{name}.tar.gz") as source:
        members = {member.partition("/")[2] for member in source.getnames()}
    paths = set(re.findall(r"[\w./-]+\.md\b", (artefacts / "notes.md").read_text()))
    assert len(paths) > 9
    assert paths - {"notes.md"} <= members


@pytest.fixture
def base() -> Iterator[str]:
    """A Debian 12 with what docs/how-to/adopt-and-remove.md asks for, and the packages that the
    wheel needs."""
    for script in ("dev/base-image", "dev/wheelhouse"):
        captured([TREE / "scripts" / script], check=True)
    with built(
        "FROM entrypoint-base:bookworm\n"
        "RUN apt-get update -qq && apt-get install -y -qq --no-install-recommends"
        " python3-venv openssh-server openssh-client openmpi-bin libnss-wrapper >/dev/null\n"
        "COPY --from=entrypoint-wheels:py3.11 /toolkit /wheels\n"
    ) as image:
        yield image


@contextmanager
def built(dockerfile: str, *options: str) -> Iterator[str]:
    """An image, which is removed at the end."""
    image = f"release-{uuid.uuid4().hex[:8]}"
    argv = ["docker", "build", "--quiet", *options, "--tag", image, "-"]
    subprocess.run(argv, input=dockerfile, text=True, check=True, stdout=subprocess.DEVNULL)
    try:
        yield image
    finally:
        docker("rmi", "--force", image)


@pytest.mark.timeout(1800)
def test_artefacts_boot_a_job_without_a_network(artefacts: Path, base: str) -> None:
    """the wheel is installed, and a job of two nodes started, by the commands of
    docs/how-to/adopt-and-remove.md; the toolkit's image is added to another by two lines"""
    page = (TREE / "docs/how-to/adopt-and-remove.md").read_text()
    (block,) = re.findall(r"(?ms)^```sh\n(python3 -m venv .*?)^```$", page)
    there = f"cd $(mktemp -d)\nln -s /release/* /wheels .\n{block}\nPATH=$PWD/env/bin:$PATH"
    boots(base, there, f"--volume={artefacts.resolve()}:/release:ro")
    job = block.splitlines()[-1].replace("env/bin/", "")
    for archive in sorted(artefacts.glob("*.image.tar.gz")):
        kind = archive.name.split("-")[1]
        image = docker("load", "--input", str(archive), timeout=600).split()[-1]
        assert image.startswith(f"entrypoint-{kind}:")
        stated = engine().images.get(image).attrs["Config"]
        assert bool(stated.get("Healthcheck")) == (kind != "toolkit")
        try:
            if kind == "toolkit":
                lines = f"COPY --from={image} /opt/entrypoint /opt/entrypoint\nRUN /opt/entrypoint/install"
                with built(f"FROM {base}\n{lines}\n", "--network=none") as added:
                    boots(added, job)
            else:
                boots(image, job)
        finally:
            docker("rmi", "--force", image)


def boots(image: str, job: str, *options: str) -> None:
    """In a container without a network, a job of two nodes ends well, and the version is that of
    this commit."""
    options = ("--network=none", "--entrypoint=sh", *options)
    done = run(image, "-euc", f"{job}\nentrypoint --version", options=options, timeout=600)
    last = done.out.splitlines()[-3:]
    assert (done.status, last) == (0, ["1", "1", f"entrypoint {version.version(TREE)}"]), done


@pytest.mark.control("a release is checked offline: no byte of it can be changed unnoticed")
@pytest.mark.parametrize("wrong", ["nothing", "altered", "missing", "extra"])
def test_make_verify_fails_on_what_was_changed(wrong: str, made: Path) -> None:
    """one byte, one file fewer, one more; the control: nothing"""
    release.seal(made, None)
    wheel = next(made.glob("*.whl"))
    if wrong == "altered":
        wheel.write_bytes(wheel.read_bytes()[:-1] + b"x")
    elif wrong == "missing":
        wheel.unlink()
    elif wrong == "extra":
        (made / "more").write_text("")
    argv = [sys.executable, "-m", "pytest", "-m", "", "-q", "-k", "artefacts and there", __file__]
    done = captured(argv, cwd=TREE, env={**os.environ, "RELEASE": str(made)})
    assert done.returncode == (wrong != "nothing"), done.stdout
