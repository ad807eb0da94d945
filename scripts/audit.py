#!/usr/bin/env python3
"""audit.py - ask pip-audit about scripts/image/toolkit.lock.

Status 0 if no package has a known vulnerability, 1 if one has, 75 if that is unknown: pip-audit
itself is content if its service does not answer or knows none of the packages, so what it reports
is counted.
"""

import json
import subprocess
import sys
from pathlib import Path

LOCK = Path(__file__).parent / "image/toolkit.lock"
OPTIONS = (
    "--require-hashes --disable-pip --timeout 10 --progress-spinner off --format json --requirement"
)


def say(text: str) -> None:
    print(f"[audit] {text}", file=sys.stderr)


def main() -> int:
    argv = [sys.executable, "-m", "pip_audit", *OPTIONS.split(), str(LOCK)]
    try:
        done = subprocess.run(argv, capture_output=True, timeout=120, check=False)
        packages = json.loads(done.stdout)["dependencies"]
    except (ValueError, subprocess.TimeoutExpired):
        packages = []
    bad = [(package, each) for package in packages for each in package.get("vulns", ())]
    for package, each in bad:
        fixed = ", ".join(each["fix_versions"]) or "none"
        say(f"{package['name']} {package['version']}: {each['id']}, fixed in {fixed}")
    if bad:
        return 1
    unknown = ", ".join(package["name"] for package in packages if "skip_reason" in package)
    if unknown or not packages:
        seen = f"it does not know {unknown}" if unknown else "it does not answer"
        say(f"NOT RUN: pip-audit's service cannot be asked | {seen} | run it where PyPI is reached")
        return 75
    say(f"{len(packages)} packages, none with a known vulnerability")
    return 0


if __name__ == "__main__":
    sys.exit(main())
