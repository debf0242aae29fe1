"""A changed, removed or inserted event is found at its place."""

from __future__ import annotations

from bot.rules.audit.hash_chain import START, event_hash, first_broken

EVENTS = [{"id": str(n), "reason": f"número {n}"} for n in range(4)]


def chain() -> list[tuple[dict[str, str], str]]:
    sealed, before = [], START
    for event in EVENTS:
        before = event_hash(before, event)
        sealed.append((dict(event), before))
    return sealed


def test_a_whole_chain_fits_and_order_of_keys_does_not_matter() -> None:
    assert first_broken([]) is None
    assert first_broken(chain()) is None
    assert event_hash("x", {"a": 1, "b": 2}) == event_hash("x", {"b": 2, "a": 1}) != event_hash("y", {"a": 1, "b": 2})


def test_whatever_is_changed_is_found() -> None:
    changed, removed, inserted = chain(), chain(), chain()
    changed[2][0]["reason"] = "something else"
    del removed[1]
    inserted.insert(1, ({"id": "x"}, inserted[0][1]))
    assert [first_broken(one) for one in (changed, removed, inserted)] == [3, 2, 2]
