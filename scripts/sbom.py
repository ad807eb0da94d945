#!/usr/bin/env python3
"""sbom.py IMAGE... - what is in an image, as CycloneDX 1.5 JSON: build/sbom/NAME.cdx.json for each.

Every Debian package by dpkg, and every Python package of the job's Python and of the toolkit's own, by their metadata:
read in a container of the image, with no network. The same image gives the same file.
"""

import inspect
import json
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any
from urllib.parse import quote

TREE = Path(__file__).resolve().parent.parent
NAMESPACE = uuid.UUID("5f6f9a1e-6c0b-5a55-9d5e-0c6f1b0a7c11")  # ours, for serial numbers

LOOK = """
. /etc/os-release; echo "$ID $VERSION_ID"
dpkg-query -W -f '${Package} ${Version} ${Architecture} ${db:Status-Status}\\n' | grep ' installed$'
for python in python /opt/entrypoint/bin/python; do
  echo "-- $(command -v $python)"
  cd / && $python -I -c "$1"
done
"""


def packages() -> None:
    """Runs in the image, by its text. Metadata is read from the files, so that a broken package is listed too."""
    import importlib.metadata
    import json

    found = [dist.metadata for dist in importlib.metadata.distributions()]
    names = {
        (meta["Name"], meta["Version"], *meta.get_all("License-Expression", [""])) for meta in found if meta["Name"]
    }
    print(json.dumps(sorted(names)))


def look(image: str) -> tuple[dict[str, Any], str]:
    """docker's description of the image, and what LOOK says in it."""

    def docker(*words: str) -> str:
        done = subprocess.run(["docker", *words], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise SystemExit(f"sbom: {image} cannot be read | {done.stderr.strip()} | build it: scripts/build-image")
        return done.stdout

    text = f"{inspect.getsource(packages)}\n\npackages()\n"
    described = json.loads(docker("image", "inspect", image))[0]
    return described, docker("run", "--rm", "--network", "none", "--entrypoint", "sh", image, "-c", LOOK, "sh", text)


def components(said: str) -> list[dict[str, Any]]:
    """One for each package. `bom-ref` is the package URL, with the Python it is installed in."""
    system, *lines = said.splitlines()
    distribution, release = system.split(" ")
    found, where = [], ""
    for line in lines:
        if line.startswith("-- "):
            where = line[3:]
        elif where:
            for name, version, licence in json.loads(line):
                purl = f"pkg:pypi/{quote(name.lower().replace('_', '-'))}@{quote(version)}"
                found.append(
                    {"type": "library", "bom-ref": f"{purl}#{where}", "name": name, "version": version, "purl": purl}
                    | ({"licenses": [{"expression": licence}]} if licence else {})
                    | {"properties": [{"name": "entrypoint:python", "value": where}]}
                )
        else:
            name, version, architecture, _ = line.split(" ")
            purl = f"pkg:deb/{distribution}/{quote(name)}@{quote(version)}"
            purl += f"?arch={architecture}&distro={distribution}-{release}"
            found.append({"type": "library", "bom-ref": purl, "name": name, "version": version, "purl": purl})
    return found


def bom(image: str) -> dict[str, Any]:
    """The whole document."""
    described, said = look(image)
    name, _, tag = image.partition(":")
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "serialNumber": f"urn:uuid:{uuid.uuid5(NAMESPACE, described['Id'])}",
        "version": 1,
        "metadata": {
            "timestamp": f"{described['Created'].split('.')[0].rstrip('Z')}Z",
            "component": {
                "type": "container",
                "bom-ref": described["Id"],
                "name": name,
                "version": tag or "latest",
                "hashes": [{"alg": "SHA-256", "content": described["Id"].removeprefix("sha256:")}],
            },
        },
        "components": components(said),
    }


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
        print(f"[sbom] {file.relative_to(TREE)}: {len(document['components'])} packages", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
