"""Pinned listings: shared by everybody with the same question, bounded, and gone after ten minutes."""

from __future__ import annotations

from bot.services.market.snapshots import PINNED_S, Snapshots
from tests.support.clock import SteppedClock

SECOND_S = 1.0


def pinned(clock: SteppedClock, **bounds: int) -> Snapshots[str, str]:
    return Snapshots(clock, **bounds)


def test_a_listing_is_shared_until_the_market_changes_and_each_reading_pins_it_again(clock: SteppedClock) -> None:
    kept = pinned(clock)
    assert kept.newest("4090?", 1) is None
    kept.keep("4090?", 1, "a", "listing a", 10)
    assert kept.newest("4090?", 1) == "listing a"
    assert kept.newest("4090?", 2) is None
    assert kept.newest("a100?", 1) is None
    clock.advance(PINNED_S - SECOND_S)
    assert kept.newest("4090?", 1) == "listing a"
    clock.advance(PINNED_S - SECOND_S)
    assert kept.named("a") == "listing a"
    clock.advance(SECOND_S)
    assert (kept.named("a"), kept.newest("4090?", 1)) == (None, None)


def test_a_newer_listing_of_the_same_question_leaves_the_older_one_to_its_readers(clock: SteppedClock) -> None:
    kept = pinned(clock)
    kept.keep("4090?", 1, "a", "listing a", 10)
    kept.keep("4090?", 2, "b", "listing b", 10)
    assert kept.newest("4090?", 2) == "listing b"
    assert kept.named("a") == "listing a"
    assert kept.named("c") is None


def test_the_oldest_go_first_when_there_are_too_many_offers_or_listings(clock: SteppedClock) -> None:
    few = pinned(clock, most_offers=25)
    for number, name in enumerate("abc"):
        few.keep(name, number, name, name, 10)
    assert [few.named(name) for name in "abc"] == [None, "b", "c"]
    few.keep("large", 1, "large", "large", 1_000)
    assert [few.named(name) for name in ("b", "c", "large")] == [None, None, "large"]
    two = pinned(clock, most_listings=2)
    for name in "abc":
        two.keep(name, 1, name, name, 0)
    assert [two.named(name) for name in "abc"] == [None, "b", "c"]


def test_expired_listings_are_let_go_of_when_the_next_one_comes(clock: SteppedClock) -> None:
    kept = pinned(clock)
    kept.keep("4090?", 1, "a", "listing a", 10)
    clock.advance(PINNED_S + 1)
    kept.keep("a100?", 1, "b", "listing b", 10)
    assert len(kept) == 1
