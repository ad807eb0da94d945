"""A release: the same bytes each time, and no byte of it can be changed unnoticed."""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests import TREE

sys.path.insert(0, str(TREE / "scripts"))
try:
    import release
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
    private, signers = folder / name, folder / f"{name}.signers"
    argv = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(private)]
    subprocess.run(argv, check=True)
    signers.write_text(f"{name}@example.invalid {private.with_suffix('.pub').read_text()}")
    return private, signers


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
    """They stand alone. A version has to have a section with a date; a commit between two has what
    comes first."""
    assert release.notes(CHANGELOG, "1.2.3") == (
        "# training-entrypoint 1.2.3\n\n- One.\n\n### Removed\n\n- Two.\n"
    )
    assert release.notes(CHANGELOG, "1.2.4.dev1+g0123456789") == (
        "# training-entrypoint 1.2.4.dev1+g0123456789\n\n"
        "More (how: docs/more.md#so, [form](https://example.invalid/)).\n"
    )
    for name in ("1.2.2", "1.2.4"):
        with pytest.raises(LookupError, match=re.escape(f"`## [{name}] - YYYY-MM-DD`")):
            release.notes(CHANGELOG, name)


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
    signatures = [(folder / "SHA256SUMS.sig").read_bytes() for folder in (one, other)]
    assert signatures[0] == signatures[1]
    assert is_checked(other, signers)
    (listed,) = one.glob("*.whl.cdx.json")
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
def test_another_time_is_another_archive(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder/file").write_text("")
    for time in (7, 8):
        release.pack(tmp_path / "folder", tmp_path / f"{time}.tar", time)
    assert (tmp_path / "7.tar").read_bytes() != (tmp_path / "8.tar").read_bytes()
