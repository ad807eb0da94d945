"""What tests of containers look at when a job has ended."""

from __future__ import annotations

import re

from tests.containers import exit_code, logs, wait


def said(containers: dict[str, str]) -> str:
    """Everything that these containers printed."""
    return "".join(f"--- {name}\n{logs(each)}" for name, each in containers.items())


def ended(containers: dict[str, str], seconds: float = 150) -> dict[str, int]:
    """Each container's status; all end by themselves."""
    wait(*containers.values(), timeout=seconds)
    return {name: exit_code(each) for name, each in containers.items()}


def places(log: str) -> list[tuple[str, str, str]]:
    """Rank, host and local rank, as the examples print them."""
    return sorted(re.findall(r"rank (\d+) of \d+ on (\S+), local rank (\d+), pid \d", log))


def expected(hosts: list[str], slots: int = 2) -> list[tuple[str, str, str]]:
    """What `places` has to be."""
    every = [(host, local) for host in hosts for local in range(slots)]
    return sorted((str(rank), host, str(local)) for rank, (host, local) in enumerate(every))


def agrees(log: str, allowed: str, falling: bool = True) -> None:
    """The example's own comparison with one process, and its loss."""
    found = re.search(r"difference to one process: (\S+) \(allowed (\S+)\)", log)
    assert found, log
    assert found[2] == allowed, log
    assert float(found[1]) <= float(allowed), log
    if falling:
        losses = re.search(r"loss (\S+) -> (\S+)", log)
        assert losses, log
        assert float(losses[2]) < 0.8 * float(losses[1]), log
