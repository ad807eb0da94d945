#!/usr/bin/env python3
"""sbom.py IMAGE... - list the packages of images as CycloneDX 1.5 JSON: build/sbom/NAME.cdx.json
for each.

cyclonedx-py lists the packages of each Python. Packages of Debian, those of the image and those
whose files the toolkit brings along, are added to its list. The image's files are read, and nothing
in it is run. The same image gives the same file.
"""

import json
import os
import re
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

TREE = Path(__file__).resolve().parent.parent
OWN = "opt/entrypoint/share"  # of what the toolkit's folder brings along, in images that have it
READ = re.compile(
    r"var/lib/dpkg/status|usr/lib/os-release|usr/share/doc/[^/]+(/copyright)?"
    rf"|{OWN}/(os-release|packages\.txt|licenses/[^/]+)"
    r"|.*/(site|dist)-packages/[^/]+\.(dist|egg)-info(/.*)?"
)
Part = dict[str, Any]


def python_packages(interpreter: Path, **env: str) -> Part:
    """Return cyclonedx-py's document of the packages that a Python has."""
    options = ("--output-reproducible", "--spec-version", "1.5")
    argv = [sys.executable, "-m", "cyclonedx_py", "environment", *options, str(interpreter)]
    done = subprocess.run(argv, env=os.environ | env, stdout=subprocess.PIPE, check=True)
    document: Part = json.loads(done.stdout)
    for part in document.get("components", ()):
        part.setdefault("licenses", [{"license": {"name": "not stated"}}])
    return document


def describe(document: Part, kind: str, name: str, version: str, sha256: str) -> Part:
    """Add to a document what it is about."""
    hashes = [{"alg": "SHA-256", "content": sha256}]
    subject = {"type": kind, "bom-ref": name, "name": name, "version": version, "hashes": hashes}
    document["metadata"]["component"] = subject
    return document


def of_image(image: str) -> Part:
    """Return the document of an image."""
    (about,) = json.loads(docker("image", "inspect", image))
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        extract(image, root, READ)
        document = of_files(root, about["Architecture"])
    name, _, tag = image.partition(":")
    return describe(document, "container", name, tag or "latest", about["Id"][len("sha256:") :])


def docker(*words: str) -> str:
    """Return what docker prints. Its failure ends this."""
    done = subprocess.run(["docker", *words], stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"[sbom] docker {words[0]} failed | status {done.returncode} | see above")
    return done.stdout


def extract(image: str, root: Path, wanted: re.Pattern[str]) -> None:
    """Write the files of an image whose paths match to a folder."""
    container = docker("create", image, "none").strip()
    try:
        with (
            subprocess.Popen(["docker", "export", container], stdout=subprocess.PIPE) as export,
            tarfile.open(fileobj=export.stdout, mode="r|") as archive,
        ):
            for member in archive:
                if wanted.fullmatch(member.name):
                    archive.extract(member, root, filter="tar")
    finally:
        docker("rm", container)


def of_files(root: Path, architecture: str) -> Part:
    """Return the document of an image whose files are in a folder."""
    interpreter = root / "python"  # cyclonedx-py asks it where its packages are
    interpreter.write_text('#!/bin/sh\nprintf \'["%s"]\' "$PACKAGES"\n')
    interpreter.chmod(0o755)
    parts = [*debian_packages(root, architecture)]
    for folder in sorted({info.parent for info in root.rglob("*-packages/*.*-info")}):
        found = python_packages(interpreter, PACKAGES=str(folder))
        parts += [placed(part, f"/{folder.relative_to(root)}") for part in found["components"]]
    document = python_packages(interpreter, PACKAGES=str(root))  # has none
    document["components"] = parts
    return document


def placed(part: Part, place: str) -> Part:
    """Return a part with its place in the image, which makes its reference unique."""
    properties = [*part.get("properties", ()), {"name": "entrypoint:within", "value": place}]
    return {**part, "bom-ref": f"{part['bom-ref']}#{place}", "properties": properties}


def debian_packages(root: Path, architecture: str) -> Iterator[Part]:
    """Yield the packages that dpkg has installed, and those that the toolkit brings along."""
    status, own = root / "var/lib/dpkg/status", root / OWN
    if status.exists():
        vendor = release(root / "usr/lib/os-release")
        for entry in status.read_text().split("\n\n"):
            fields = dict(re.findall(r"(?m)^(\w+): (.*)$", entry))
            if fields.get("Status", "").endswith(" installed"):
                name = fields["Package"]
                copyrights = root / "usr/share/doc" / name / "copyright"
                yield debian(vendor, name, fields["Version"], fields["Architecture"], copyrights)
    if own.exists():
        vendor = release(own / "os-release")
        for line in (own / "packages.txt").read_text().splitlines():
            name, version = line.split(" ")
            part = debian(vendor, name, version, architecture, own / "licenses" / name)
            yield placed(part, f"/{OWN}")


def release(file: Path) -> tuple[str, str]:
    """Return the name and the version of a distribution, by its os-release."""
    values = dict(re.findall(r'(?m)^(\w+)="?(.*?)"?$', file.read_text()))
    return values["ID"], values.get("VERSION_ID", "sid")


def debian(
    vendor: tuple[str, str], name: str, version: str, architecture: str, copyrights: Path
) -> Part:
    """Return a package of Debian, with the licenses that its copyright file names."""
    of = f"arch={architecture}&distro={'-'.join(vendor)}"
    purl = f"pkg:deb/{vendor[0]}/{quote(name)}@{quote(version)}?{of}"
    text = copyrights.read_text(errors="replace") if copyrights.exists() else ""
    licenses = [{"license": {"name": each}} for each in debian_licenses(text)]
    part = {"type": "library", "bom-ref": purl, "name": name, "version": version, "purl": purl}
    return {**part, "licenses": licenses}


def debian_licenses(text: str) -> list[str]:
    """Return the licenses that a copyright file of Debian names: by its fields, or by the texts of
    common-licenses that an older one mentions."""
    found = re.findall(r"(?m)^License:[ \t]*(\S.*?)[ \t]*$", text)
    if not found:
        found = re.findall(r"/usr/share/common-licenses/([\w.+-]*\w)", text)
    return sorted(set(found)) or ["see its copyright file" if text else "not stated"]


def main(images: list[str]) -> int:
    folder = TREE / "build/sbom"
    folder.mkdir(parents=True, exist_ok=True)
    for image in images:
        file = folder / f"{image.replace('/', '_').replace(':', '-')}.cdx.json"
        file.write_text(json.dumps(of_image(image), indent=2) + "\n")
        print(file)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
