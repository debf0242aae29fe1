"""How old a ledger is, by what its records name, and what people read about that."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from bot.rules.instances.ledger_age import (
    NAMED,
    AcceptedRecords,
    AgeEvidence,
    EpochEntry,
    LedgerAge,
    NamedEvent,
    age_of,
    age_page,
    age_text,
    still_lacking,
    with_latest_ends,
)
from ledger.kernel.must_end import MustEnd
from ledger.kernel.states import InstanceState

AT = datetime(2026, 3, 2, 14, 2, tzinfo=UTC)
HOUR = timedelta(hours=1)
FIRST, SECOND = NamedEvent("evt_1", "aa"), NamedEvent("evt_2", "bb")
ENTRY = EpochEntry("one", 20, AT, (FIRST, SECOND))
HAS = {"evt_1": "aa", "evt_2": "bb"}


def row(end: datetime | None, name: str = "ins_1") -> MustEnd:
    return MustEnd(name, "ses_1", "slack:U1", "vast", "acct", "7", "label", "name", InstanceState.LIVE, "", end)


def test_a_ledger_that_has_everything_is_not_older() -> None:
    assert age_of([ENTRY], HAS, 20) is None
    assert age_of([ENTRY], HAS, 900) is None
    assert age_of([], {}, 0) is None


def test_a_missing_or_changed_event_or_a_shorter_journal_is_older() -> None:
    assert age_of([ENTRY], {"evt_1": "aa"}, 20) == LedgerAge(AgeEvidence.BEHIND, 1, AT)
    assert age_of([ENTRY], {"evt_1": "aa", "evt_2": "cc"}, 20) == LedgerAge(AgeEvidence.BEHIND, 1, AT)
    assert age_of([ENTRY], HAS, 6) == LedgerAge(AgeEvidence.BEHIND, 14, AT)
    # A ledger that went on after it was restored has as many events, and other ones.
    assert age_of([ENTRY], {}, 400) == LedgerAge(AgeEvidence.BEHIND, 2, AT)


def test_the_newest_entry_counts_and_a_restored_one_always() -> None:
    newer = replace(ENTRY, replica="two", position=25, at=AT + HOUR)
    assert age_of([newer, ENTRY], HAS, 22) == LedgerAge(AgeEvidence.BEHIND, 3, AT + HOUR)
    restored = EpochEntry("restore", 0, AT, is_restored=True)
    assert age_of([restored, ENTRY], HAS, 22) == LedgerAge(AgeEvidence.RESTORED, 0, AT)


def test_what_was_accepted_is_known_by_its_replica_and_never_by_a_clock_ahead_alone() -> None:
    minute = timedelta(minutes=1)
    accepted = AcceptedRecords(AT + 24 * HOUR, {"one": AT, "ahead": AT - HOUR})
    others = (("one", AT), ("two", AT + minute), ("three", AT + 2 * minute))
    assert [accepted.has(EpochEntry(name, 9, at)) for name, at in others] == [True, True, False]
    # A record of a clock that was ahead is accepted by its name, by an operator whose clock is right.
    accepted = AcceptedRecords(AT, {"ahead": AT + HOUR})
    entries = [
        EpochEntry("ahead", 9, AT + HOUR),
        EpochEntry("ahead", 9, AT + 2 * HOUR),
        EpochEntry("two", 9, AT + minute),
    ]
    assert [accepted.has(entry) for entry in entries] == [True, False, False]
    assert not AcceptedRecords(AT, {}).has(EpochEntry("one", 9, AT - HOUR))


def test_an_entry_names_the_newest_events_once() -> None:
    entry = EpochEntry("one", 0, AT)
    for number in range(NAMED + 5):
        entry = entry.with_event(NamedEvent(f"evt_{number}", "aa"), AT + HOUR * number)
    entry = entry.with_event(NamedEvent("evt_9", "aa"), AT)
    assert (len(entry.events), entry.events[-1].id) == (NAMED, "evt_9")
    assert len({event.id for event in entry.events}) == NAMED
    assert entry.at == AT + HOUR * (NAMED + 4)


def test_the_latest_end_of_a_record_counts() -> None:
    rows = (row(AT), row(AT + HOUR, "ins_2"), row(None, "ins_3"), row(AT, "ins_4"))
    records = (row(AT + HOUR), row(AT, "ins_2"), row(AT, "ins_3"), row(None, "ins_4"), row(AT, "ins_5"))
    latest = with_latest_ends(rows, records, AT)
    assert [one.deadline for one in latest] == [AT + HOUR, AT + HOUR, None, AT]
    assert {one.recovery_since for one in latest} == {AT}


def test_a_record_counts_until_the_ledger_has_its_end() -> None:
    rows = (row(AT), row(AT + HOUR, "ins_2"), row(None, "ins_3"))
    records = (row(AT + HOUR), row(AT + HOUR, "ins_2"), row(AT, "ins_3"), row(AT, "ins_4"))
    assert still_lacking(rows, records) == (records[0], records[2], records[3])


def test_people_read_how_old_it_is_and_what_to_do() -> None:
    text = age_text(LedgerAge(AgeEvidence.BEHIND, 14, AT))
    assert text == "The ledger is 14 events older than its epoch of 14:02 UTC on 2026-03-02."
    assert age_text(LedgerAge(AgeEvidence.BEHIND, 1, AT)).startswith("The ledger is 1 event older")
    restored = age_text(LedgerAge(AgeEvidence.RESTORED, 0, AT))
    assert restored == "The ledger was restored from a copy of 14:02 UTC on 2026-03-02."
    assert len({age_text(LedgerAge(evidence, 1, AT)) for evidence in AgeEvidence}) == len(AgeEvidence)
    page = age_page(LedgerAge(AgeEvidence.BEHIND, 14, AT), 2)
    assert "Its records differ from it in 2 places." in page
    assert page.endswith("Check it with `gpu-shopper recover`, then continue with `gpu-shopper recover --accept`.")
    assert "differ" not in age_page(LedgerAge(AgeEvidence.NO_RECORD), 0)
