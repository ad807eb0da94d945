"""Labelled outputs of failed trainings are judged rightly: cause, retry, no mistake retried."""

from __future__ import annotations

import pytest

from entrypoint.causes.table import KINDS
from tests.failures import score
from tests.failures.score import Answer, Failure

FIELDS = {
    "role": {"root", "cascade", "unclear"},
    "blame": {"program", "node", "device", "platform", "peer", "network", "storage", "unknown"},
    "retry": {"no", "same", "elsewhere", "unknown"},
    "certainty": {"high", "low"},
}


@pytest.mark.promise("labelled failures are judged rightly, and no mistake is retried")
@pytest.mark.parametrize("name", score.SETS)
def test_the_judge_is_within_its_limits(name: str) -> None:
    result = score.score(score.failures(name), score.by_signatures)
    shown = "\n".join(result.misses)
    assert result.retry_where_sure >= score.RETRY_WHERE_SURE, shown
    assert result.cause >= score.CAUSE, shown
    assert result.retried_mistakes == []
    assert result.blamed_decoys == []


@pytest.mark.control("labelled failures are judged rightly, and no mistake is retried")
@pytest.mark.parametrize("baseline", [score.by_status, score.by_keywords])
def test_a_simpler_judge_is_not(baseline: score.Judge) -> None:
    result = score.score(score.failures("first"), baseline)
    assert result.retry_where_sure < score.RETRY_WHERE_SURE
    assert result.cause < score.CAUSE
    assert result.blamed_decoys


@pytest.mark.parametrize("name", score.SETS)
def test_every_output_has_its_labels_and_its_source(name: str) -> None:
    entries = score.failures(name)
    assert len({failure.id for failure in entries}) == len(entries)
    for failure in entries:
        assert all((failure.source, failure.form, failure.lines)), failure.id
        assert failure.labels["cause"] in KINDS, failure.id
        for label, values in FIELDS.items():
            assert failure.labels[label] in values, failure.id
        assert failure.kind in ("", "user-mistake", "decoy"), failure.id


def test_no_output_is_in_two_sets() -> None:
    sources = [{failure.source for failure in score.failures(name)} for name in score.SETS]
    assert len(set().union(*sources)) == sum(map(len, sources))


def test_the_score_counts_each_label_alike() -> None:
    # a: 1 of 2 found and all that is given is right; b: one too many
    assert score.measures([("a", "a"), ("a", "b"), ("b", "b")]) == {
        "a": (1.0, 0.5, 2 / 3, 2),
        "b": (0.5, 1.0, 2 / 3, 1),
    }
    assert score.macro_f1([("a", "a"), ("b", "c")]) == 1 / 3
    labels = {"cause": "user-code", "role": "root", "retry": "no", "certainty": "high"}
    entries = [Failure("x", "", [], labels, kind="user-mistake")]
    result = score.score(entries, lambda failure: Answer("harmless", "same"))
    assert (result.right, result.retried_mistakes) == (0, ["x"])
    assert result.misses == ["x: user-code, no (high); judged harmless, same"]
