"""The checkpoint gate as rules."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest

from bot.rules.checkpoints.verification import (
    NOTHING_PROTECTS,
    CheckpointHold,
    Newest,
    Reported,
    Reserved,
    StoreLocation,
    choice,
    hold_ends_at,
    judge,
    place,
    reserve,
    reserved_usd,
    said_of,
)
from bot.rules.policy.policy import Policy
from providers.capabilities import BillingRule
from tests.rules.builders import capabilities

NOW = datetime(2026, 3, 2, 12, 0, tzinfo=UTC)
HOUR = timedelta(hours=1)
WHOLE = Newest("run/step-1200/model.pt", 10, NOW)


@pytest.mark.parametrize(
    ("location", "found"),
    [
        ("hf://org/repo/run/a/", StoreLocation("hf", "org/repo", "run/a")),
        ("HF://org/repo", StoreLocation("hf", "org/repo", "")),
        ("s3://bucket/run", StoreLocation("s3", "bucket", "run")),
        ("https://files.example.com/a.pt?sig=x", StoreLocation("https", "https://files.example.com/a.pt?sig=x", "")),
        ("https://files.example.com", None),
        ("http://files.example.com/a.pt", None),
        ("hf://org", None),
        ("/workspace/out", None),
        ("none", None),
        (None, None),
    ],
)
def test_where_to_look(location: str | None, found: StoreLocation | None) -> None:
    assert place(location) == found


def test_the_newest_checkpoint_must_be_there_whole_recent_and_as_far_as_was_reported() -> None:
    reported = Reported(NOW, 1200, NOW)
    assert judge(WHOLE, reported, 3600, NOW).code == "verified"
    assert judge(None, reported, 3600, NOW).code == "missing"
    assert judge(replace(WHOLE, size=0), reported, 3600, NOW).code == "empty"
    assert judge(replace(WHOLE, at=NOW - 2 * HOUR), reported, 3600, NOW).code == "old"
    assert judge(replace(WHOLE, at=NOW - 2 * HOUR), Reported(NOW - 2 * HOUR), 3600, NOW).code == "verified"
    assert judge(replace(WHOLE, at=NOW - 2 * HOUR), Reported(), 3600, NOW).code == "old"
    assert judge(WHOLE, replace(reported, step=1201), 3600, NOW).code == "behind"
    # Whose server says so was never asked what time it is.
    assert judge(replace(WHOLE, at=NOW + HOUR), reported, 3600, NOW).code == "future"
    nameless = Newest("model.pt", 10, NOW - HOUR)
    assert nameless.step is None
    assert judge(nameless, Reported(NOW, 1200, NOW), 3600, NOW).code == "behind"
    assert judge(nameless, Reported(NOW, 1200, NOW - HOUR), 3600, NOW).code == "verified"


def test_the_choice_is_said_where_something_can_be_looked_at() -> None:
    assert choice(Policy(), "/workspace") == ""
    assert choice(Policy(), None) == choice(Policy(), "") == NOTHING_PROTECTS
    said = choice(Policy(), "https://files.example.com/a.pt?sig=secret")
    assert "its disk stays for 24 hours" in said
    assert "keeps running for 2 hours at most" in said
    assert "secret" not in said
    assert "as the policy allows" in choice(Policy(checkpoint_unverified="destroy"), "s3://b/x")


def test_what_is_reserved_follows_from_what_the_cloud_can_keep_and_what_the_policy_allows() -> None:
    keeps, runs_on = capabilities(stop=True), capabilities(stop=False)
    save = Decimal(600) / 3600
    assert reserve(Policy(), "s3://b/x", keeps) == CheckpointHold(save, Decimal(24))
    assert reserve(Policy(), "s3://b/x", runs_on) == CheckpointHold(Decimal(2))
    assert reserve(Policy(checkpoint_hold_s=60), "s3://b/x", runs_on) == CheckpointHold(save)
    assert reserve(Policy(checkpoint_unverified="destroy"), "s3://b/x", runs_on) == CheckpointHold(save)
    assert reserve(Policy(), "/workspace", runs_on) == CheckpointHold()
    assert reserve(Policy(), "s3://b/x", replace(runs_on, terminate=False)) == CheckpointHold()
    assert not capabilities(stop=True, billing=BillingRule(gpu_while_stopped=True)).keeps_disk


def test_what_a_row_says_of_its_hold_is_read_in_one_way() -> None:
    policy = Policy(checkpoint_hold_s=7200, checkpoint_save_s=600)
    said = Reserved.of(Decimal(2), 1800)
    assert (said.usd, said.granted_h) == (Decimal(2), Decimal("0.5"))
    assert [said.longest_s(policy, keeps_disk=keeps) for keeps in (True, False)] == [1800, 1800]
    # Nothing was reserved: no hours were granted, no money is set aside, and it is held as the policy says now.
    silent = Reserved.of(None, None)
    assert (silent.usd, silent.granted_h) == (Decimal(0), Decimal(0))
    assert [silent.longest_s(policy, keeps_disk=keeps) for keeps in (True, False)] == [600, 7200]
    # Where it was reserved that there is no hold, there is none.
    assert Reserved.of(Decimal(0), 0).longest_s(policy, keeps_disk=False) == 0


def test_a_lower_limit_shortens_the_hold_before_it_shortens_the_run() -> None:
    assert reserved_usd(Decimal(2), Decimal(20), Decimal(10)) == 2
    assert reserved_usd(Decimal(2), Decimal(11), Decimal(10)) == 1
    assert reserved_usd(Decimal(2), Decimal(9), Decimal(10)) == 0


def test_the_hold_has_a_line_of_its_own() -> None:
    assert said_of(Decimal(3), Decimal(2), Decimal(0)) == ("includes $3.00 to save checkpoints: up to 2 hours more")
    assert "10 minutes more and 24 hours of disk" in said_of(Decimal(1), Decimal(1) / 6, Decimal(24))
    assert said_of(Decimal(0), Decimal(0), Decimal(0)) == ""


def test_a_hold_lasts_as_long_as_what_was_approved_pays_for_it() -> None:
    day = timedelta(days=1)
    assert hold_ends_at(NOW, Decimal(1), Decimal("0.5"), day) == NOW + 2 * HOUR - timedelta(seconds=60)
    assert hold_ends_at(NOW, Decimal(-1), Decimal("0.5"), day) == NOW
    assert hold_ends_at(NOW, Decimal(1000), Decimal("0.5"), day) == NOW + day
    assert hold_ends_at(NOW, Decimal(0), Decimal(0), day) == NOW + day
