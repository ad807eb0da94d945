#!/usr/bin/env python3
"""Asks pip-audit about scripts/image/toolkit.lock: 0 when no package has a known hole, 1 when one has, 2 when unknown.

pip-audit is content when its service does not answer or knows none of the packages, so what it reports is counted.
"""

import json
import subprocess
import sys
from pathlib import Path

LOCK = Path(__file__).parent / "image/toolkit.lock"
OPTIONS = "--require-hashes --disable-pip --timeout 10 --progress-spinner off --format json --requirement"


def main() -> int:
    argv = [sys.executable, "-m", "pip_audit", *OPTIONS.split(), str(LOCK)]
    try:
        packages = json.loads(subprocess.run(argv, capture_output=True, timeout=120).stdout)["dependencies"]
    except (ValueError, subprocess.TimeoutExpired):
        packages = []
    for package in packages:
        for hole in package.get("vulns", ()):
            fixed = ", ".join(hole["fix_versions"]) or "none"
            print(f"{package['name']} {package['version']}: {hole['id']}, fixed in {fixed}")
    if any(package.get("vulns") for package in packages):
        return 1
    return 0 if packages and not any("skip_reason" in package for package in packages) else 2


if __name__ == "__main__":
    sys.exit(main())
