#!/usr/bin/env python3
"""sbom.py IMAGE... - what is in an image, as CycloneDX 1.5 JSON: build/sbom/NAME.cdx.json for each.
scripts/release.py also lists a wheel's packages with it.

Every Debian package by dpkg, those whose files the toolkit brings along (its Python, its libraries,
tini), and every Python package of the job's Python and of the toolkit's own, by their metadata;
each with its licenses, as the package itself names them. Read in a container of the image, with no
network. The same image gives the same file.
"""

import json
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any
from urllib.parse import quote

TREE = Path(__file__).resolve().parent.parent
NAMESPACE = uuid.UUID("5f6f9a1e-6c0b-5a55-9d5e-0c6f1b0a7c11")  # ours, for serial numbers

CONTENTS = TREE / "scripts/contents.py"


def look(image: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return docker's description of the image, and what scripts/contents.py says in a container of
    it."""

    def docker(*words: str) -> Any:
        done = subprocess.run(["docker", *words], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise SystemExit(
                f"sbom: {image} cannot be read | {done.stderr.strip()} | build it:"
                " scripts/build-image"
            )
        return json.loads(done.stdout)

    text = CONTENTS.read_text()
    words = (
        "--rm",
        "--network",
        "none",
        "--entrypoint",
        "/opt/entrypoint/bin/python",
        image,
        "-I",
        "-c",
        text,
        text,
    )
    return docker("image", "inspect", image)[0], docker("run", *words)


def debian(found: dict[str, Any], within: str = "") -> list[dict[str, Any]]:
    """Return a component for each package of Debian; `within` names the folder of those that dpkg
    does not know of."""
    name, version = found["release"]
    distro = f"&distro={name}-{version}" if version else ""
    components = []
    for package in found["packages"]:
        purl = f"pkg:deb/{name}/{quote(package['name'])}@{quote(package['version'])}"
        purl += f"?arch={package['architecture']}{distro}"
        components.append(component(package, purl, "entrypoint:within", within))
    return components


def component(package: dict[str, Any], purl: str, name: str, where: str) -> dict[str, Any]:
    """Return a component. Its `bom-ref` is the package URL, with the place that the property `name`
    has, if any."""
    licenses = [{"license": {"name": each}} for each in package["licenses"]]
    if package.get("expression"):
        licenses = [{"expression": each} for each in package["licenses"]]
    made = {
        "type": "library",
        "bom-ref": f"{purl}#{where}" if where else purl,
        "name": package["name"],
        "version": package["version"],
        "purl": purl,
        "licenses": licenses,
    }
    return {**made, "properties": [{"name": name, "value": where}]} if where else made


def components(found: dict[str, Any]) -> list[dict[str, Any]]:
    """Return a component for each package: of the system, of the toolkit's own Python, in each
    Python."""
    all_of_python = [
        component(package, python_purl(package), "entrypoint:python", path)
        for path, packages in found["pythons"].items()
        for package in packages
    ]
    return [
        *debian(found["system"]),
        *debian(found["toolkit"], "/opt/entrypoint/python"),
        *all_of_python,
    ]


def python_purl(package: dict[str, Any]) -> str:
    return (
        f"pkg:pypi/{quote(package['name'].lower().replace('_', '-'))}@{quote(package['version'])}"
    )


def document(
    subject: dict[str, Any], digest: str, created: str, parts: list[dict[str, Any]]
) -> dict[str, Any]:
    """Return the document of a subject with that SHA-256, made at that time in UTC."""
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "serialNumber": f"urn:uuid:{uuid.uuid5(NAMESPACE, f'sha256:{digest}')}",
        "version": 1,
        "metadata": {
            "timestamp": created,
            "component": {**subject, "hashes": [{"alg": "SHA-256", "content": digest}]},
        },
        "components": parts,
    }


def bom(image: str) -> dict[str, Any]:
    """Return the document of an image."""
    described, found = look(image)
    name, _, tag = image.partition(":")
    subject = {
        "type": "container",
        "bom-ref": described["Id"],
        "name": name,
        "version": tag or "latest",
    }
    created = f"{described['Created'].split('.')[0].rstrip('Z')}Z"
    return document(subject, described["Id"].removeprefix("sha256:"), created, components(found))


def main(images: list[str]) -> int:
    if not images:
        print("usage: sbom.py IMAGE...", file=sys.stderr)
        return 64
    folder = TREE / "build/sbom"
    folder.mkdir(parents=True, exist_ok=True)
    for image in images:
        document = bom(image)
        file = folder / f"{image.replace('/', '_').replace(':', '-')}.cdx.json"
        file.write_text(json.dumps(document, indent=2) + "\n")
        print(
            f"[sbom] {file.relative_to(TREE)}: {len(document['components'])} packages",
            file=sys.stderr,
        )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
