"""The diagnosis of a node's failures: how much time it takes in all."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from entrypoint.base.kept import verdict_file
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


ECC = ("NVRM: Xid (PCI:0000:07:00): 48, pid=7, Double Bit ECC Error",)
# What a rank has written -> retry, blame and says of its cause; "" if it does not count.
VERDICTS = {
    "retry: elsewhere\nwhy: SDC check failed\n": "elsewhere node SDC check failed",
    "retry:no\r\n\r\n  why: loss is NaN  ": "no program loss is NaN",
    "why: the other order\nretry: no": "",
    "retry: same\nwhy: a: b": "same unknown a: b",
    "retry: unknown\nwhy: x\x1b[31m\ty\ud800": "unknown unknown x y???",
    "retry: same\nwhy: " + "x" * 9000: f"same unknown {'x' * 297}...",
    "retry: maybe\nwhy: x": "", "retry: same": "", "why: x": "", "elsewhere": "", "": "",
    "retry: same\nwhy: x\nnode: worker-2": "", "\0" * 9000: "",
}  # fmt: skip


@pytest.mark.promise(
    "a rank's own word is its cause, if it fails",
    control="what is of another form, in the same table",
)
@pytest.mark.parametrize("text", VERDICTS)
def test_a_rank_s_own_word_is_its_cause(tmp_path: Path, text: str) -> None:
    """It wins over what the output says; a text of another form is named once."""
    file = Path(verdict_file(str(tmp_path), "rank", 3))
    file.write_text(text, errors="surrogatepass")
    said: list[str] = []
    (cause,) = causes(Failure("rank 3", 1, ECC, str(file)), log=said.append)
    if expected := VERDICTS[text]:
        about = f"{cause.retry} {cause.blame} {cause.says}"
        assert (about.replace("\ufffd", "?"), cause.certainty) == (expected, "high")
        assert (cause.slug, cause.rank, cause.node, said) == ("own-word", "rank 3", "", [])
    else:
        assert (cause.slug, cause.retry) == ("gpu-ecc", "elsewhere")
        (line,) = said
        assert re.match('warning: EP654 the verdict of rank 3 is not used [|] "', line)
        assert line.isprintable()
        assert len(line) < 400


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, lambda path: path.symlink_to("/dev/zero")])
def test_what_is_no_file_is_no_verdict(tmp_path: Path, make: Callable[[Path], None]) -> None:
    make(tmp_path / "verdict")
    (cause,) = causes(Failure("rank 3", 1, ECC, str(tmp_path / "verdict")))
    assert cause.slug == "gpu-ecc"
