#!/usr/bin/env python3
"""audit.py - ask pip-audit about scripts/image/toolkit.lock, and about the least version of each
package that pyproject.toml admits.

Status 0 if no package has a known vulnerability, 1 if one has, 75 if that is unknown: pip-audit
itself is content if its service does not answer or knows none of the packages, so what it reports
is counted.
"""

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

SCRIPTS = Path(__file__).parent
OPTIONS = "--disable-pip --timeout 10 --progress-spinner off --format json --requirement"


def say(text: str) -> None:
    print(f"[audit] {text}", file=sys.stderr)


def least_versions() -> str:
    """Return the least versions that pyproject.toml admits at run time, as requirements."""
    project = (SCRIPTS.parent / "pyproject.toml").read_text()
    dependencies = project.partition("\ndependencies = [")[2].partition("\n]")[0]
    found = re.findall(r'"([\w-]+)>=([\w.]+)', dependencies)
    return "".join(f"{name}=={version}\n" for name, version in found)


def answer(requirements: Path, *options: str) -> list[dict[str, Any]]:
    """Return what pip-audit knows of each of these packages; nothing if it does not answer."""
    argv = [sys.executable, "-m", "pip_audit", *options, *OPTIONS.split(), str(requirements)]
    try:
        done = subprocess.run(argv, capture_output=True, timeout=120, check=False)
        found: list[dict[str, Any]] = json.loads(done.stdout)["dependencies"]
    except (ValueError, subprocess.TimeoutExpired):
        return []
    return found


def main() -> int:
    locked = answer(SCRIPTS / "image/toolkit.lock", "--require-hashes")
    with tempfile.NamedTemporaryFile("w") as file:
        file.write(least_versions())
        file.flush()
        least = answer(Path(file.name), "--no-deps")
    packages = locked + least if locked and least else []
    bad = [(package, each) for package in packages for each in package.get("vulns", ())]
    for package, each in bad:
        fixed = ", ".join(each["fix_versions"]) or "none"
        say(f"{package['name']} {package['version']}: {each['id']}, fixed in {fixed}")
    if bad:
        return 1
    skipped = {package["name"] for package in packages if "skip_reason" in package}
    unknown = ", ".join(sorted(skipped))
    if unknown or not packages:
        seen = f"it does not know {unknown}" if unknown else "it does not answer"
        say(f"NOT RUN: pip-audit's service cannot be asked | {seen} | run it where PyPI is reached")
        return 75
    say(f"{len(packages)} versions, none with a known vulnerability")
    return 0


if __name__ == "__main__":
    sys.exit(main())
