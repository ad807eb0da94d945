"""Golden trees: what a job's nodes get, written down under tests/launchers/<launcher>/<case>/ and read by people.

    job.yaml      the spec
    facts.yaml    what each container is; {node} in it is the node's number
    node-N/       every file node N would write, and launch.txt with its command, environment and roll call
    render/       what `entrypoint render` writes on node 0

Only the folders that are there are compared or rewritten: a case of 64 nodes may show two of them. `make golden` runs
`python -m tests.golden`, which rewrites; the tests never do.
"""

from __future__ import annotations

import shlex
from pathlib import Path

import yaml

import entrypoint
from entrypoint import __version__
from entrypoint import spec as specs
from entrypoint.model import EnvVar, Facts, File, Interface, Plan
from entrypoint.plan import rendered, settle
from entrypoint.spec import JobSpec

CASES = Path(__file__).resolve().parent / "launchers"


def cases() -> list[Path]:
    """The folders of all cases."""
    return sorted(path.parent for path in CASES.glob("*/*/job.yaml"))


def folders(case: Path) -> list[Path]:
    """The folders of a case that hold golden files."""
    return sorted(path for path in case.iterdir() if path.is_dir())


def expected(folder: Path) -> dict[str, str]:
    """The golden files of one folder."""
    return {path.name: path.read_text(encoding="utf-8") for path in sorted(folder.iterdir())}


def made(folder: Path) -> dict[str, str]:
    """The same files, as they come out now."""
    if folder.name == "render":
        return _texts(rendered(*_given(folder.parent, 0), "job.yaml"))
    plan = settle(*_given(folder.parent, int(folder.name.removeprefix("node-"))))
    return {**_texts(plan.files), "launch.txt": _launch(plan)}


def _given(case: Path, node: int) -> tuple[JobSpec, Facts]:
    given = yaml.safe_load((case / "facts.yaml").read_text().replace("{node}", str(node)))
    given["interfaces"] = tuple(Interface(**each) for each in given.get("interfaces", ()))
    facts = Facts(**given)
    return specs.load((case / "job.yaml").read_text(), "job.yaml", facts.env, {}), facts


def _texts(files: list[File] | tuple[File, ...]) -> dict[str, str]:
    """Without the keys, which are no templates, without our version, which every release changes, and our own place."""
    changing = {
        f"entrypoint {__version__}": "entrypoint VERSION",
        str(Path(entrypoint.__file__).parent): "/PACKAGE",
        "\0": "\n",  # rank.env's line end, for a reader
    }
    texts = {file.name: file.text for file in files if file.text}
    for this, that in changing.items():
        texts = {name: text.replace(this, that) for name, text in texts.items()}
    return texts


def _launch(plan: Plan) -> str:
    launch = plan.launch
    lines = [f"launcher {plan.launcher}, roll call {plan.roll_call}, completion {launch.completion}, in {plan.workdir}"]
    lines += ["no command: ranks are started from worker-0"] * (not launch.programs)
    lines += [f"rank    {_variable(var)}" for var in plan.env]
    for program in launch.programs:
        lines.append(f"run     {shlex.join(program.argv)}")
        copy = f", log {program.log}" if program.log else ""
        lines += [f"        prefix {program.label}{copy}"] * bool(program.label)
        lines += [f"        {_variable(var)}" for var in program.env]
    lines += [f"file    {file.mode:04o} {file.name}" for file in plan.files]
    return "\n".join(lines) + "\n"


def _variable(var: EnvVar) -> str:
    return f"{var.name}={shlex.quote(var.value)}" + "  (default)" * var.default


def main() -> None:
    """Rewrite every golden folder that is there."""
    for case in cases():
        for folder in folders(case):
            for old in folder.iterdir():
                old.unlink()
            for name, text in made(folder).items():
                (folder / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
