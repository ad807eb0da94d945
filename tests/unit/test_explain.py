"""`entrypoint explain`: every message has an id and every id an explanation, held by reading the
source."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator

import pytest

from entrypoint.base import errors
from entrypoint.base.errors import UsageError
from entrypoint.features import explain
from entrypoint.spec import fields
from entrypoint.spec.table import RESERVED
from tests import TREE, golden_messages, table

TABLE = table("tests/tables/explain.yaml")

pytestmark = pytest.mark.see

ID = r"EP[0-9]{3}"
CLASSES = {name: kind for name, kind in vars(errors).items() if isinstance(kind, type)}
ENDS = {
    name: kind.status for name, kind in CLASSES.items() if issubclass(kind, errors.EntrypointError)
}
ENDS |= {"RunDirTaken": 78}
# Where the words come from somewhere else, which gives them their id.
PASSED_ON = TABLE["passed_on"]


def sources() -> Iterator[tuple[str, str]]:
    for folder, pattern in ((TREE / "entrypoint", "*.py"), (TREE / "templates", "*")):
        for path in sorted(folder.rglob(pattern)):
            name = path.relative_to(folder).as_posix()
            if path.is_file() and "__pycache__" not in name:
                yield name, path.read_text(encoding="utf-8")


def given(name: str, source: str) -> Iterator[str]:
    """The ids that a source gives to messages."""
    if not name.endswith(".py"):
        yield from re.findall(rf"\b({ID}) ", source)
        return
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield from re.findall(rf"^(?:warning: |[\w.]+: )?({ID})(?: |$)", node.value)


def without_id(name: str, source: str) -> list[str]:
    """The messages that end a job, or warn, and have no id; and those whose status is not their
    entry's."""
    wrong = []
    tree = ast.parse(source)
    inside = {child: outer for outer in ast.walk(tree) for child in ast.iter_child_nodes(outer)}
    for node in ast.walk(tree):
        first = node.values[0] if isinstance(node, ast.JoinedStr) else None
        if isinstance(first, ast.Constant) and re.match(rf"warning: (?!{ID} |$)", str(first.value)):
            wrong.append(f"{name}:{first.lineno}: {ast.unparse(node)}")
        kind = getattr(node.func, "id", "") if isinstance(node, ast.Call) else ""
        at = {"Problem": 2, "problem": 2, "Outcome": 1}.get(kind, 0)
        if kind not in (*ENDS, "Problem", "problem", "Outcome") or kind == "SpecError":
            continue
        assert isinstance(node, ast.Call)
        words = [*node.args[at : at + 1], *node.args[:1], *node.keywords[:1]][0]
        if ast.unparse(words) in PASSED_ON.get(name, ()):
            continue
        ids = {re.match(rf"({ID}) ", each) for each in begins(words, node, inside)}
        if None in ids or not ids:
            wrong.append(f"{name}:{node.lineno}: {ast.unparse(node)}")
        ends = ENDS.get(kind, 0)
        for match in filter(None, ids):
            entry = explain.messages().get(match[1])
            if entry and ends and not any(explain.fits(ends, each) for each in entry.statuses):
                wrong.append(f"{name}:{node.lineno}: {match[1]} ends with {ends}")
    return wrong


def begins(words: ast.AST, call: ast.AST, inside: dict[ast.AST, ast.AST]) -> list[str]:
    """How a message may begin; a name stands for all that its function gives it."""
    if isinstance(words, ast.Constant):
        return [str(words.value)]
    if isinstance(words, ast.BinOp):
        return begins(words.left, call, inside)
    if isinstance(words, ast.JoinedStr):
        first = words.values[0]
        if isinstance(first, ast.Constant):
            return [str(first.value)]
        assert isinstance(first, ast.FormattedValue)
        return ["EP000 "] if ast.unparse(first.value) == "id" else begins(first.value, call, inside)
    if isinstance(words, ast.BoolOp):
        return [each for value in words.values for each in begins(value, call, inside)]
    if ast.unparse(words).startswith("self._peers.stood_still("):
        return []  # it gives its own, or nothing
    if isinstance(words, ast.Call) and words.args:  # such as ended(f"EP608 ...", status)
        return begins(words.args[0], call, inside)
    if isinstance(words, ast.IfExp):
        return [*begins(words.body, call, inside), *begins(words.orelse, call, inside)]
    if not isinstance(words, ast.Name):
        return [""]
    function = call
    while not isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
        function = inside[function]
    found = []
    for node in ast.walk(function):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                pairs = [(target, node.value)]
                if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                    pairs = list(zip(target.elts, node.value.elts, strict=True))
                found += [value for name, value in pairs if getattr(name, "id", "") == words.id]
    return [each for value in found for each in begins(value, call, inside)]


@pytest.mark.textual
@pytest.mark.promise(
    "every message that ends a job or warns has an id and an explanation",
    control="messages without one, in the same tests",
)
@pytest.mark.see("words", "every message that ends a job or warns has an id")
def test_every_message_that_ends_a_job_has_an_id() -> None:
    modules = [each for each in sources() if each[0].endswith(".py")]
    assert [line for each in modules for line in without_id(*each)] == []
    # Control: one without, one with the wrong status, one whose words are made on another line.
    plain = 'def f():\n    what = "no id"\n    raise ConfigError(what, seen, do)\n'
    assert without_id("x.py", plain) == ["x.py:3: ConfigError(what, seen, do)"]
    assert without_id("x.py", 'ConfigError("EP500 late")') == ["x.py:1: EP500 ends with 78"]
    assert (
        without_id("x.py", 'def f():\n    what = f"EP300 {a}"\n    raise ConfigError(what)\n') == []
    )
    assert without_id("x.py", 'say(f"warning: {words}", f"warning: few {what}")') == [
        "x.py:1: f'warning: few {what}'"
    ]


@pytest.mark.textual
@pytest.mark.promise("every message that ends a job or warns has an id and an explanation")
@pytest.mark.see("words", "every id has an entry, and every entry a message")
def test_every_id_has_an_entry_and_every_entry_a_place(
    record_property: Callable[[str, object], None],
) -> None:
    found = {id for name, source in sources() for id in given(name, source)}
    record_property("seen", f"{len(found)} ids, {len(explain.messages())} entries")
    assert found - set(explain.messages()) == set()
    assert set(explain.messages()) - found == set()
    files = (TREE / "entrypoint").rglob("messages.yaml")
    ids = [id for file in files for id in re.findall(rf"(?m)^ *({ID}):$", file.read_text())]
    assert sorted(ids) == sorted(explain.messages()), "each is in one file"
    # Control: what is only mentioned is no place.
    said = 'say("ask for EP500"), say("EP501 no"), f(what, "EP502"), say(f"warning: EP503 {x}")'
    assert [*given("x.py", said)] == ["EP501", "EP502", "EP503"]


def test_an_entry_says_all_three_things() -> None:
    keys = {"cause", "confirm", "fix"}
    assert {frozenset(each) for each in explain.source()["statuses"].values()} == {
        frozenset({*keys, "name"})
    }
    rest = [*explain.source()["waiting"], *explain.source()["others"]]
    assert {frozenset(each) for each in rest} == {frozenset({"says", "cause", "fix"})}
    names = {name for field in fields() for name in (field.env, *field.aliases)}
    names |= {*RESERVED, "ENTRYPOINT_TRACE"}
    for entry in [*explain.messages().values(), *explain.statuses()]:
        assert all((entry.says, entry.statuses, entry.cause, entry.confirm, entry.fix)), entry.id
        text = f"{entry.cause} {entry.confirm} {entry.fix}"
        assert {*re.findall(r"\bENTRYPOINT_[A-Z_]+\b", text)} <= names, entry.id


def test_every_status_of_ours_is_explained() -> None:
    ours = {*errors.CLASSES, errors.EXIT_NOT_EXECUTABLE, errors.EXIT_NOT_FOUND}
    assert {*map(str, ours)} <= {entry.id for entry in explain.statuses()}
    assert [entry.id for entry in explain.statuses() if not entry.id.isdigit()] == ["1-63", "128+n"]
    for number in range(256):
        assert explain.of_status(number).cause


@pytest.mark.promise("every message that ends a job or warns has an id and an explanation")
def test_the_site_s_page_has_every_message() -> None:
    page = golden_messages.markdown()
    assert re.findall(r"(?m)^### (EP\d+)$", page) == [*explain.messages()]
    entries = [*explain.messages().values(), *explain.statuses()]
    assert [entry.id for entry in entries if entry.fix.rstrip(".") not in page] == []


@pytest.mark.parametrize(("asked", "said"), TABLE["answers"])
def test_what_is_answered(asked: str, said: str) -> None:
    assert said in explain.explanation(asked, 100)


@pytest.mark.parametrize(
    ("asked", "advice"),
    [
        ("EP30", "give an id"),
        ("EP999", "`entrypoint explain` lists all"),
        ("fish", "`entrypoint explain` lists all"),
        ("256", "0 to 255"),
    ],
)
def test_what_is_unknown_gets_advice(asked: str, advice: str) -> None:
    with pytest.raises(UsageError, match=f"EP130 there is no such .*{advice}"):
        explain.explanation(asked, 100)


def test_no_line_is_wider_than_the_terminal() -> None:
    everything = [explain.explanation(asked, 60) for asked in ("", "75", *explain.messages())]
    lines = [line for page in everything for line in page.splitlines() if "http" not in line]
    assert max(map(len, lines)) <= 60
