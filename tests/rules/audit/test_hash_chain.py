"""A changed, removed or inserted event is found at its place."""

from __future__ import annotations

from bot.rules.audit.hash_chain import START, event_hash, first_broken
from ledger.kernel.end_reason import EndReason
from ledger.kernel.event_kind import EventKind

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


#: What ledgers have stored under names that people no longer read.
KINDS = (
    "stray.seen stray.moved stray.backed stray.trued_up stray.account_moved spend.drift session.work_over "
    "instance.not_switched instance.grace_over disk.kept disk.over"
)
REASONS = "reservation_over drift_unconfirmed asked"
#: The head of their chain, as it was computed before the public names changed.
HEAD = "7dd12e651f22641e81b6fa5302871677248adb64f76de856364797b52ac58a61"


def test_a_chain_from_before_the_public_names_changed_still_fits() -> None:
    written = [*((kind, "") for kind in KINDS.split()), *(("session.moved", reason) for reason in REASONS.split())]
    events = [{"id": f"evt_{n}", "kind": kind, "reason": reason} for n, (kind, reason) in enumerate(written)]
    hashed, before = [], START
    for event in events:
        # As this release writes the same event.
        again = {**event, "kind": EventKind(event["kind"]), "reason": EndReason(event["reason"] or "asked")}
        before = event_hash(before, event if not event["reason"] else again)
        hashed.append((event, before))
    assert (before, first_broken(hashed)) == (HEAD, None)
