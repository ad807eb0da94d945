"""Point 8: what the image is made of."""

from __future__ import annotations

import re
import shutil
import subprocess
import uuid
from pathlib import Path

import pytest

from tests import TREE
from tests.containers import engine
from tests.image.boxes import said, sh

MOST = 60_000_000  # bytes that the toolkit may add
# Layers that are the operating system's or the job's packages, by the script of scripts/image that
# makes them.
PACKAGES = ("image/system", "image/job", "/run/out/*.whl")
LOOK = "cd /opt/entrypoint && find . -type f -exec sha256sum {} + | sort -k2"


def version() -> str:
    """Return the version of the tree, which the images were built from."""
    return subprocess.run(
        [TREE / "scripts/version.py"], capture_output=True, text=True, check=True
    ).stdout.strip()


def ours(history: list[tuple[int, str]]) -> int:
    """Bytes of the layers that are neither the base's nor its packages', newest layer first."""
    made = [by for _, by in history]
    # older ones are the base's
    first = max(number for number, by in enumerate(made) if "image/system" in by)
    return sum(size for size, by in history[:first] if not any(word in by for word in PACKAGES))


def history(image: str) -> list[tuple[int, str]]:
    return [(row["Size"], row["CreatedBy"]) for row in engine().images.get(image).history()]


def test_labels(image: str) -> None:
    """8.2 OCI labels: title, description, licenses, vendor, created, version, revision, base"""
    labels = engine().images.get(image).attrs["Config"]["Labels"]
    short = {
        name.removeprefix("org.opencontainers.image."): value for name, value in labels.items()
    }
    always = "title description licenses vendor created version revision base.name"
    assert {*always.split()} <= short.keys()
    assert all(short.values()), short
    assert short["licenses"] == "Apache-2.0"
    assert short["version"] == version()
    assert re.fullmatch(r"[0-9a-f]{40}", short["revision"])


def test_the_toolkit_is_small(image: str) -> None:
    """8.3 the toolkit's layers add at most 60 MB to the base and its packages"""
    layers = history(image)
    assert ours(layers) <= MOST
    # the control: the layers of the toolkit are among those counted
    assert ours(layers) > 20_000_000
    assert (
        ours(
            [
                (1, "LABEL"),
                (MOST, "COPY /opt"),
                (9, "RUN /run/image/job"),
                (7, "RUN /run/image/system"),
                (5, ""),
            ]
        )
        > MOST
    )


def test_both_images_have_the_same_toolkit(image: str) -> None:
    """8.4 the version that is in the image is the one it says, and that of the source's git tag"""
    assert said(image, "--version") == f"entrypoint {version()}\n"


@pytest.mark.timeout(600)
def test_the_same_inputs_give_the_same_toolkit(image: str, tmp_path: Path) -> None:
    """8.5 the toolkit built twice from the same inputs, without cache, is the same to the byte"""
    kind = "gpu" if "gpu" in image else "ascend"
    # A copy: somebody may be at work in the tree.
    for name in (f"Dockerfile.{kind}", "pyproject.toml", "README.md", "LICENSE", ".dockerignore"):
        shutil.copy(TREE / name, tmp_path)
    for name in ("entrypoint", "templates", "scripts"):
        shutil.copytree(TREE / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    folders = []
    for _ in range(2):
        tag = f"im{uuid.uuid4().hex[:8]}"
        argv = [
            "docker", "build", "--quiet", "--no-cache", "--target", "toolkit", "--tag", tag,
            "--file", str(tmp_path / f"Dockerfile.{kind}"),
            "--build-arg", "BASE_IMAGE=entrypoint-base:bookworm", "--build-arg", "WHEELS=entrypoint-wheels:py3.11",
            str(tmp_path),
        ]  # fmt: skip
        subprocess.run(
            argv,
            check=True,
            capture_output=True,
            env={"DOCKER_BUILDKIT": "1", "PATH": "/usr/bin:/bin"},
        )
        try:
            folders.append(sh(tag, LOOK).splitlines())
        finally:
            engine().images.remove(tag)
    assert len(folders[0]) > 500
    assert folders[0] == folders[1]
