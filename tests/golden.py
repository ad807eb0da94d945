"""Golden files of launchers, under tests/launchers/<launcher>/<case>/ and read by people.

    job.yaml      the spec
    facts.yaml    what each container is; {node} in it is the node's number
    expect.yaml   `node-N`: the command, environment and files of node N; `render`: the files of `entrypoint render`

tests/rendered/ has one complete file for each template: that of the launcher's case `two`, node 0,
where it has one; of a template whose one placeholder is our version it has nothing, since the
template itself is the complete file. A case says of each of its files: that it is the same as the complete one or
as that of its first node; or which lines differ from the complete one; or all of it, where that is
shorter or where no template has made it.

expect.yaml names the nodes to show: those that are there are compared or rewritten, so a case of 64
nodes may show two of them. `make golden` runs `python -m tests.golden`, which rewrites; the tests
never do.
"""

from __future__ import annotations

import difflib
import functools
import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

import yaml

import entrypoint
from entrypoint import __version__
from entrypoint import spec as specs
from entrypoint.base.model import EnvVar, Facts, File, Interface, Plan
from entrypoint.plan import rendered, settle
from entrypoint.spec import JobSpec
from tests.unit import transcripts

CASES = Path(__file__).resolve().parent / "launchers"
COMPLETE = Path(__file__).resolve().parent / "rendered"
TEMPLATES = Path(__file__).resolve().parent.parent / "templates"
COUNTED = "... and so on, each with the next number, to:"


def cases() -> list[Path]:
    """Return the folders of all cases."""
    return sorted(path.parent for path in CASES.glob("*/*/job.yaml"))


def shown(case: Path) -> list[str]:
    """Return what the case shows: `node-N`, and `render` last."""
    parts = re.findall(r"(?m)^([\w-]+):", (case / "expect.yaml").read_text(encoding="utf-8"))
    return sorted(parts, key=lambda part: int(part.partition("-")[2] or 10**6))


@functools.cache
def files(case: Path, part: str) -> tuple[File, ...]:
    """Return the files that one part of a case gets, with comparable texts; those without a text
    are left out."""
    made = rendered(*_inputs(case, 0), "job.yaml") if part == "render" else plan(case, part).files
    return tuple(File(file.name, comparable(file.text), file.origin) for file in made if file.text)


@functools.cache
def plan(case: Path, part: str) -> Plan:
    """Return the plan of one node, `node-N`."""
    return settle(*_inputs(case, int(part.removeprefix("node-"))))


def complete() -> dict[str, str]:
    """Return the complete file of each template: path below templates/, without `.j2` -> text."""
    return {path: text for path, (_, text) in _complete().items()}


def golden() -> dict[str, str]:
    """Return what tests/rendered/ has to have: path below it -> text."""
    return {path: text for path, text in complete().items() if text != as_written(path)}


def as_written(path: str) -> str:
    """Return the text of a template that is no Jinja file, "" for another one."""
    file = TEMPLATES / path
    text = file.read_text(encoding="utf-8") if file.exists() else ""
    return text.replace("{{ version | comment }}", "VERSION")


def written() -> set[str]:
    """Return the paths of the files that are in tests/rendered/."""
    return {path.relative_to(COMPLETE).as_posix() for path in COMPLETE.rglob("*") if path.is_file()}


def changed(case: Path, path: str, value: object) -> Plan:
    """Return the plan of node 0 with another value of a setting; None leaves it out."""
    _, facts = _inputs(case, 0)
    document = yaml.safe_load((case / "job.yaml").read_text())
    section, _, name = path.rpartition(".")
    (document.setdefault(section, {}) if section else document)[name] = value
    return settle(specs.load(yaml.safe_dump(document), "job.yaml", facts.env, {}), facts)


def start(made: Plan) -> list[str]:
    """Return what a node starts, and the files for it, without the places that values come from."""
    return [_launch(made), *(comparable(file.text) for file in made.files)]


def expectation(case: Path) -> str:
    """Return the text of expect.yaml as it comes out now."""
    return "".join(f"{part}:\n{_part(case, part)}" for part in shown(case))


def comparable(text: str) -> str:
    """Return the text without our version, which every release changes, and our own place."""
    text = text.replace(f"entrypoint {__version__}", "entrypoint VERSION")
    return text.replace(str(Path(entrypoint.__file__).parent), "/PACKAGE")


def differences(complete: str, text: str) -> Iterator[str]:
    """Yield the lines that differ from a complete file, each group below the line of that file that
    is before it."""
    old, new = complete.splitlines(), text.splitlines()
    for tag, start, end, begin, stop in difflib.SequenceMatcher(
        None, old, new, autojunk=False
    ).get_opcodes():
        if tag != "equal":
            before = next((line for line in reversed(old[:start]) if line.strip()), "(top)")
            yield f"@@ {before}"
            yield from (f"-{line}" for line in old[start:end])
            yield from (f"+{line}" for line in new[begin:stop])


def compared(path: str, complete: str, text: str) -> str:
    """Return what an expect.yaml says of a file: the lines that differ, or all of it where that is
    shorter."""
    if text == complete:
        return f"same as {path}\n"
    lines = [f"differs from {path}", *differences(complete, text)]
    if len(counted(lines)) > len(counted(text.splitlines())):
        return _block(text, 6)
    return _block("\n".join(lines) + "\n", 6)


def counted(lines: Sequence[str]) -> list[str]:
    """Return these lines with COUNTED in place of all but the first and the last of more than three
    that differ by a number alone, which is one more in each, as those of 64 hosts do."""
    short: list[str] = []
    start = 0
    for end in range(1, len(lines) + 1):
        if end == len(lines) or not _is_next(lines[end - 1], lines[end]):
            run = lines[start:end]
            short += run if len(run) < 4 else [run[0], COUNTED, run[-1]]
            start = end
    return short


def _is_next(before: str, line: str) -> bool:
    """Return whether a line has one number that is one more than in the line before, and no other
    difference."""
    old, new = re.split(r"(\d+)", before), re.split(r"(\d+)", line)
    changed = [(one, other) for one, other in zip(old, new, strict=False) if one != other]
    if len(old) != len(new) or len(changed) != 1 or not changed[0][0].isdigit():
        return False
    return changed[0][1] == str(int(changed[0][0]) + 1)


def template(file: File) -> str:
    """Return the path of the template below templates/ without its ending, "" for a file that has
    none."""
    return file.origin.removesuffix(".j2") if re.fullmatch(r"\w+/[\w.]+", file.origin) else ""


@functools.cache
def _complete() -> dict[str, tuple[tuple[object, ...], str]]:
    best: dict[str, tuple[tuple[object, ...], str]] = {}
    for case in cases():
        for part in shown(case):
            for file in files(case, part):
                if path := template(file):
                    # A template that launchers share is shown by mpirun.
                    own = case.parent.name not in (path.partition("/")[0], "mpirun")
                    rank = (own, part == "render", case.name != "two", str(case), part)
                    best[path] = min(best.get(path, (rank, file.text)), (rank, file.text))
    return best


def _part(case: Path, part: str) -> str:
    lines = "" if part == "render" else f"  launch: {_block(_launch(plan(case, part)), 4)}"
    lines += "  files:\n" if files(case, part) else "  files: {}\n"
    first = shown(case)[0]
    for file in files(case, part):
        path = template(file)
        if part != first and file in files(case, first) and file.text != complete().get(path):
            lines += f"    {file.name}: same as {first}\n"
            continue
        says = compared(path, complete()[path], file.text) if path else _block(file.text, 6)
        lines += f"    {file.name}: {says}"
    return lines


def _block(text: str, indent: int) -> str:
    """Return a YAML block that is this text, for a key that stands two columns before it."""
    head = f"|{'2' * text.startswith((' ', chr(10)))}{'-' * (not text.endswith(chr(10)))}\n"
    lines = counted(text.splitlines())
    return head + "".join(f"{' ' * indent}{line}\n" if line else "\n" for line in lines)


def _inputs(case: Path, node: int) -> tuple[JobSpec, Facts]:
    values = yaml.safe_load((case / "facts.yaml").read_text().replace("{node}", str(node)))
    values["interfaces"] = tuple(Interface(**each) for each in values.get("interfaces", ()))
    facts = Facts(**values)
    return specs.load((case / "job.yaml").read_text(), "job.yaml", facts.env, {}), facts


def _launch(plan: Plan) -> str:
    launch = plan.launch
    lines = [
        f"launcher {plan.launcher}, roll call {plan.roll_call}, completion"
        f" {launch.completion}, in {plan.workdir}"
    ]
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
    """Rewrite every expect.yaml, the complete files of launchers' templates, and the transcripts."""
    transcripts.main()
    for case in cases():
        (case / "expect.yaml").write_text(expectation(case), encoding="utf-8")
    for old in written() - golden().keys():
        (COMPLETE / old).unlink()
    for path, text in golden().items():
        (COMPLETE / path).parent.mkdir(parents=True, exist_ok=True)
        (COMPLETE / path).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
