"""The table of promises: what the markers `promise` and `control` on tests say. `scripts/test promises`
prints it.

A promise is held by tests with the marker `promise(text)`. Its negative control, which shows that
they can fail, is a test with `control(text)`, or what `promise(text, control=...)` names within the
test itself.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

TESTS = Path(__file__).resolve().parent
KINDS = ("pytest.mark.promise", "pytest.mark.control")


@dataclass
class Promise:
    """A promise: the tests that hold it, and its controls."""

    text: str
    tests: list[str] = field(default_factory=list)
    controls: list[str] = field(default_factory=list)

    @property
    def lacks(self) -> str:
        """Return what it is without, "" for nothing."""
        return "" if self.tests and self.controls else "a control" if self.tests else "a test"


def sources() -> dict[str, str]:
    """Return the modules that have such markers: path below tests/ -> text."""
    paths = sorted(TESTS.glob("*/test_*.py"))
    texts = {path.relative_to(TESTS).as_posix(): path.read_text(encoding="utf-8") for path in paths}
    return {
        path: text for path, text in texts.items() if any(f"@{kind}(" in text for kind in KINDS)
    }


def promises(sources: Mapping[str, str]) -> list[Promise]:
    """Return the promises of these modules, in alphabetical order."""
    found: dict[str, Promise] = {}
    for path, source in sources.items():
        module = ast.parse(source)
        named = _texts(module)
        for test, marker in _markers(module):
            (word,) = marker.args
            text = named[word.id] if isinstance(word, ast.Name) else ast.literal_eval(word)
            promise = found.setdefault(text, Promise(text))
            name = f"{path}::{test}"
            is_control = ast.unparse(marker.func) == KINDS[1]
            (promise.controls if is_control else promise.tests).append(name)
            promise.controls += [ast.literal_eval(keyword.value) for keyword in marker.keywords]
    return sorted(found.values(), key=lambda promise: promise.text.lower())


def table(promises: list[Promise]) -> str:
    """Return one paragraph for each promise: its text, its tests, its controls."""
    lines = []
    for promise in promises:
        lines.append(promise.text + (f"  [LACKS {promise.lacks}]" if promise.lacks else ""))
        lines += [f"    {test}" for test in promise.tests]
        lines += [f"    control: {control}" for control in promise.controls]
    return "\n".join(lines)


def _texts(module: ast.Module) -> dict[str, str]:
    """Return the texts that this module names."""
    return {
        node.targets[0].id: node.value.value
        for node in module.body
        if isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Name)
        and isinstance(node.value, ast.Constant)
    }


def _markers(module: ast.Module) -> Iterator[tuple[str, ast.Call]]:
    """Yield the markers of a module, each with the name of its test."""
    for node in module.body:
        for marker in getattr(node, "decorator_list", ()):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and ast.unparse(
                marker
            ).startswith(KINDS):
                yield node.name, marker


if __name__ == "__main__":
    every = promises(sources())
    print(table(every))
    print(f"{len(every)} promises, held by {sum(len(promise.tests) for promise in every)} tests")
