"""How complete an answer is: its four extents, its proof, its JSON, and the answer put together from parts."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from providers.completeness import COMPLETE, UNKNOWN, Completeness, Extent, ProofOfWhole, of_all

NOW = datetime(2026, 11, 1, 9, tzinfo=UTC)
PARTIAL = Completeness.partial("Vast: 64 of more offers were read.")
STALE = Completeness.stale(NOW)


def test_only_a_complete_answer_has_a_proof() -> None:
    assert COMPLETE.proof == ProofOfWhole(COMPLETE)
    for lacking in (PARTIAL, STALE, UNKNOWN):
        assert lacking.proof is None
        with pytest.raises(ValueError, match="only a complete answer"):
            ProofOfWhole(lacking)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: Completeness.partial(""),
        lambda: Completeness(Extent.STALE),
        lambda: Completeness(Extent.COMPLETE, since=NOW),
        lambda: Completeness(Extent.COMPLETE, "Something is missing."),
    ],
)
def test_a_value_that_means_nothing_is_refused(wrong) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ValueError, match="answer"):
        wrong()


@pytest.mark.parametrize("value", [COMPLETE, PARTIAL, STALE, Completeness.stale(NOW, "Old."), UNKNOWN])
def test_json_gives_the_same_value_back(value: Completeness) -> None:
    assert Completeness.from_json(value.to_json()) == value


def test_rows_of_earlier_releases_are_unknown() -> None:
    assert Completeness.from_json(None) == Completeness.from_json({}) == UNKNOWN


def test_the_whole_is_complete_where_each_part_is() -> None:
    assert of_all({"vast": COMPLETE, "runpod": COMPLETE}) == of_all({}) == COMPLETE


def test_the_whole_is_unknown_where_no_part_is_known() -> None:
    assert of_all({"vast": UNKNOWN}) == Completeness.unknown("vast: no answer.")
    assert of_all({"vast": UNKNOWN, "runpod": COMPLETE}) == Completeness.partial("vast: no answer.")


def test_the_whole_is_as_old_as_its_oldest_part_and_partial_before_it_is_stale() -> None:
    older = Completeness.stale(NOW - timedelta(hours=1), "Old.")
    assert of_all({"a": STALE, "b": older, "c": COMPLETE}) == Completeness.stale(
        NOW - timedelta(hours=1), "a: the answer is old. Old."
    )
    assert of_all({"a": STALE, "b": PARTIAL}) == Completeness.partial(f"a: the answer is old. {PARTIAL.why}")


def test_a_reason_that_parts_share_is_said_once() -> None:
    same = Completeness.unknown("2 of 5 clouds did not answer: vast and runpod.")
    assert of_all({"vast": same, "runpod": same, "lambda": COMPLETE}) == Completeness.partial(same.why)
