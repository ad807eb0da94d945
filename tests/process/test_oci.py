"""The toolkit's folder as a tar and as an OCI index: the same bytes each time, and what an image of
it needs."""

from __future__ import annotations

import hashlib
import io
import json
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest

from tests import TREE
from tests.command import captured

sys.path.insert(0, str(TREE / "scripts"))
import oci

TIME = 1_700_000_000


def folder(place: Path) -> Path:
    (place / "bin").mkdir(parents=True)
    (place / "bin/launcher").write_text("program")
    (place / "bin/launcher").chmod(0o755)
    (place / "bin/sshd").symlink_to("launcher")
    return place


def layout(file: Path, *folders: Path) -> dict[str, bytes]:
    """The files of a layout with an image for each folder."""
    made = oci.Layout("1.2", TIME)
    config = {"Entrypoint": ["/opt/entrypoint/bin/entrypoint"]}
    each = zip(folders, ("amd64", "arm64"), strict=False)
    made.write(file, [made.image(folder, name, config) for folder, name in each])
    unpacked = file.with_suffix(".files")
    with tarfile.open(file) as archive:
        archive.extractall(unpacked, filter="data")
        return {name: (unpacked / name).read_bytes() for name in archive.getnames()}


def test_a_layout_has_an_image_for_each_architecture(tmp_path: Path) -> None:
    files = layout(tmp_path / "a.tar", folder(tmp_path / "one"), folder(tmp_path / "two"))
    for name in files.keys() - {"index.json", "oci-layout"}:
        assert name == f"blobs/sha256/{hashlib.sha256(files[name]).hexdigest()}"

    def blob(entry: dict[str, Any]) -> bytes:
        data = files[f"blobs/sha256/{entry['digest'].removeprefix('sha256:')}"]
        assert len(data) == entry["size"]
        return data

    (index,) = json.loads(files["index.json"])["manifests"]
    manifests = json.loads(blob(index))["manifests"]
    assert [entry["platform"]["architecture"] for entry in manifests] == ["amd64", "arm64"]
    for entry in manifests:
        manifest = json.loads(blob(entry))
        config = json.loads(blob(manifest["config"]))
        assert config["architecture"] == entry["platform"]["architecture"]
        assert config["config"]["Entrypoint"] == ["/opt/entrypoint/bin/entrypoint"]
        (layer,) = manifest["layers"]
        with tarfile.open(fileobj=io.BytesIO(blob(layer))) as archive:
            names = archive.getnames()
            owners = {(entry.uid, entry.mtime) for entry in archive}
        assert names == [
            "opt",
            "opt/entrypoint",
            *(f"opt/entrypoint/bin{at}" for at in ("", "/launcher", "/sshd")),
        ]
        assert owners == {(0, TIME)}


def test_the_same_folder_gives_the_same_bytes(tmp_path: Path) -> None:
    for name in ("one", "two"):
        layout(tmp_path / f"{name}.tar", folder(tmp_path / name / "entrypoint"))
        with (tmp_path / f"{name}.gz").open("wb") as file:
            oci.pack(file, tmp_path / name / "entrypoint", "entrypoint", TIME)
    for end in ("tar", "gz"):
        first, second = ((tmp_path / f"{name}.{end}").read_bytes() for name in ("one", "two"))
        assert first == second
    (tmp_path / "two/entrypoint/bin/launcher").chmod(0o700)
    assert layout(tmp_path / "other.tar", tmp_path / "two/entrypoint")
    assert (tmp_path / "other.tar").read_bytes() != (tmp_path / "one.tar").read_bytes()


def test_skopeo_reads_the_index(tmp_path: Path) -> None:
    """an image for each architecture, with its labels, and what copies all of them"""
    if not captured(["sh", "-c", "command -v skopeo"]).stdout:
        pytest.skip("there is no skopeo here: scripts/test all conventions")
    labels = {"org.opencontainers.image.source": "https://git.example.org/team/entrypoint"}
    made = oci.Layout("1.2", TIME)
    config = {"Entrypoint": ["/opt/entrypoint/bin/entrypoint"], "Labels": labels}
    kinds = ("amd64", "arm64")
    images = [made.image(folder(tmp_path / kind), kind, config) for kind in kinds]
    made.write(tmp_path / "index.tar", images)
    source = f"oci-archive:{tmp_path}/index.tar"

    def skopeo(*words: str) -> str:
        return captured(["skopeo", "--insecure-policy", *words], check=True).stdout

    index = json.loads(skopeo("inspect", "--raw", source))
    assert index["annotations"] == labels
    for kind, image in zip(kinds, images, strict=True):
        seen = json.loads(skopeo("--override-arch", kind, "inspect", source))
        assert (seen["Architecture"], seen["Labels"]) == (kind, labels)
        assert image in index["manifests"]
    skopeo("copy", "--all", "--quiet", source, f"oci:{tmp_path}/copy:1.2")
    assert json.loads(skopeo("inspect", "--raw", f"oci:{tmp_path}/copy:1.2")) == index
