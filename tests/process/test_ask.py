"""Asking a tool that may hang, fail or print without end."""

from __future__ import annotations

import time

import pytest

from entrypoint.system.ask import NoAnswerError, ask

ENV = {"PATH": "/usr/bin:/bin"}


@pytest.mark.parametrize(
    ("script", "printed"),
    [("echo here", "here\n"), ("echo there >&2", "there\n"), ("printf '\\377'", "\ufffd")],
)
def test_what_it_prints(script: str, printed: str) -> None:
    assert ask(("/bin/sh", "-c", script), ENV, 10) == printed


@pytest.mark.parametrize(
    ("script", "why", "printed"),
    [
        ("echo here; echo bad >&2; exit 3", "ends with 3: bad", "here\n"),
        ("echo here; kill -9 $$", "ends by signal 9: here", "here\n"),
        ("echo here; exec sleep 60", "no answer within 1s", "here\n"),
        ("echo here; sleep 60 &", "no answer within 1s", "here\n"),
        ("echo here; exec >&- 2>&-; exec sleep 60", "no answer within 1s", "here\n"),
    ],
)
def test_why_it_has_no_answer(script: str, why: str, printed: str) -> None:
    begun = time.monotonic()
    with pytest.raises(NoAnswerError, match=f"^{why}$") as error:
        ask(("/bin/sh", "-c", script), ENV, 1)
    assert error.value.output == printed
    assert time.monotonic() - begun < 5


def test_no_more_than_4_mib_are_read() -> None:
    """A broken tool that prints without end would take the memory of the node."""
    begun = time.monotonic()
    with pytest.raises(NoAnswerError, match=r"^prints more than 4 MiB$") as error:
        ask(("/bin/sh", "-c", "yes"), ENV, 60)
    assert len(error.value.output) == 4 << 20
    assert time.monotonic() - begun < 30
