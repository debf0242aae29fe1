"""No value that programs or people read by name has a word that `words.md` retires.

What the append-only journal has stored stays readable for ever, so its values stay; each stands here with its reason.
"""

from __future__ import annotations

import re

import pytest

from bot.rules.webhooks import webhooks
from tests.architecture.public_values import surfaces
from tests.architecture.sentences import ROOT
from tests.architecture.test_words import parts

#: The sense of a retired word in a name → what to say. A name is read as its words with spaces between.
RETIRED = {
    r"\bask(s|ed|ing)?\b|\bwish(es)?\b": "request",
    r"\banswered\b": "offers found",
    r"\bdecides?\b|\bvoices?\b|\bwitness\b": "approver, approve, reject, proof",
    r"\bstanding\b|\blasting\b": "auto-approval",
    r"\breservations?\b": "session",
    r"\border(s|ed)\b|\bswitch(ed|es)?\b": "launch, stop, start, restart, terminate; power action",
    r"\bstrays?\b": "orphan",
    r"(?<!checkpoint )\bhold(s|ing)?\b|(?<!checkpoint )\bheld\b": "checkpoint hold, pause",
    r"^kept$|\b(kept disk|disk kept)\b": "retained, kept running",
    r"\bvanish(ed|es)?\b|\blacking\b": "lost",
    r"\bdrift(s|ed|ing)?\b": "overspend, lost, unknown outcome",
    r"\bdear(er|est)?\b": "expensive",
    r"\bsweeps?\b|\blook(s|ed)?\b": "reconcile, true-up, listing",
    r"\bplacing\b": "failover, launch",
    r"\bunclear\b": "unknown outcome",
    r"\bgat(e|es|ing)\b": "checkpoint check",
    r"\bunattended\b|\boverlooked\b|\bsilent\b": "idle, unresponsive",
    r"\b(told|tells?|telling|heard|hears?|hearing)\b": "notify, receive, report",
    r"\bdoors?\b": "client",
    r"\bmeters?\b": "billing",
    r"\bseal(s|ed|ing)?\b": "hash, hash chain",
    r"\bshel(f|ves)\b": "cache",
    r"\bover$": "ended",
    r"\bgoes on\b": "continues",
    r"^word$": "proof, key",
}
#: Names of jobs that say too little where they stand: in a log line and on the health page.
UNSPOKEN = frozenset({"agents", "orders", "leftovers", "seals", "overlooked", "answers", "waits", "bills"})

JOURNAL = "stored in the journal, which only grows; its hash chain covers the value"
STORED = "stored in rows that only grow; a person reads its label"
WIRE = "between the agent and the service; agents that run now send and read it"
#: Where it is read, and the value → why it stays.
EXCEPTIONS = {
    **{
        ("event", kind): JOURNAL
        for kind in (
            "stray.seen",
            "stray.moved",
            "stray.backed",
            "stray.trued_up",
            "stray.account_moved",
            "spend.drift",
            "session.work_over",
            "instance.not_switched",
            "instance.grace_over",
            "disk.kept",
            "disk.over",
        )
    },
    **{("end reason", reason): JOURNAL for reason in ("reservation_over", "drift_unconfirmed", "asked")},
    ("proof", "word"): JOURNAL,
    ("checkpoint step", "held"): STORED,
    ("REST", "asks"): WIRE,
    ("REST", "silent"): "a cloud that gave no answer in time; no agent ended anything",
    ("REST", "word"): "a word of the /gpu language",
}


def wrong(value: str) -> str:
    """What is wrong with a value; empty for a good one."""
    text = " ".join(parts(value))
    found = ((match[0], better) for pattern, better in RETIRED.items() if (match := re.search(pattern, text)))
    return next((f"{word}: {better}" for word, better in found), "")


def at_fault() -> dict[tuple[str, str], str]:
    """Every value with a retired word, by where it is read."""
    return {
        (surface, value): why
        for surface, values in surfaces().items()
        for value in sorted(values)
        if (why := wrong(value) or ("says too little" if surface == "job" and value in UNSPOKEN else ""))
    }


def test_no_public_value_has_a_retired_word() -> None:
    assert {place: why for place, why in at_fault().items() if place not in EXCEPTIONS} == {}


def test_names_of_before_end_with_the_release() -> None:
    """A message has its old name beside the new one until 0.1.0 is released; then these tables are empty."""
    is_unreleased = "## 0.1.0 (unreleased)" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert is_unreleased or (webhooks.OLD_NAMES, webhooks.OLD_FIELDS) == ({}, {})
    assert all(
        wrong(old) for old in (*webhooks.OLD_NAMES.values(), *webhooks.OLD_TOPICS, *webhooks.OLD_FIELDS.values())
    )


def test_every_exception_is_still_needed() -> None:
    assert set(EXCEPTIONS) - set(at_fault()) == set()


@pytest.mark.parametrize("surface", surfaces())
def test_each_surface_is_read(surface: str) -> None:
    assert len(surfaces()[surface]) > 2


@pytest.mark.parametrize(
    "value",
    ["drift.lost", "spend.drift", "drift_unconfirmed", "standing_over", "session.goes_on", "unclear-creates", "seals"],
)
def test_a_retired_value_is_seen(value: str) -> None:
    assert wrong(value)


@pytest.mark.parametrize(
    "value", ["session.checkpoint_held", "kept_running", "metering", "over_budget", "decided_by", "journal-order"]
)
def test_a_good_value_passes(value: str) -> None:
    assert not wrong(value)
