"""The public Python API, as a program of a user imports it."""

from __future__ import annotations

import itertools
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests import TREE

NAMES = ("EntrypointError", "JobSpec", "explain", "load_spec", "plan")
PAGE = (TREE / "docs/reference/python.md").read_text()
SPEC = (
    "slots: 8\nlauncher: torchrun\ncommand: [python, train.py]\nnotify: {url: 'https://a/To5en'}\n"
)


def python(folder: Path, code: str, status: int = 0) -> str:
    (folder / "job.yaml").write_text(SPEC)
    (folder / "job.log").write_text("RuntimeError: CUDA error: out of memory\n")
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(TREE)}
    words = [sys.executable, "-c", code]
    done = subprocess.run(words, cwd=folder, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == status, done.stderr
    return done.stdout + done.stderr


def test_the_pages_example(tmp_path: Path) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    shown = python(tmp_path, code).splitlines()
    assert shown[0].startswith("torchrun [{'rank': 0, 'host': ")
    assert shown[1].startswith("fix this first: the program used up the memory of an accelerator")


def test_the_page_has_every_name_with_its_signature(tmp_path: Path) -> None:
    code = (
        "import entrypoint, inspect\nprint(*entrypoint.__all__)\n"
        "for name in ('load_spec', 'plan', 'explain'):\n"
        "    print(name + str(inspect.signature(getattr(entrypoint, name))).replace(\"'\", ''))\n"
    )
    names, *signatures = python(tmp_path, code).splitlines()
    assert tuple(names.split()) == NAMES
    rows = re.findall(r"^\| `(.*?)` \|", PAGE, re.MULTILINE)
    assert [row.replace("\\|", "|") for row in rows] == [*signatures, "JobSpec", "EntrypointError"]


def test_a_job_shows_no_secret(tmp_path: Path) -> None:
    shown = python(tmp_path, "import entrypoint; print(entrypoint.load_spec('job.yaml'))")
    assert ("slots=8" in shown, "To5en" in shown) == (True, False)


def test_they_are_what_the_commands_print(tmp_path: Path) -> None:
    code = (
        "import json, entrypoint as e\n"
        "print(json.dumps([e.plan(e.load_spec('job.yaml')), e.explain(open('job.log').read())]))"
    )
    command = "import sys; from entrypoint import cli; sys.exit(cli.main(%r))"
    printed = [
        python(tmp_path, command % (["explain", "--json", "job.log"],)),
        python(tmp_path, command % (["plan", "--json", "--spec", "job.yaml"],), 127),
    ]
    for document in json.loads(python(tmp_path, code)):
        assert json.JSONDecoder().raw_decode(printed.pop())[0] == document
        assert "To5en" not in str(document)


@pytest.mark.parametrize("names", [*itertools.permutations(("load_spec", "plan", "explain"))])
def test_the_order_of_imports_makes_no_difference(names: tuple[str, ...], tmp_path: Path) -> None:
    """Among them one that a package has, too."""
    lines = [f"from entrypoint import {name}\nprint(type({name}).__name__)\n" for name in names]
    assert python(tmp_path, "".join(lines * 2)) == "function\n" * 6


def test_an_import_of_the_package_loads_nothing(tmp_path: Path) -> None:
    code = "import sys; {}print(*sorted({{*sys.modules}}))"
    found = [
        set(python(tmp_path, code.format(first)).split()) for first in ("import entrypoint; ", "")
    ]
    assert found[0] - found[1] == {"entrypoint"}


def test_an_error_is_the_commands(tmp_path: Path) -> None:
    code = (
        "import entrypoint as e\ntry:\n    e.load_spec('job.yaml', {'ENTRYPOINT_SLOTS': 'many'})\n"
        "except e.EntrypointError as error:\n    print(error, error.status)\ne.nothing"
    )
    shown = python(tmp_path, code, status=1)
    assert "ENTRYPOINT_SLOTS: slots: EP100 a whole number from 1 to 4096 is needed" in shown
    assert "65\n" in shown
    assert "AttributeError: module 'entrypoint' has no attribute 'nothing'" in shown


def test_its_types_are_seen(tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    (tmp_path / "user.py").write_text(
        "from entrypoint import explain, load_spec, plan\n"
        "spec = load_spec(None)\nreveal_type(spec.timeouts.grace)\nreveal_type(plan(spec))\nplan(1)\n"
    )
    words = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", os.devnull, "user.py"]
    env = {**os.environ, "MYPYPATH": str(TREE)}
    shown = subprocess.run(
        words, cwd=tmp_path, env=env, capture_output=True, text=True, check=False
    )
    for text in (
        'type is "float"',
        'type is "dict[str, Any]"',
        'incompatible type "int"; expected',
    ):
        assert text in shown.stdout, shown.stdout
