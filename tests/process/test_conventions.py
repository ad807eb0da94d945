"""What editors, CI and package indexes look for, each read by a real client. Registries:
test_oci.py."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests import TREE
from tests.command import PATH, Done, captured, run

pytestmark = pytest.mark.textual  # pre-commit and pip take the whole tree
HOME = "https://git.example.org/team/entrypoint"
GOOD = "nodes: 2\nlauncher: torchrun\ncommand: [train.py]\nsecret_file: /of/the/nodes\n"
WRONG = {
    "a key": ("slotz: 2\n", "EP102"),
    "a value": ("launcher: mpirum\n", "EP100"),
    "two fields": ("hosts: [a, b]\nnodes: 3\ncommand: [x]\n", "EP120"),
    "an option": ("launcher: torchrun\nlauncher_args: [--nnodes=4]\ncommand: [x.py]\n", "EP119"),
    "no YAML": ("slots: [\n", "EP101"),
}


def entrypoint(folder: Path, *words: str) -> Done:
    return run(folder, *words, env=PATH)


class Editor:
    """A session of an editor with a language server, over its stdin and stdout."""

    def __init__(self, server: str) -> None:
        argv = [server, "--stdio"]
        self.server = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.send("initialize", id=1, processId=None, rootUri=None, capabilities={})
        self.until(lambda message: message.get("id") == 1)
        self.send("initialized")

    def send(self, method: str, id: int | None = None, **params: Any) -> None:
        assert self.server.stdin
        message = {"jsonrpc": "2.0", "method": method, "params": params}
        data = json.dumps(message if id is None else {**message, "id": id}).encode()
        self.server.stdin.write(b"Content-Length: %d\r\n\r\n%s" % (len(data), data))
        self.server.stdin.flush()

    def until(self, wanted: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """The next message of this kind."""
        stdout, message = self.server.stdout, {}
        assert stdout
        while not wanted(message):
            head = list(iter(lambda: stdout.readline().strip(), b""))
            (size,) = (line.split()[1] for line in head if line.startswith(b"Content-Length"))
            message = json.loads(stdout.read(int(size)))
        return message

    def problems(self, file: Path) -> list[str]:
        """What the editor underlines in a file."""
        uri = file.as_uri()
        document = {"uri": uri, "languageId": "yaml", "version": 1, "text": file.read_text()}
        self.send("textDocument/didOpen", textDocument=document)
        said = self.until(lambda message: message.get("params", {}).get("uri") == uri)
        return [problem["message"] for problem in said["params"]["diagnostics"]]


@pytest.mark.promise("an editor flags a wrong field of a job.yaml", control="a good one")
def test_an_editor_knows_the_fields(
    python_with: Callable[[str], str], tmp_path: Path, record_property: Callable[[str, str], None]
) -> None:
    """with what `init` has written, and no network"""
    editor = Editor(python_with("yaml-language-server"))
    try:
        file = tmp_path / "job.yaml"
        assert entrypoint(tmp_path, "init", "--", "python", "train.py").returncode == 0
        assert editor.problems(file) == []
        text = file.read_text()
        other = tmp_path / "other.yaml"
        other.write_text(f"{text}slotz: 2\nlauncher: mpirum\n")
        unknown, value = sorted(editor.problems(other), reverse=True)
        record_property("row", f"slotz: {unknown}")
        assert unknown.startswith("Value is not accepted. Valid values:")
        assert value == "Property slotz is not allowed."
        unnamed = tmp_path / "unnamed.yaml"
        unnamed.write_text(other.read_text().partition("\n")[2])
        assert editor.problems(unnamed) == []
    finally:
        editor.server.kill()
        editor.server.communicate()


def test_init_keeps_a_schema_that_is_not_its_own(tmp_path: Path) -> None:
    """and writes one anew that is"""
    schema = tmp_path / "job.schema.json"
    schema.write_text("{}")
    done = entrypoint(tmp_path, "init", "--", "x")
    assert (done.returncode, [*tmp_path.iterdir()]) == (73, [schema])
    schema.unlink()
    for _ in range(2):
        assert entrypoint(tmp_path, "init", "--", "x").returncode == 0
        (tmp_path / "job.yaml").unlink()
    assert schema.read_text() == entrypoint(tmp_path, "schema").stdout
    first = json.loads(schema.read_text())
    assert first["$id"] == "urn:training-entrypoint:job-spec", "other files name it"


@pytest.mark.promise(
    "a spec is checked where no node is", control="a good one, and without the flag"
)
def test_plan_elsewhere_knows_a_wrong_spec(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text(GOOD)
    words = ("plan", "--spec", "job.yaml")
    assert entrypoint(tmp_path, *words).returncode == 78, "hosts are the platform's to say"
    done = entrypoint(tmp_path, *words, "--elsewhere")
    assert (done.returncode, done.stderr) == (0, "")
    for text, id in WRONG.values():
        (tmp_path / "job.yaml").write_text(text)
        done = entrypoint(tmp_path, *words, "--elsewhere")
        assert (done.returncode in (65, 78), id in done.stderr) == (True, True), done
    for spec in TREE.glob("examples/*/*.yaml"):
        assert entrypoint(tmp_path, "plan", "--elsewhere", "--spec", str(spec)).returncode == 0


@pytest.fixture
def sample(tmp_path: Path) -> Path:
    """A repository with a good spec, a wrong one, and a file that is none."""
    (tmp_path / "a").mkdir()
    (tmp_path / "a/job.yaml").write_text(GOOD)
    (tmp_path / "a/wrong.entrypoint.yaml").write_text("slotz: 2\n")
    (tmp_path / "a/values.yaml").write_text("slotz: 2\n")
    for words in ("init --quiet", "add ."):
        subprocess.run(["git", *words.split()], cwd=tmp_path, check=True)
    return tmp_path


@pytest.mark.skipif(not (TREE / ".git").exists(), reason="pre-commit clones the repository")
@pytest.mark.promise("pre-commit refuses a wrong job spec", control="without the wrong one")
def test_pre_commit(
    sample: Path, python_with: Callable[[str], str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    python = python_with("pre-commit")
    env = {**os.environ, "PRE_COMMIT_HOME": str(tmp_path_factory.mktemp("pre-commit"))}
    words = ("try-repo", TREE, "entrypoint-plan", "--all-files")
    for status in (1, 0):
        done = captured([python, "-m", "pre_commit", *words], cwd=sample, env=env)
        assert done.returncode == status, done.stdout + done.stderr
        said = "a/wrong.entrypoint.yaml:1:1: slotz: EP102 unknown key"
        assert (said in done.stdout, "a/job" in done.stdout) == (bool(status), False)
        wrong = sample / "a/wrong.entrypoint.yaml"
        wrong.unlink(missing_ok=True)


@pytest.mark.promise("the action refuses a wrong job spec", control="without the wrong one")
def test_the_actions_steps(sample: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    """as GitHub's runner starts them"""
    work = tmp_path_factory.mktemp("runner")
    steps = yaml.safe_load((TREE / "action.yml").read_text())["runs"]["steps"]
    env = {**os.environ, "GITHUB_ACTION_PATH": str(TREE), "RUNNER_TEMP": str(work)}

    def step(number: int, specs: str = "") -> Done:
        argv = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", steps[number]["run"]]
        return captured(argv, cwd=sample, env={**env, "SPECS": specs})

    assert (step(0).returncode, len(steps)) == (0, 2)
    done = step(1, "a/job.yaml **/*.entrypoint.yaml")
    file = "a/wrong.entrypoint.yaml"
    said = f"[entrypoint] {file}:1:1: slotz: EP102 unknown key | `slotz` | did you mean `slots`?"
    assert (done.returncode, done.stdout) == (65, f"{said}\n::error file={file}::{said}\n")
    done = step(1, "a/job.yaml")
    assert (done.returncode, done.stdout) == (0, "")
    assert step(1, "no/such.yaml").returncode == 66


def test_what_github_and_schemastore_read(python_with: Callable[[str], str]) -> None:
    """by their schemas"""
    python = python_with("pre-commit")
    for kind, pattern in {"actions": "action.yml", "workflows": ".github/workflows/*.yml"}.items():
        files = sorted(TREE.glob(pattern))
        assert files
        words = ("check_jsonschema", "--builtin-schema", f"vendor.github-{kind}", *files)
        done = captured([python, "-m", *words])
        assert done.returncode == 0, done.stdout
    manifest = TREE / ".pre-commit-hooks.yaml"
    assert captured([python, "-m", "pre_commit", "validate-manifest", manifest]).returncode == 0
    entry = json.loads((TREE / ".github/schemastore.json").read_text())
    assert {*entry} == {"name", "description", "fileMatch", "url"}


@pytest.mark.promise("the wheel's summary is README's first sentence, and its links lead somewhere",
    control="without REPOSITORY")  # fmt: skip
def test_what_a_package_index_shows(tmp_path: Path) -> None:
    shown = {}
    for home in ("", HOME):
        env = {**os.environ, "REPOSITORY": home, "ENTRYPOINT_VERSION": "1.2.3"}
        argv = [sys.executable, "-m", "hatchling", "metadata"]
        shown[home] = json.loads(captured(argv, cwd=TREE, env=env, check=True).stdout)
    readme, text = (TREE / "README.md").read_text(), shown[HOME]["readme"]["text"]
    assert f"\n{shown['']['description']}\n" in readme
    assert (shown[""]["readme"]["text"], "urls" in shown[""]) == (readme, False)
    urls = shown[HOME]["urls"]
    assert {*urls} == {"Homepage", "Source", "Documentation", "Issues", "Changelog"}
    assert urls["Changelog"] == f"{HOME}/blob/v1.2.3/CHANGELOG.md"
    assert f"]({HOME}/raw/v1.2.3/docs/images/two-nodes.svg)" in text
    assert f"]({HOME}/blob/v1.2.3/LICENSE)" in text
    for relative in ("](docs/", "](README"):
        assert (relative in readme, relative in text) == (True, False)
