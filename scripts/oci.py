"""oci.py - the toolkit's folder as files of a release: a tar for hosts, and one OCI index of images
for all architectures.

The same folder gives the same bytes: entries by name, of one time and of root.
The form of an index: https://github.com/opencontainers/image-spec, image-layout.md
"""

import gzip
import hashlib
import io
import json
import re
import tarfile
from collections.abc import Iterable, Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import IO, Any

import sbom

FOLDER = "opt/entrypoint"
_INDEX = "application/vnd.oci.image.index.v1+json"
_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
_CONFIG = "application/vnd.oci.image.config.v1+json"
_LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"


def folder_of(image: str, into: Path) -> Path:
    """Return the toolkit's folder of an image, unpacked below `into`."""
    sbom.extract(image, into, re.compile(f"{FOLDER}/.*"))
    return into / FOLDER


def pack(file: IO[bytes], folder: Path, prefix: str, epoch: int) -> None:
    """Write a gzipped tar of the folder under the name `prefix`, with the folders above it."""
    above = [str(path) for path in reversed(Path(prefix).parents)][1:]
    with (
        gzip.GzipFile("", "wb", 6, file, mtime=epoch) as zipped,
        tarfile.open(fileobj=zipped, mode="w", format=tarfile.GNU_FORMAT) as archive,
    ):
        for name in above:
            _add(archive, folder, name, epoch)
        for path in (folder, *sorted(folder.rglob("*"))):
            _add(archive, path, str(prefix / path.relative_to(folder)), epoch)


def _add(archive: tarfile.TarFile, path: Path, name: str, epoch: int) -> None:
    entry = archive.gettarinfo(path, name)
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    entry.mtime = epoch
    entry.type = tarfile.REGTYPE if entry.islnk() else entry.type
    if entry.isreg():
        entry.size = path.stat().st_size
        with path.open("rb") as content:
            archive.addfile(entry, content)
    else:
        archive.addfile(entry)


class Layout:
    """An OCI image layout, which is written as one tar. The labels of its images are annotations of
    them and of their index, too."""

    def __init__(self, name: str, epoch: int) -> None:
        self._name = name
        self._epoch = epoch
        self._labels: dict[str, str] = {}
        self._blobs: dict[str, bytes] = {}

    def _blob(self, data: bytes, media: str, **more: Any) -> dict[str, Any]:
        digest = hashlib.sha256(data).hexdigest()
        self._blobs[digest] = data
        return {"mediaType": media, "digest": f"sha256:{digest}", "size": len(data), **more}

    def _document(self, document: Mapping[str, Any], media: str, **more: Any) -> dict[str, Any]:
        return self._blob(json.dumps(document, sort_keys=True).encode(), media, **more)

    def image(self, folder: Path, architecture: str, config: Mapping[str, Any]) -> dict[str, Any]:
        """Add an image that holds the folder. Return its descriptor."""
        self._labels = config.get("Labels", {})
        layer = io.BytesIO()
        pack(layer, folder, FOLDER, self._epoch)
        plain = hashlib.sha256(gzip.decompress(layer.getvalue())).hexdigest()
        created = datetime.fromtimestamp(self._epoch, timezone.utc).isoformat()
        described = {
            "architecture": architecture,
            "os": "linux",
            "created": created,
            "config": dict(config),
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{plain}"]},
            "history": [{"created": created, "created_by": "scripts/oci.py"}],
        }
        manifest = {
            "schemaVersion": 2,
            "mediaType": _MANIFEST,
            "config": self._document(described, _CONFIG),
            "layers": [self._blob(layer.getvalue(), _LAYER)],
            "annotations": self._labels,
        }
        platform = {"os": "linux", "architecture": architecture}
        return self._document(manifest, _MANIFEST, platform=platform)

    def write(self, file: Path, images: Iterable[dict[str, Any]]) -> None:
        """Write the layout, whose index has one entry: the images of all architectures."""
        all_of_them = {
            "schemaVersion": 2,
            "mediaType": _INDEX,
            "manifests": list(images),
            "annotations": self._labels,
        }
        names = {"org.opencontainers.image.ref.name": self._name}
        entry = self._document(all_of_them, _INDEX, annotations=names)
        index = {"schemaVersion": 2, "mediaType": _INDEX, "manifests": [entry]}
        files = {"index.json": index, "oci-layout": {"imageLayoutVersion": "1.0.0"}}
        contents = {name: json.dumps(text, sort_keys=True).encode() for name, text in files.items()}
        contents |= {f"blobs/sha256/{digest}": data for digest, data in self._blobs.items()}
        with tarfile.open(file, "w", format=tarfile.GNU_FORMAT) as archive:
            for name, data in sorted(contents.items()):
                entry_of = tarfile.TarInfo(name)
                entry_of.size = len(data)
                entry_of.mtime = self._epoch
                archive.addfile(entry_of, io.BytesIO(data))
