"""What goes into the images: the toolkit's dependencies by hash, and a list of all packages."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

from tests import TREE

if sys.version_info >= (3, 11):
    import tomllib
else:
    from pip._vendor import tomli as tomllib

PROJECT = tomllib.loads((TREE / "pyproject.toml").read_text())
STEPS = TREE / "scripts/image"


def locked(name: str, python: str = "") -> dict[str, tuple[str, int]]:
    """Package -> version, and how many hashes it has; of that Python's alone, where its version is
    given."""
    text = (STEPS / f"{name}.lock").read_text().replace("\\\n", " ")
    found = {}
    script = (STEPS / "toolkit").read_text()
    removed = re.findall(r"uninstall --yes ([a-z -]+) 2>", script)[0].split()
    for line in text.splitlines():
        if line.strip() and not line.lstrip().startswith("#"):
            words = re.match(r"([a-z0-9._-]+)==(\S+)", line)
            assert words, line
            marker = Requirement(line.partition("--hash")[0]).marker
            if python and marker and not marker.evaluate({"python_full_version": python}):
                continue
            if python and words[1] in removed:
                continue
            found[words[1]] = (words[2], len(re.findall(r"--hash=sha256:[0-9a-f]{64}\b", line)))
    return found


@pytest.mark.parametrize(
    ("lock", "wanted"),
    [
        ("toolkit", PROJECT["project"]["dependencies"]),
        ("build", PROJECT["build-system"]["requires"]),
    ],
)
def test_the_lock_is_what_pyproject_asks_for(lock: str, wanted: list[str]) -> None:
    """The images' toolkit is pinned, each package by version and hashes, and that is what
    pyproject.toml asks for."""
    packages = locked(lock)
    assert all(hashes for _, hashes in packages.values())
    for line in wanted:
        requirement = Requirement(line)
        assert Version(packages[requirement.name][0]) in requirement.specifier, line


def installed(image: str) -> dict[str, str]:
    """Package -> version in the toolkit's own Python of an image; `python` is the version of that
    Python itself."""
    script = (
        "import importlib.metadata as m, platform; print('python', platform.python_version());"
        "[print(d.metadata['Name'].lower(), d.version) for d in m.distributions()]"
    )
    done = subprocess.run(
        ["docker", "run", "--rm", "--entrypoint", "/opt/entrypoint/bin/python", image, "-I", "-c", script],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return {
        name.replace("_", "-"): version
        for name, version in (line.split() for line in done.stdout.splitlines())
    }


def test_the_image_has_what_is_locked(image: str) -> None:
    """The toolkit's own Python in both images holds the locked packages in their versions, and
    nothing else."""
    seen = installed(image)
    del seen["training-entrypoint"]
    wanted = locked("toolkit", seen.pop("python"))
    assert seen == {name: version for name, (version, _) in wanted.items()}


@pytest.mark.promise(
    "the SBOM of an image has every package, each with its licenses",
    control='a misspelt document, in the first test; "not stated", in the last',
)
def test_the_sbom_is_whole(image: str) -> None:
    """scripts/sbom.py lists every Debian and Python package of the image, in CycloneDX that its own
    validator takes."""
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator

    subprocess.run(
        [sys.executable, TREE / "scripts/sbom.py", image], check=True, capture_output=True
    )
    text = (TREE / f"build/sbom/{image.replace(':', '-')}.cdx.json").read_text()
    validator = JsonStrictValidator(SchemaVersion.V1_5)
    assert validator.validate_str(text) is None
    # the control
    assert validator.validate_str(text.replace('"library"', '"libary"', 1)) is not None
    wanted = locked("toolkit", installed(image)["python"])
    parts = json.loads(text)["components"]
    names = {part["name"].lower().replace("_", "-") for part in parts}
    assert {"openssh-server", "tini", "openmpi-bin", "libc6", "python3", *wanted} - names == set()
    assert ("torch" in names) == ("gpu" in image)
    licenses = {
        part["bom-ref"]: [
            each.get("expression") or each["license"].get("id") or each["license"]["name"]
            for each in part["licenses"]
        ]
        for part in parts
    }
    assert len(licenses) == len(parts)
    assert [ref for ref, stated in licenses.items() if "not stated" in stated or not stated] == []
    in_prose = [ref for ref, stated in licenses.items() if stated[0].startswith("see ")]
    assert len(in_prose) < len(parts) / 10, in_prose


def sbom() -> ModuleType:
    spec = importlib.util.spec_from_file_location("sbom", TREE / "scripts/sbom.py")
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.promise("the SBOM of an image has every package, each with its licenses")
@pytest.mark.parametrize(
    ("text", "licenses"),
    [
        (("Format: https://...\n\nLicense: Expat\n\nFiles: debian/*\nLicense: GPL-2+ or MIT \n text\n"), "Expat|GPL-2+ or MIT"),
        ("License: Expat\nLicense: Expat\n", "Expat"),
        ("It is in `/usr/share/common-licenses/GPL-2', or in /usr/share/common-licenses/LGPL.\n", "GPL-2|LGPL"),
        ("Permission is hereby granted ...", "see its copyright file"),
        ("", "not stated"),
    ],
)  # fmt: skip
def test_licenses_of_a_package_of_debian(text: str, licenses: str) -> None:
    """By the file's fields, else by the texts that it points to."""
    assert sbom().debian_licenses(text) == licenses.split("|")


@pytest.mark.promise("the SBOM of an image has every package, each with its licenses")
def test_packages_in_the_files_of_an_image(tmp_path: Path) -> None:
    """Those of dpkg, of the toolkit's own Debian, and of each folder of a Python."""
    own, job = "opt/entrypoint/share", "usr/local/lib/python3.12/site-packages"
    files = {
        "var/lib/dpkg/status": "Package: a\nStatus: install ok installed\nArchitecture: all\n"
        "Version: 1:2\n\nPackage: gone\nStatus: deinstall ok config-files\nVersion: 1\n",
        "usr/lib/os-release": 'ID=ubuntu\nVERSION_ID="22.04"\n',
        "usr/share/doc/a/copyright": "License: MIT\n",
        f"{own}/packages.txt": "libc6 2.36\n",
        f"{own}/os-release": 'ID=debian\nVERSION_ID="12"\n',
        f"{own}/licenses/libc6": "License: LGPL-2.1\n",
        f"{job}/p-1.dist-info/METADATA": "Metadata-Version: 2.4\nName: p\nVersion: 1\n"
        "License-Expression: BSD-3-Clause\n",
        f"opt/{job}/p-1.dist-info/METADATA": "Metadata-Version: 2.1\nName: p\nVersion: 1\n",
    }
    for name, text in files.items():
        assert sbom().READ.fullmatch(name)
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    parts = sbom().of_files(tmp_path, "arm64")["components"]
    assert {part["bom-ref"]: part["licenses"][0] for part in parts} == {
        "pkg:deb/ubuntu/a@1%3A2?arch=all&distro=ubuntu-22.04": {"license": {"name": "MIT"}},
        f"pkg:deb/debian/libc6@2.36?arch=arm64&distro=debian-12#/{own}": {
            "license": {"name": "LGPL-2.1"}
        },
        f"p==1#/{job}": {"license": {"id": "BSD-3-Clause"}},
        f"p==1#/opt/{job}": {"license": {"name": "not stated"}},
    }


def test_a_base_image_is_a_digest_or_can_be_given_as_one() -> None:
    """Each base image is an argument, none is written into a FROM; all defaults but CANN's are
    digests."""
    for path in TREE.glob("Dockerfile.*"):
        text = path.read_text()
        stages = {"scratch", *re.findall(r"(?m)^FROM .* AS (\S+)$", text)}  # the first is no image
        sources = re.findall(r"(?m)^FROM (\S+)", text)
        assert sources
        for source in sources:
            assert source in stages or re.fullmatch(
                r"\$\{(BASE_IMAGE|BUILD_IMAGE|TOOLKIT|WHEELS)\}", source
            ), (path.name, source)
        defaults = re.findall(r"(?m)^ARG (?:BASE|BUILD)_IMAGE=(\S+)", text)
        tags = [
            default
            for default in defaults
            if not re.fullmatch(r"[\w./-]+:[\w.-]+@sha256:[0-9a-f]{64}", default)
        ]
        # these must be given one
        assert defaults or path.name == "Dockerfile.bake", path.name
        assert not tags or (path.name == "Dockerfile.ascend" and len(tags) == 1), (path.name, tags)
