"""Golden files of `entrypoint deploy`, under tests/deploy/<target>/<case>/ and read by people.

    job.yaml        the spec
    options.yaml    image, nodes, resource, kind, mount, and the command after -- where one is given
    rendered.yaml   what comes out; for slurm rendered.sh, for modelarts rendered.json
    rendered.diff   instead, where they are less than half of it, the lines that differ from the case `two` of this
                    target, or from the one that is named as its kind

`make golden` runs `python -m tests.golden_deploy`, which rewrites rendered.*; the tests never do.
"""

from __future__ import annotations

import functools
from pathlib import Path

import yaml

from entrypoint import __version__
from entrypoint import spec as specs
from entrypoint.base import registry
from entrypoint.tools.deploy._options import Options, mounts
from tests.golden import differences

CASES = Path(__file__).resolve().parent / "deploy"
_LANGUAGES = {"slurm": "sh", "modelarts": "json"}


def cases() -> list[Path]:
    """The folders of all cases."""
    return sorted(path.parent for path in CASES.glob("*/*/job.yaml"))


def golden(case: Path) -> tuple[Path, str]:
    """Return the golden file of a case, and its text as it comes out now."""
    text = made(case)
    like = case.parent / yaml.safe_load((case / "options.yaml").read_text()).get("kind", "two")
    if like != case and like.exists():
        lines = [f"differs from {like.name}", *differences(made(like), text)]
        if len(lines) < text.count("\n") / 2:
            return case / "rendered.diff", "\n".join(lines) + "\n"
    return case / f"rendered.{_LANGUAGES.get(case.parent.name, 'yaml')}", text


@functools.cache
def made(case: Path) -> str:
    """Return what is rendered now, without our version, which every release changes."""
    given = yaml.safe_load((case / "options.yaml").read_text())
    text = (case / "job.yaml").read_text()
    overrides = {
        path: specs.Override(value, flag) for path, (flag, value) in given.pop("flags", {}).items()
    }
    spec = specs.load(text, "job.yaml", {}, overrides)
    module = registry.load("deploy", case.parent.name)
    given["mount"] = mounts(given.get("mount", ()))
    options = Options(**{"folder": "/home/me/job", "spec_text": text, **given})
    text = module.render(spec, options)
    return str(text).replace(f"entrypoint {__version__}", "entrypoint VERSION")


def main() -> None:
    """Rewrite every case."""
    for case in cases():
        for old in case.glob("rendered.*"):
            old.unlink()
        path, text = golden(case)
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
