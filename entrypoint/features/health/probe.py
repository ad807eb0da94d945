"""The probes of `entrypoint check`, one class for each matter: what it reads on a node, what that
means for the job there, what must be alike on all nodes, and what users are told.

The fields of a class are what travels to worker-0; None, "" and () mean that it is not known.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, partial
from typing import Any, TypeVar

from entrypoint.base.model import Facts, Finding, Node, NodeReport, Plan
from entrypoint.base.values import frozen
from entrypoint.spec import JobSpec

_ONE_IMAGE = "start all nodes from one image, by its digest"
_P = TypeVar("_P", bound="Probe")

Fields = dict[str, Any]  # of one or several classes
Findings = Iterator[Finding]


@frozen
class Inputs:
    """The inputs of a node's probes. `limit`: seconds for each program that is asked, and for each
    name to have an address, since the name servers of nodes may learn them one after the other."""

    spec: JobSpec
    facts: Facts
    plan: Plan
    limit: float
    spec_file: str = ""


@frozen
class NodeView:
    """A node, as it is judged by this plan, which may have been made on another one: what it has
    answered to the roll call, and what its probes have found."""

    plan: Plan
    node: Node
    report: NodeReport | None
    results: Mapping[type[Probe], Probe]

    def of(self, kind: type[_P]) -> _P:
        """Return the result of a probe."""
        result = self.results[kind]
        assert isinstance(result, kind)
        return result


class Probe:
    """One matter that is probed.

    `name`: of its only reading; `is_cheap`: it takes milliseconds, starts no program, and may
    explain a failed boot; `fatal`: the id of a difference that is an error; `absent`: stands for a
    value that other nodes have.

    `texts`: under "page" its row in docs/how-to/check.md; under each id what it is about, what is
    needed, and the fix; after "differs" what differs, and the fix unless that is another image. A
    line that is indented more goes on with a row. An id stays the same in every release; behind a /
    in it is which of several cases this is.
    """

    name = ""
    is_cheap = False
    fatal = ""
    absent = ""
    texts = ""

    @classmethod
    def readings(cls, inputs: Inputs) -> dict[str, Callable[[], Fields]]:
        """Return what is read on a node, each in a thread of its own, by the name that people get
        if it fails or has no end."""
        return {cls.name: partial(cls.read, inputs)} if cls.name else {}

    @staticmethod
    def read(inputs: Inputs) -> Fields:
        """Return fields of this class, or of others that it learns by the way."""
        return {}

    def judge(self, view: NodeView) -> Findings:
        """Yield what this means for a node."""
        yield from ()

    def alike(self, view: NodeView) -> Mapping[str, str]:
        """Return what should be the same on all nodes: its id, and its name if there are several of
        one id -> the value; "" is not known, and is not compared."""
        return {}

    @classmethod
    def compare(cls, views: Sequence[NodeView]) -> Findings:
        """Yield a finding for each value that is not the one of most nodes; of two as frequent, the
        first node's is that of most."""
        values = [(view, view.of(cls).alike(view)) for view in views if view.results]
        for key in dict.fromkeys(key for _, of_node in values for key in of_node):
            labels: dict[str, list[str]] = {}
            for view, of_node in values:
                if value := of_node.get(key, cls.absent):
                    labels.setdefault(value, []).append(view.node.label)
            if len(labels) < 2:
                continue
            id, _, name = key.partition(" ")
            usual = max(labels, key=lambda value: len(labels[value]))
            first, *more = labels.pop(usual)
            usual += f", as {first}{f' and {len(more)} more' if more else ''}"
            fatal = (cls.fatal, *views[0].plan.launch.needs_programs)
            level = "error" if id in fatal else "warning"
            for value, nodes in labels.items():
                key = f"differs-{id}"
                yield cls.finding(level, key, value, tuple(nodes), usual=usual, name=name)

    @classmethod
    def finding(
        cls, level: str, key: str, seen: str, nodes: tuple[str, ...] = (), **values: object
    ) -> Finding:
        """Return a finding with the texts of this key; `values` fill their places."""
        what, needed, fix, *_ = (text.format(**values) for text in rows(cls.texts)[key])
        return Finding(level, key.partition("/")[0], what, seen, needed, fix, nodes)


@cache
def rows(texts: str) -> dict[str, list[str]]:
    """Return the texts of a probe by their keys."""
    lines = re.sub(r"\n {5,}", " ", texts).splitlines()
    found = {}
    for line in filter(str.strip, lines):
        key, what, *cells = (cell.strip() for cell in line.split("|"))
        if key.startswith("differs-"):
            what, cells = f"{what} differs", ["{usual}", *(cells or [_ONE_IMAGE])]
        found[key] = [what, *cells, "", ""]
    return found
