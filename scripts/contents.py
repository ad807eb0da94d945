"""contents.py - print what is in the image in which this runs, as JSON: scripts/sbom.py has a
container run its text.

    python3 -I -c TEXT TEXT   run by the toolkit's own Python: packages of Debian and of each Python
    python3 -I -c TEXT dists  run by each of the image's Pythons, by the one above: its packages

Python 3.8, the oldest that an image may have, has to understand it. Nothing but the standard
library.
"""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

TOOLKIT = "/opt/entrypoint"
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}  # a machine's name -> Debian's
PYTHON = Path(TOOLKIT, "python")  # its own, with libraries of Debian, in images of others


def debian_licenses(text: str, where: str) -> list[str]:
    """Return the names of the licenses in a Debian copyright file; its place, if it names them in
    prose alone.

    Most files have fields (Debian's policy, "Machine-readable debian/copyright file"); older ones
    at least say in which file of common-licenses the text is.
    """
    found = re.findall(r"(?m)^License:[ \t]*(\S.*?)[ \t]*$", text)
    if not found:
        found = [
            name.rstrip(".") for name in re.findall(r"/usr/share/common-licenses/([\w.+-]+)", text)
        ]
    return sorted(set(found)) or [f"see {where}"]


def python_licenses(meta: Any) -> list[str]:
    """Return the licenses of a Python package by its metadata, the newest way of saying so
    first."""
    classifiers = [
        line.split(" :: ")[-1]
        for line in meta.get_all("Classifier", [])
        if line.startswith("License :: ")
    ]
    plain = (meta.get("License") or "").strip()
    if "\n" in plain or len(plain) > 100 or plain.upper() == "UNKNOWN":
        plain = ""  # the whole text, or nothing
    named = [name for name in classifiers if name != "OSI Approved"]
    files = [f"see {name} of the package" for name in meta.get_all("License-File", [])]
    expression = meta.get("License-Expression")
    return (
        [expression]
        if expression
        else sorted(set(named)) or [plain] * bool(plain) or files or ["not stated"]
    )


def distributions() -> list[dict[str, Any]]:
    """Return the packages of the Python that runs this. From their files, so that a broken one is
    listed, too."""
    import importlib.metadata

    metas: list[Any] = [each.metadata for each in importlib.metadata.distributions()]
    found = {
        (meta["Name"], meta["Version"]): {
            "name": meta["Name"],
            "version": meta["Version"],
            "licenses": python_licenses(meta),
            "expression": bool(meta.get("License-Expression")),
        }
        for meta in metas
        if meta["Name"]
    }
    return [found[key] for key in sorted(found)]


def release(path: Path) -> tuple[str, str]:
    """Return name and version of a distribution, by its os-release."""
    values = dict(line.split("=", 1) for line in path.read_text().splitlines() if "=" in line)
    return values["ID"].strip('"'), values.get("VERSION_ID", "").strip('"')


def package(name: str, version: str, architecture: str, copyrights: Path) -> dict[str, Any]:
    """Return one package of Debian, with the licenses that this file names."""
    try:
        licenses = debian_licenses(copyrights.read_text(errors="replace"), str(copyrights))
    except OSError:
        licenses = ["not stated"]
    return {"name": name, "version": version, "architecture": architecture, "licenses": licenses}


def debian() -> list[dict[str, Any]]:
    """Return the packages that dpkg has installed."""
    if not shutil.which("dpkg-query"):
        if not any(Path(each).exists() for each in ("/bin", "/usr", "/etc/os-release")):
            return []  # the toolkit's own image: nothing but its folder
        raise SystemExit("there is no dpkg | only images of Debian and Ubuntu can be listed")
    form = "${Package} ${Version} ${Architecture} ${db:Status-Status}\n"
    done = subprocess.run(
        ["dpkg-query", "-W", "-f", form], stdout=subprocess.PIPE, check=True, text=True
    )
    rows = [line.split(" ") for line in done.stdout.splitlines()]
    return [
        package(name, version, architecture, Path("/usr/share/doc", name, "copyright"))
        for name, version, architecture, status in rows
        if status == "installed"
    ]


def collected(architecture: str) -> list[dict[str, Any]]:
    """Return the packages of Debian whose files the toolkit brings along, if it has a Python of its
    own."""
    if not (PYTHON / "packages.txt").exists():
        return []
    rows = [line.split(" ") for line in (PYTHON / "packages.txt").read_text().splitlines()]
    return [
        package(name, version, architecture, PYTHON / "licenses" / name) for name, version in rows
    ]


def pythons(text: str) -> dict[str, list[dict[str, Any]]]:
    """Return the packages of each Python on PATH and of the toolkit's own: its path -> packages.

    Two names of one Python are one. A virtual environment is another one than the Python that it
    stands on.
    """
    found: dict[str, list[dict[str, Any]]] = {}
    prefixes = set()
    for path in (shutil.which("python"), shutil.which("python3"), f"{TOOLKIT}/bin/python"):
        if not path:
            continue
        done = subprocess.run([path, "-I", "-c", text, "dists"], stdout=subprocess.PIPE, text=True)
        if done.returncode != 0:
            raise SystemExit(
                f"the packages of {path} cannot be listed | status {done.returncode}, last lines"
                " above"
            )
        own = json.loads(done.stdout)
        if own["prefix"] not in prefixes:
            prefixes.add(own["prefix"])
            found[path] = own["packages"]
    return found


def everything(text: str) -> dict[str, Any]:
    """Return all that is in this image."""
    own, here = PYTHON / "os-release", Path("/etc/os-release")
    return {
        "system": {
            "release": release(here) if here.exists() else ("debian", ""),
            "packages": debian(),
        },
        "toolkit": {
            "release": release(own) if own.exists() else ("debian", ""),
            "packages": collected(ARCHITECTURES.get(platform.machine(), platform.machine())),
        },
        "pythons": pythons(text),
    }


if __name__ == "__main__":
    os.chdir("/")
    own = {"prefix": sys.prefix, "packages": distributions()}
    print(json.dumps(own if sys.argv[1] == "dists" else everything(sys.argv[1])))
