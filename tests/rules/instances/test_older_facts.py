"""Each difference between an older ledger and its records, in plain words, and as it is stored."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from bot.rules.instances.ledger_age import AgeEvidence, EpochEntry, LedgerAge
from bot.rules.instances.older_facts import LaterEnd, OlderFacts, facts_text, read_facts
from ledger.kernel.must_end import MustEnd
from ledger.kernel.states import InstanceState

AT = datetime(2026, 3, 2, 14, 2, tzinfo=UTC)
HOUR = timedelta(hours=1)
UNKNOWN = MustEnd(
    "ins_1", "ses_1", "slack:U1", "vast", "acct", "77", "label", "gpu-1", InstanceState.LIVE, "", AT + HOUR,
    request_id="req_06eavk1ms9p52w48",
)  # fmt: skip


def test_each_difference_is_a_sentence() -> None:
    facts = OlderFacts(LedgerAge(AgeEvidence.BEHIND, 3, AT))
    assert facts.differences == 0
    facts = facts.with_ends([LaterEnd("req_06eavk1ms9p52w48", AT, AT + HOUR)]).with_unknown([UNKNOWN])
    age, end, unknown = facts.sentences
    assert age.startswith("The ledger is 3 events older")
    assert end.endswith(" ends 2026-03-02 15:02 UTC; the ledger had 2026-03-02 14:02 UTC.")
    assert unknown.startswith("The ledger lacks Vast instance 77 of session ")
    assert unknown.endswith(", approved until 2026-03-02 15:02 UTC.")
    assert read_facts(facts_text(facts)) == facts


def test_what_comes_later_is_added_and_nothing_is_said_twice() -> None:
    facts = OlderFacts(LedgerAge(AgeEvidence.BEHIND, 3, AT)).with_unknown([UNKNOWN]).with_unknown([UNKNOWN])
    facts = facts.with_ends([LaterEnd("req_1", AT, AT + HOUR)])
    facts = facts.with_ends([LaterEnd("req_1", AT + HOUR, AT + 2 * HOUR), LaterEnd("req_2", AT, AT + HOUR)])
    assert facts.ends == (LaterEnd("req_1", AT, AT + 2 * HOUR), LaterEnd("req_2", AT, AT + HOUR))
    assert facts.differences == 3


def test_what_was_compared_counts_more_than_a_missing_record() -> None:
    facts = OlderFacts(LedgerAge(AgeEvidence.NO_RECORD))
    behind = LedgerAge(AgeEvidence.BEHIND, 3, AT)
    assert facts.with_age(behind).age == behind
    assert facts.with_age(behind).with_age(LedgerAge(AgeEvidence.CONTRADICTED)).age == behind
    assert facts.with_age(behind).with_age(LedgerAge(AgeEvidence.BEHIND, 9, AT)).age.events == 9


def test_the_newest_entry_of_each_replica_is_kept() -> None:
    facts = OlderFacts(LedgerAge(AgeEvidence.BEHIND, 3, AT)).with_records([EpochEntry("one", 9, AT)])
    facts = facts.with_records([EpochEntry("one", 8, AT - HOUR), EpochEntry("two", 9, AT + HOUR)])
    assert facts.records == {"one": AT, "two": AT + HOUR}
    assert read_facts(facts_text(facts)) == facts
