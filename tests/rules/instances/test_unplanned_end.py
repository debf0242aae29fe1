"""The one rule about ends that nobody asked for: by examples, and by what holds for every plight."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.rules.instances.unplanned_end import (
    Contents,
    Plight,
    UnplannedEnd,
    at_risk,
    cause_of,
    cost_until,
    decide,
    limit_usd,
    waiting_rate,
)
from ledger.kernel.end_reason import EndReason
from ledger.kernel.steps.grace import AtRisk, Cause, GraceChoice
from providers.capabilities import BillingRule
from providers.contract import InstanceStatus

DISK = Plight(Cause.HOST, AtRisk.DISK, Decimal("0.01"), Decimal(6), Decimal(1))
AMOUNTS = st.decimals(0, 1000, places=4)
PLIGHTS = st.builds(
    Plight,
    cause=st.sampled_from(Cause),
    at_risk=st.sampled_from(AtRisk),
    waiting_usd_h=AMOUNTS,
    hours_left=st.decimals(-1, 1000, places=2),
    limit_usd=AMOUNTS,
    spent_usd=AMOUNTS,
    restarts=st.booleans(),
    can_replace=st.booleans(),
    choice=st.none() | st.sampled_from(GraceChoice),
)


@pytest.mark.parametrize(
    ("changes", "ending"),
    [
        ({}, UnplannedEnd.ASK),
        ({"restarts": True}, UnplannedEnd.ASK),
        ({"restarts": True, "can_replace": True}, UnplannedEnd.REPLACE),
        ({"can_replace": True}, UnplannedEnd.ASK),
        ({"can_replace": True, "choice": GraceChoice.REPLACE}, UnplannedEnd.REPLACE),
        ({"choice": GraceChoice.REPLACE}, UnplannedEnd.ASK),
        ({"restarts": True, "can_replace": True, "choice": GraceChoice.WAIT}, UnplannedEnd.KEEP),
        ({"choice": GraceChoice.GIVE_UP}, UnplannedEnd.END),
        ({"cause": Cause.ACCOUNT, "restarts": True, "can_replace": True}, UnplannedEnd.KEEP),
        ({"cause": Cause.OURS}, UnplannedEnd.KEEP),
        ({"cause": Cause.PERSON}, UnplannedEnd.END),
        ({"cause": Cause.JOB}, UnplannedEnd.END),
        ({"at_risk": AtRisk.NOTHING}, UnplannedEnd.END),
        ({"at_risk": AtRisk.NOTHING, "waiting_usd_h": Decimal(0)}, UnplannedEnd.END),
        ({"at_risk": AtRisk.UNKNOWN}, UnplannedEnd.ASK),
        ({"waiting_usd_h": Decimal("0.1666")}, UnplannedEnd.ASK),
        ({"waiting_usd_h": Decimal("0.1667")}, UnplannedEnd.END),
        ({"spent_usd": Decimal("0.94")}, UnplannedEnd.ASK),
        ({"spent_usd": Decimal("0.95")}, UnplannedEnd.END),
        ({"hours_left": Decimal(-3), "waiting_usd_h": Decimal(9)}, UnplannedEnd.ASK),
    ],
)
def test_decisions(changes: dict[str, object], ending: UnplannedEnd) -> None:
    assert decide(replace(DISK, **changes)) is ending  # type: ignore[arg-type]


@given(PLIGHTS)
def test_what_would_be_lost_is_never_ended_while_waiting_is_cheap(plight: Plight) -> None:
    own = plight.cause in (Cause.PERSON, Cause.JOB) or plight.choice is GraceChoice.GIVE_UP
    cheap = plight.waiting_usd <= plight.limit_usd
    kept = decide(plight) is not UnplannedEnd.END
    assert kept == (cheap and plight.at_risk is not AtRisk.NOTHING and not own)


@given(PLIGHTS)
def test_nothing_is_replaced_that_the_approval_does_not_cover(plight: Plight) -> None:
    if decide(plight) is UnplannedEnd.REPLACE:
        assert plight.can_replace
        assert plight.choice is not GraceChoice.WAIT


@given(PLIGHTS, st.decimals(0, 100, places=2))
def test_waiting_that_costs_more_keeps_no_more_machines(plight: Plight, more: Decimal) -> None:
    dearer = replace(plight, waiting_usd_h=plight.waiting_usd_h + more)
    if decide(plight) is UnplannedEnd.END:
        assert decide(dearer) is UnplannedEnd.END


@given(st.none() | AMOUNTS, AMOUNTS, st.decimals(-10, 1000, places=4))
def test_grace_never_costs_more_than_the_approval_covers(
    policy: Decimal | None, approved: Decimal, left: Decimal
) -> None:
    most = limit_usd(policy, approved, left)
    assert 0 <= most <= max(left, Decimal(0))
    if policy is not None:
        assert most <= policy


def test_the_most_is_five_percent_and_at_least_a_dollar() -> None:
    assert limit_usd(None, Decimal(100), Decimal(90)) == 5
    assert limit_usd(None, Decimal(10), Decimal(9)) == 1
    assert limit_usd(None, Decimal(10), Decimal("0.4")) == Decimal("0.4")
    assert limit_usd(Decimal(7), Decimal(10), Decimal(9)) == 7
    assert limit_usd(Decimal(0), Decimal(10), Decimal(9)) == 0


@pytest.mark.parametrize(
    ("status", "rule", "usd_h"),
    [
        (InstanceStatus.STOPPED, BillingRule(), "0.02"),
        (InstanceStatus.STOPPED, BillingRule(storage_while_stopped=False), "0"),
        (InstanceStatus.STOPPED, BillingRule(gpu_while_stopped=True), "0.51"),
        (InstanceStatus.OFFLINE, BillingRule(storage_while_offline=False), "0"),
        (InstanceStatus.OFFLINE, BillingRule(), "0.01"),
        (InstanceStatus.ERROR, BillingRule(gpu_while_broken=True), "0.5"),
        (InstanceStatus.RUNNING, BillingRule(), "0.5"),
        (InstanceStatus.BOOTING, BillingRule(), "0.01"),
    ],
)
def test_what_an_hour_of_waiting_costs(status: InstanceStatus, rule: BillingRule, usd_h: str) -> None:
    price, disk, stopped = Decimal("0.5"), Decimal("0.01"), Decimal("0.02")
    assert waiting_rate(status, rule, price, disk, stopped) == Decimal(usd_h)


def test_what_was_observed_counts_more_than_the_rule() -> None:
    price, disk = Decimal("0.5"), Decimal("0.01")
    assert waiting_rate("running", BillingRule(), price, disk, pays_gpu=False) == disk
    assert waiting_rate("stopped", BillingRule(), price, disk, pays_gpu=True) == price


def test_what_a_grace_has_cost() -> None:
    at = datetime(2026, 3, 2, tzinfo=UTC)
    assert cost_until(Decimal("0.5"), Decimal("0.2"), at, at + timedelta(hours=3)) == Decimal("1.1")
    assert cost_until(Decimal("0.5"), Decimal("0.2"), at, at - timedelta(hours=3)) == Decimal("0.5")


@pytest.mark.parametrize(
    ("code", "problem", "cause"),
    [
        (EndReason.OUTBID, "", Cause.MARKET),
        (EndReason.STOPPED_THERE, "", Cause.HOST),
        (EndReason.BROKEN, "", Cause.HOST),
        (EndReason.NO_HEARTBEAT, "insufficient_funds", Cause.HOST),
        (EndReason.STOPPED_THERE, "insufficient_funds", Cause.ACCOUNT),
        (EndReason.OUTBID, "insufficient_funds", Cause.ACCOUNT),
        (EndReason.STOPPED_THERE, "unavailable", Cause.HOST),
        (EndReason.IDLE, "", Cause.PERSON),
        (EndReason.COMPLETED, "", Cause.JOB),
    ],
)
def test_whose_cause(code: EndReason, problem: str, cause: Cause) -> None:
    assert cause_of(code, problem) is cause


@pytest.mark.parametrize(
    ("contents", "risk"),
    [
        (Contents(was_used=False, disk_survives=True), AtRisk.NOTHING),
        (Contents(was_used=True, disk_survives=False), AtRisk.NOTHING),
        (Contents(was_used=True, disk_survives=True, shares_queue=True), AtRisk.NOTHING),
        (Contents(was_used=True, disk_survives=True), AtRisk.DISK),
        (Contents(was_used=True, disk_survives=True, has_checkpoints=True), AtRisk.UNKNOWN),
        (Contents(was_used=True, disk_survives=True, has_checkpoints=True, is_saved=True), AtRisk.WORK),
        (Contents(was_used=True, disk_survives=True, has_checkpoints=True, is_saved=False), AtRisk.DISK),
        (Contents(was_used=True, disk_survives=False, is_volume=True), AtRisk.VOLUME),
    ],
)
def test_what_would_be_lost(contents: Contents, risk: AtRisk) -> None:
    assert at_risk(contents) is risk
