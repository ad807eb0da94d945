"""The diagnosis of a node's failures: how much time it takes in all."""

from __future__ import annotations

import pytest

from entrypoint.job import messages
from entrypoint.ranks import diagnosis
from entrypoint.ranks.keeping import Failure
from tests.process.diagnoses import causes


@pytest.mark.parametrize(("most", "judged"), [(0.0, 0), (1e9, messages.CAUSES)])
def test_the_judgements_of_a_node_take_a_bounded_time_in_all(
    most: float, judged: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without time the ends alone are judged; each failure has a cause."""
    monkeypatch.setattr(diagnosis, "MOST", most)
    count = messages.CAUSES + 8
    found = causes(*(Failure(f"rank {rank}", 1, ("KeyError: 'a'",)) for rank in range(count)))
    assert len(found) == messages.CAUSES
    assert sum(bool(cause.lines) for cause in found) == judged


@pytest.mark.parametrize("names_nodes", [True, False])
def test_a_printed_address_names_the_node_only_where_the_launcher_does_so(
    names_nodes: bool,
) -> None:
    """Under another launcher a rank may print what Ray would, and have a healthy node replaced."""
    lines = ("ray::step() (pid=4, ip=10.0.0.3)", "ray.exceptions.NodeDiedError: its node has died")
    (cause,) = causes(Failure("plain", 1, lines), names_nodes=names_nodes)
    assert cause.node == ("10.0.0.3" if names_nodes else "")
