"""Golden files of `entrypoint deploy`, under tests/deploy/<target>/<case>/ and read by people.

    job.yaml        the spec
    options.yaml    image, nodes, resources, kind, and the command after -- where one is given
    rendered.yaml   what comes out; for slurm rendered.sh, for modelarts rendered.json

`make golden` runs `python -m tests.golden_deploy`, which rewrites rendered.*; the tests never do.
"""

from __future__ import annotations

from pathlib import Path

import yaml

from entrypoint import __version__, registry
from entrypoint import spec as specs

CASES = Path(__file__).resolve().parent / "deploy"
_LANGUAGES = {"slurm": "sh", "modelarts": "json"}


def cases() -> list[Path]:
    """The folders of all cases."""
    return sorted(path.parent for path in CASES.glob("*/*/job.yaml"))


def rendered(case: Path) -> Path:
    """The file that says what comes out."""
    return case / f"rendered.{_LANGUAGES.get(case.parent.name, 'yaml')}"


def made(case: Path) -> str:
    """The file as it comes out now, without our version, which every release changes."""
    given = yaml.safe_load((case / "options.yaml").read_text())
    text = (case / "job.yaml").read_text()
    overrides = {path: specs.Override(value, flag) for path, (flag, value) in given.pop("flags", {}).items()}
    spec = specs.load(text, "job.yaml", {}, overrides)
    module = registry.load("deploy", case.parent.name)
    options = module.Options(**{"folder": "/home/me/job", "spec_text": text, **given})
    text = module.render(spec, options)
    return str(text).replace(f"entrypoint {__version__}", "entrypoint VERSION")


def main() -> None:
    """Rewrite every case."""
    for case in cases():
        rendered(case).write_text(made(case), encoding="utf-8")


if __name__ == "__main__":
    main()
