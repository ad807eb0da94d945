"""The job spec: every mistake in plain words at its place, and the order in which values win."""

from __future__ import annotations

import ast
import json
import operator
import re
import secrets
from collections.abc import Mapping
from pathlib import Path
from shlex import split
from typing import Any

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from entrypoint import spec
from entrypoint.base import registry
from entrypoint.base.errors import SpecError
from entrypoint.base.model import Source
from entrypoint.cli.schema import schema
from entrypoint.spec import JobSpec, Override, check_host, fields, load
from tests import apis, table

ROOT = Path(__file__).parents[2]
ADAPTERS = {
    "launchers": ["mpirun", "plain", "torchlaunch", "torchrun"],
    "platforms": ["local", "modelarts"],
    "devices": ["cpu", "nvidia"],
}


@pytest.fixture(autouse=True)
def _known_adapters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "names", ADAPTERS.__getitem__)


def job(
    text: str | None = None, env: Mapping[str, str] | None = None, /, **flags: Override
) -> JobSpec:
    return load(
        text, "job.yaml", env or {}, {path.replace("__", "."): flag for path, flag in flags.items()}
    )


def problems(
    text: str | None = None, env: Mapping[str, str] | None = None, /, **flags: Override
) -> list[str]:
    with pytest.raises(SpecError) as caught:
        job(text, env, **flags)
    assert caught.value.status == 65
    return caught.value.lines()


def at(spec: JobSpec, path: str) -> Any:
    return spec.value(path)


# --------------------------------------------------------------------------------------------------
# Messages

SIX_MISTAKES = """\
name: demo
comand: [python, train.py]
slots: four
hosts:
  - worker-0
  - worker_1-
ssh:
  port: 70000
env:
  VERSION: [1.10]
launcher: mpirum
"""


@pytest.mark.promise("all mistakes of a spec are told at once, each with its place")
def test_six_mistakes_are_six_lines() -> None:
    assert problems(SIX_MISTAKES) == [
        "job.yaml:2:1: comand: EP102 unknown key | `comand` | did you mean `command`?",
        (
            'job.yaml:3:8: slots: EP100 a whole number from 1 to 4096 is needed | "four" | write'
            " for example 1"
        ),
        (
            "job.yaml:6:5: hosts.1: EP100 not a host name: a label of it begins or ends with"
            ' `-` | "worker_1-" | rename the host, or write NAME=ADDRESS'
        ),
        (
            "job.yaml:8:9: ssh.port: EP100 a whole number from 1 to 65535, or `auto` is needed |"
            " 70000 | write for example 36666"
        ),
        "job.yaml:10:12: env.VERSION: EP100 text is needed | a list | write one value",
        (
            'job.yaml:11:11: launcher: EP100 there is no such launcher | "mpirum" | did you mean'
            " `mpirun`?"
        ),
    ]


NOTHING = 'EP100 text is needed | nothing | write text in quotes ("" for empty text), or remove it'

MISTAKES = table("tests/tables/spec.yaml")


@pytest.mark.control("all mistakes of a spec are told at once, each with its place")
@pytest.mark.parametrize(("text", "expected"), MISTAKES["file"])
def test_one_mistake_is_one_line(text: str, expected: str) -> None:
    assert problems(text) == [f"job.yaml:{expected}"]


@pytest.mark.parametrize(("env", "expected"), MISTAKES["variables"])
def test_a_variable_is_judged_like_the_file(env: dict[str, str], expected: str) -> None:
    assert problems(None, env) == [f"{next(iter(env))}: {expected}"]


def test_a_list_in_a_variable_tells_where_in_it() -> None:
    assert problems(None, {"ENTRYPOINT_COMMAND": "[a, ~]"}) == [
        f"ENTRYPOINT_COMMAND:1:5: command.1: {NOTHING}"
    ]
    assert problems(None, {"ENTRYPOINT_COMMAND": "[a, !x b]"}) == [
        "ENTRYPOINT_COMMAND:1:5: command.1: EP101 this tag is not allowed here | `!x` | remove"
        " the tag"
    ]


def test_problems_of_all_three_come_sorted() -> None:
    lines = problems(
        "slots: 0\nname: A\nhosts: [b-, a-]",
        {"ENTRYPOINT_ZZ": "1", "ENTRYPOINT_NAME": "-", "ENTRYPOINT_PORT": "x"},
        slots=Override("-1", "--slots"),
        env=Override(["A"], "--env"),
    )
    assert [line.split(": ")[0] for line in lines] == [
        *("job.yaml:1:8", "job.yaml:2:7", "job.yaml:3:9", "job.yaml:3:13"),
        *("ENTRYPOINT_NAME", "ENTRYPOINT_PORT", "ENTRYPOINT_ZZ", "--env", "--slots"),
    ]


def test_problems_of_variables_come_in_the_order_of_their_names() -> None:
    """Also where a place within a variable is known."""
    lines = problems(None, {"ENTRYPOINT_SLOTS": "x", "ENTRYPOINT_COMMAND": "[a, ~]"})
    assert [line.split(": ")[0] for line in lines] == ["ENTRYPOINT_COMMAND:1:5", "ENTRYPOINT_SLOTS"]


def test_a_long_path_of_a_file_is_cut() -> None:
    with pytest.raises(SpecError) as caught:
        load("slots: 0", "x" * 300, {}, {})
    (line,) = caught.value.lines()
    assert line.startswith("x" * 199 + "…: slots: EP100 ")


def test_a_file_that_is_no_yaml_hides_no_other_mistake() -> None:
    lines = problems("a: [", {"ENTRYPOINT_SLOTS": "x", "ENTRYPOINT_SSH_HOST_KEY": "/k"})
    assert [line.split(": ")[0] for line in lines] == ["job.yaml:1:5", "ENTRYPOINT_SLOTS"]


@pytest.mark.parametrize(
    ("text", "env", "flags"),
    [
        ("secret: hunter2hunter2", {}, {}),
        ("password: {hunter2hunter2: 1}", {}, {}),
        ("secret: 'hunter2hunter2", {}, {}),
        ("secret: *hunter2hunter2", {}, {}),
        ("secret: !hunter2hunter2 x", {}, {}),
        ("ssh: {secret: hunter2hunter2}", {}, {}),
        ("env: {ENTRYPOINT_SECRET: hunter2hunter2}", {}, {}),
        ("env: {DB_PASSWORD: [hunter2hunter2]}", {}, {}),
        (None, {"ENTRYPOINT_SECRET": "hunter2hunter2"}, {}),
        (None, {"ENTRYPOINT_SECRET": "hunter2hunter2" * 2, "ENTRYPOINT_SECRET_FILE": "/s", "ENTRYPOINT_SLOTS": "x"}, {}),
        (None, {"ENTRYPOINT_SECRT": "hunter2hunter2"}, {}),
        (None, {"ENTRYPOINT_ENV": '{"PASSWORD": hunter2hunter2}'}, {}),
        (None, {"ENTRYPOINT_COMMAND": "train.py --password 'hunter2hunter2"}, {}),
        (None, {}, {"env": Override(["ENTRYPOINT_SECRET=hunter2hunter2"], "--env")}),
        (None, {}, {"env": Override(["MY_TOKEN hunter2hunter2"], "--env")}),
    ],
)  # fmt: skip
def test_no_message_shows_a_secret(
    text: str | None, env: dict[str, str], flags: dict[str, Override]
) -> None:
    assert "hunter2" not in "\n".join(problems(text, env, **flags))


# --------------------------------------------------------------------------------------------------
# Which value counts

ENV = {"ENTRYPOINT_SSH_PORT": "3", "MY_SSHD_PORT": "4", "SSHD_PORT": "5"}
SPEC_PORT = "\nssh:\n  port: 6\n"


@pytest.mark.promise(
    "a flag wins over a variable, a variable over the file", control="its own cases"
)
@pytest.mark.parametrize(
    ("text", "env", "flag", "port", "source"),
    [
        (SPEC_PORT, ENV, "2", 2, Source("flag", "--ssh-port")),
        (SPEC_PORT, ENV, None, 3, Source("env", "ENTRYPOINT_SSH_PORT")),
        (SPEC_PORT, {**ENV, "ENTRYPOINT_SSH_PORT": ""}, None, 4, Source("env", "MY_SSHD_PORT")),
        (SPEC_PORT, {"MY_SSHD_PORT": "", "SSHD_PORT": "5"}, None, 5, Source("env", "SSHD_PORT")),
        (SPEC_PORT, {"SSHD_PORT": ""}, None, 6, Source("spec", "job.yaml:3:9")),
        ("ssh: {port: ~}", {}, None, 36666, Source("default")),
        ("ssh: {port: }", {}, None, 36666, Source("default")),
        ("ssh: {port: null}", {}, None, 36666, Source("default")),
        ("ssh:", {}, None, 36666, Source("default")),
        ("", {}, None, 36666, Source("default")),
        (None, {}, None, 36666, Source("default")),
    ],
)
def test_precedence(
    text: str | None, env: dict[str, str], flag: str | None, port: int, source: Source
) -> None:
    result = job(text, env, **({"ssh__port": Override(flag, "--ssh-port")} if flag else {}))
    assert result.ssh.port == port
    assert result.source("ssh.port") == source


def test_a_mistake_in_the_file_is_reported_although_a_flag_overrides_it() -> None:
    assert problems("slots: x", slots=Override("2", "--slots")) == [
        'job.yaml:1:8: slots: EP100 a whole number from 1 to 4096 is needed | "x" | write for'
        " example 1"
    ]


def test_what_another_tool_left_does_not_matter_where_our_own_variable_is_set() -> None:
    assert job(None, {"SSHD_PORT": "10.0.0.1:22", "ENTRYPOINT_SSH_PORT": "22"}).ssh.port == 22


# What Kubernetes 1.37 set in a Pod beside Services named entrypoint, entrypoint-api, entrypoint-ssh
# and sshd.
SERVICES = {
    **dict.fromkeys(("ENTRYPOINT_SERVICE_HOST", "ENTRYPOINT_API_SERVICE_HOST"), "10.96.7.1"),
    **dict.fromkeys(("ENTRYPOINT_SERVICE_PORT", "ENTRYPOINT_API_SERVICE_PORT_HTTP"), "8080"),
    **dict.fromkeys(
        ("ENTRYPOINT_PORT", "ENTRYPOINT_API_PORT", "ENTRYPOINT_API_PORT_8080_TCP"),
        "tcp://10.96.7.1:8080",
    ),
    **{"ENTRYPOINT_API_PORT_8080_TCP_PROTO": "tcp", "ENTRYPOINT_API_PORT_8080_TCP_PORT": "8080"},
    **{
        "ENTRYPOINT_API_PORT_8080_TCP_ADDR": "10.96.7.1",
        "ENTRYPOINT_API_PORT_53_UDP": "udp://10.96.7.1:53",
    },
    **{"ENTRYPOINT_SSH_PORT": "tcp://10.96.7.2:22", "SSHD_PORT": "tcp://10.96.7.3:22"},
}


def test_variables_of_kubernetes_services_are_no_settings() -> None:
    made = job(None, SERVICES)
    assert (made.ssh.port, made.source("ssh.port")) == (36666, Source("default"))
    assert spec.load(None, "", {**SERVICES, "ENTRYPOINT_SSH_PORT": "22"}, {}).ssh.port == 22


@pytest.mark.parametrize(
    "name", ["ENTRYPOINT_API_PORT", "ENTRYPOINT_API_PORT_8080", "ENTRYPOINT_SERVICE_NAME"]
)
def test_what_has_not_their_form_is_a_mistake_still(name: str) -> None:
    with pytest.raises(SpecError, match="EP102 no such setting"):
        job(None, {name: "8080"})


@pytest.mark.parametrize("path", ["run_dir", "log_dir", "workdir", "secret_file", "mpi.hostfile"])
def test_a_path_has_one_spelling(path: str) -> None:
    """Names are put after it: `-state.json`, `/rank.env`."""
    for text in ("/x/run", "/x/run/", "//x//run", "/x/./run//"):
        made = job(None, {f"ENTRYPOINT_{path.upper().replace('.', '_')}": text})
        assert operator.attrgetter(path)(made) == "/x/run"


def test_variables_for_the_job_are_laid_over_each_other() -> None:
    result = job(
        "env:\n  A: spec\n  B: spec\n  C: spec\n",
        {"ENTRYPOINT_ENV": '{"B": "env", "C": "env", "D": "\\ud83d\\ude00"}'},
        env=Override(["C=flag=1", "E="], "--env"),
    )
    assert result.env == {"A": "spec", "B": "env", "C": "flag=1", "D": "😀", "E": ""}
    assert {name: str(result.source(f"env.{name}")) for name in result.env} == {
        "A": "spec job.yaml:2:6",
        "B": "env ENTRYPOINT_ENV",
        "C": "flag --env",
        "D": "env ENTRYPOINT_ENV",
        "E": "flag --env",
    }


WRITTEN = """\
name: 5
nodes: 2:4
slots: 08
command: [prog, 5, on, 1.10]
launcher_args: [2.10]
timeouts: {grace: 1e1, peers: "60"}
env: {A: no, B: 8, C: 1.10, D: 22:22, E: 0755, F: 2024-01-01, G: "null", H: ~/data}
"""


def test_a_value_means_what_is_written() -> None:
    result = job(WRITTEN, {"ENTRYPOINT_ENV": '{"I": 1.50, "J": true, "K": 8}'})
    expected = ("5", "2:4", 8, ("2.10",))
    assert (result.name, result.nodes, result.slots, result.launcher_args) == expected
    assert result.command == ("prog", "5", "on", "1.10")
    assert (result.timeouts.grace, result.timeouts.peers) == (10, 60)
    file = {
        "A": "no",
        "B": "8",
        "C": "1.10",
        "D": "22:22",
        "E": "0755",
        "F": "2024-01-01",
        "G": "null",
        "H": "~/data",
    }
    assert result.env == {**file, "I": "1.50", "J": "true", "K": "8"}
    apis.validator(schema()).validate(
        {
            "env": {"A": False, "B": 8, "C": 1.1},
            "launcher_args": [2.1],
            "command": ["prog", 5, True],
        }
    )


def test_no_file_at_all_is_a_job() -> None:
    result = job(command=Override(["python", "train.py", "--lr", "1.0"], "--"))
    assert result.command == ("python", "train.py", "--lr", "1.0")
    assert str(result.source("command")) == "flag --"
    assert result.name == "job"


SECRET_TEXT = secrets.token_hex(8)


@pytest.mark.parametrize(
    ("text", "env", "flag", "secret", "file"),
    [
        (None, {"ENTRYPOINT_SECRET": SECRET_TEXT}, None, SECRET_TEXT, None),
        (None, {"ENTRYPOINT_SECRET": ""}, None, None, None),
        ("secret_file: s", {}, None, None, "s"),
        ("secret_file: s", {"ENTRYPOINT_SECRET": SECRET_TEXT}, None, SECRET_TEXT, None),
        ("secret_file: s", {"ENTRYPOINT_SECRET": SECRET_TEXT}, "f", None, "f"),
        (None, {"ENTRYPOINT_SECRET": "éàüöçñøå"}, None, "éàüöçñøå", None),
    ],
    ids=[
        "variable", "empty", "file", "variable over spec", "flag over variable",
        "bytes, not letters, count",
    ],
)  # fmt: skip
def test_one_secret_counts(
    text: str | None, env: dict[str, str], flag: str | None, secret: str | None, file: str | None
) -> None:
    result = job(text, env, **({"secret_file": Override(flag, "--secret-file")} if flag else {}))
    assert (result.secret.value if result.secret else None) == secret
    assert result.secret_file == file
    assert SECRET_TEXT not in f"{result!r} {result} {vars(result)} {result.secret!r}"


# --------------------------------------------------------------------------------------------------
# Values as text

FULL = load((ROOT / "examples/spec/full.yaml").read_text(), "full.yaml", {}, {})
# Fields that another one is needed for.
WITH = {
    "ssh.client_key": {"ENTRYPOINT_SSH_HOST_KEY": "/k"},
    "ssh.host_key": {"ENTRYPOINT_SSH_CLIENT_KEY": "/k"},
    "restarts.progress": {"ENTRYPOINT_RESTARTS_WITHOUT_PROGRESS": "3"},
}


@pytest.mark.parametrize("field", fields(), ids=lambda field: str(field.path))
def test_every_field_has_its_variables(field: spec.FieldInfo) -> None:
    assert field.description, f"describe {field.path} in the docstring of its section"
    assert FULL.source(field.path).origin == "spec", f"add {field.path} to examples/spec/full.yaml"
    value = at(FULL, field.path)
    text = json.dumps(value) if field.kind in ("list", "mapping") else str(value)
    assert field.env == "ENTRYPOINT_" + field.path.upper().replace(".", "_")
    for variable in (field.env, *field.aliases):
        result = job(None, {variable: text, **WITH.get(field.path, {})})
        assert at(result, field.path) == value
        assert result.source(field.path) == Source("env", variable)
    assert field.default == at(JobSpec(), field.path)


# Attributes that are read, such as `spec.slots`; not what tells a user to set `slots`.
READ = {
    node.attr
    for path in (ROOT / "entrypoint").rglob("*.py")
    for node in ast.walk(ast.parse(path.read_text()))
    if isinstance(node, ast.Attribute)
}
DOCS = "".join(
    path.read_text()
    for folder in ("tutorial", "how-to", "reference", "explanation")
    for path in (ROOT / "docs" / folder).glob("*.md")
    if path.name != "spec.md"
)


@pytest.mark.parametrize("field", fields(), ids=lambda field: str(field.path))
def test_every_field_is_used_and_described(field: spec.FieldInfo) -> None:
    name = field.path.rpartition(".")[2]
    is_described = re.search(rf"\b({name}|{field.env})\b", DOCS)
    assert name in READ, f"use {field.path} where its value takes effect"
    assert is_described is not None, f"describe {field.path} on a page of docs/"


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("HOSTS", "a, b:3=10.0.0.1\tc=fe80::1\nd=e.f", ("a", "b:3=10.0.0.1", "c=fe80::1", "d=e.f")),
        ("COMMAND", "python 'a b' \"c\"", ("python", "a b", "c")),
        ("COMMAND", '["python", "a \\ud83d\\ude00"]', ("python", "a 😀")),
        ("COMMAND", "[python, 'a b', \"5\"]", ("python", "a b", "5")),
        ("COMMAND", "[]", ()),
        ("COMMAND", "sh -c 'exit 3'", ("sh", "-c", "exit 3")),
        ("SLOTS", " 7 ", 7),
        ("LAUNCHER_ARGS", "[--use_fsdp]", ("--use_fsdp",)),
    ],
)
def test_values_as_text(name: str, text: str, value: object) -> None:
    result = job(None, {f"ENTRYPOINT_{name}": text})
    path = name.lower()
    assert at(result, path) == value
    assert result.source(path) == Source("env", f"ENTRYPOINT_{name}")


def test_variables_are_all_different() -> None:
    names = [name for field in fields() for name in (field.env, *field.aliases, *field.flags)]
    assert len(names) == len(set(names))


def test_every_byte_of_a_value_survives() -> None:
    value = 'a \'b\' "c" $HOME; `d`\n\t= {"e": 1} é =' + "x" * 100_000
    text = yaml.safe_dump({"env": {"A": value}, "command": [value]})
    assert job(text).env["A"] == value
    assert job(text).command == (value,)
    assert job(None, {"ENTRYPOINT_ENV": json.dumps({"A": value})}).env["A"] == value
    assert job(None, {"ENTRYPOINT_COMMAND": json.dumps([value])}).command == (value,)
    assert job(env=Override([f"A={value}"], "--env")).env["A"] == value


@pytest.mark.parametrize(("name", "wrong"), MISTAKES["hosts"])
def test_host_names(name: str, wrong: str | None) -> None:
    assert check_host(name) == wrong


# --------------------------------------------------------------------------------------------------
# The rest of the promise


EXAMPLES = sorted((ROOT / "examples/spec").glob("*.yaml"))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: str(path.name))
def test_the_examples_are_right_and_the_schema_says_so(path: Path) -> None:
    text = path.read_text()
    load(text, path.name, {}, {})
    apis.validator(schema()).validate(yaml.safe_load(text))


@pytest.mark.parametrize(
    "document",
    [
        {"slotz": 1}, {"ssh": {"prot": 1}}, {"secret": "x"}, {"slots": "1"}, {"slots": 0},
        {"launcher": "mpirum"}, {"env": {"1A": "x"}}, {"env": {"A": None}}, {"env": {"A": [1]}},
        {"command": "python"},
    ],
)  # fmt: skip
def test_the_schema_refuses(document: object) -> None:
    assert not apis.validator(schema()).is_valid(document)


def test_the_schema_is_one_an_editor_can_use() -> None:
    result = schema()
    apis.validator(result).check_schema(result)
    assert result["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert result["title"] == "entrypoint job spec"
    assert result["properties"]["name"]["default"] == "job"
    assert result["properties"]["slots"]["description"].startswith("Processes (ranks) on each node")
    assert result["properties"]["launcher"]["anyOf"][0]["enum"] == split(
        "mpirun plain torchlaunch torchrun"
    )
    assert result["properties"]["restarts"]["default"]["most"] == 0
    assert '"x-' not in json.dumps(result, allow_nan=False)


KEYS = st.sampled_from([*vars(JobSpec()), "port", "np", "secret", "x", "a b", "1"])
VALUES = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8),
        st.sampled_from(["a", "no"]),
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(KEYS, inner, max_size=3)),
    max_leaves=8,
)  # fmt: skip
DOCUMENTS = st.one_of(
    st.text(),
    st.binary().map(lambda data: data.decode(errors="surrogateescape")),
    st.dictionaries(KEYS, VALUES).map(
        lambda document: yaml.safe_dump(document, allow_unicode=True)
    ),
    st.dictionaries(KEYS, VALUES).map(json.dumps),
)
VARIABLES = st.dictionaries(
    st.sampled_from([field.env for field in fields()]), st.one_of(st.text(), VALUES.map(str))
)


@given(DOCUMENTS, VARIABLES, st.lists(st.text()))
@example(
    "", {"ENTRYPOINT_SLOTS": "4\x1f", "ENTRYPOINT_TIMEOUTS_GRACE": "\x1c.5"}, []
)  # white space, but not to int()
def test_nothing_but_a_spec_error_comes_out(
    text: str, env: dict[str, str], words: list[str]
) -> None:
    flags = {"command": Override(words, "--"), "env": Override(words, "--env")}
    lines = ["fine"]
    try:
        load(text, "job.yaml", env, flags)
    except SpecError as error:
        lines = error.lines()
    assert lines
    assert all(line and "\n" not in line for line in lines)
