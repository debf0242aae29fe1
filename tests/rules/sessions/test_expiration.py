"""When people are warned of an end, the countdown, and what is covered by the approval."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from decimal import Decimal

import pytest

from bot.rules.approvals.decision import DeciderFacts
from bot.rules.policy.policy import Policy
from bot.rules.sessions import extension
from bot.rules.sessions.expiration import ended_by, is_due, is_last, left, next_look, termination_policy, warnings
from ledger.kernel.actor import Actor, ActorKind
from ledger.kernel.end_reason import EndReason
from tests.support.clock import START

HOUR, MINUTE = timedelta(hours=1), timedelta(minutes=1)
BEFORE_S = (3600, 1800, 600, 120)


def test_warnings_come_in_order_and_none_in_the_first_half_of_the_time() -> None:
    end = START + 4 * HOUR
    assert warnings(BEFORE_S, START, end) == tuple(end - m * MINUTE for m in (60, 30, 10, 2))
    assert warnings(BEFORE_S, START, START + HOUR) == tuple(START + HOUR - m * MINUTE for m in (30, 10, 2))
    assert warnings(BEFORE_S, START, START + MINUTE) == ()
    assert warnings((600, 600), START, end) == (end - 10 * MINUTE,)


def test_missed_warnings_are_one_and_the_end_itself_is_never_unannounced() -> None:
    end = START + 4 * HOUR
    moments = warnings(BEFORE_S, START, end)
    assert not is_due(moments, end, None, end - 61 * MINUTE)
    assert is_due(moments, end, None, end - 60 * MINUTE)
    assert is_due(moments, end, None, end - 5 * MINUTE)
    assert not is_due(moments, end, end - 5 * MINUTE, end - 3 * MINUTE)
    assert is_due(moments, end, end - 5 * MINUTE, end - 2 * MINUTE)
    assert not is_due(moments, end, end - 2 * MINUTE, end)
    assert is_due((), end, None, end)
    assert (is_last(moments, end - 3 * MINUTE), is_last(moments, end - 2 * MINUTE)) == (False, True)
    assert next_look(moments, end, START) == end - 60 * MINUTE
    assert next_look(moments, end, end - 2 * MINUTE) == end


@pytest.mark.parametrize(
    ("rest", "said"),
    [
        (timedelta(0), "ending now"),
        (timedelta(seconds=-5), "ending now"),
        (timedelta(seconds=1), "1 minute left"),
        (59 * MINUTE + timedelta(seconds=30), "1 h 00 min left"),
        (72 * MINUTE, "1 h 12 min left"),
        (2 * MINUTE, "2 minutes left"),
    ],
)
def test_the_countdown_is_rounded_up_to_minutes(rest: timedelta, said: str) -> None:
    assert left(START + rest, START) == said


@pytest.mark.parametrize(
    ("time_h", "code", "more"),
    [
        (10, EndReason.RESERVATION_OVER, ""),
        (12, EndReason.HOURS_CAP, " More than 12 hours needs an override."),
        (20, EndReason.HOURS_CAP, ""),
    ],
)
def test_an_end_names_the_override_only_where_the_session_had_none(time_h: int, code: EndReason, more: str) -> None:
    found = ended_by(Decimal(time_h), Policy(), spent="", unconfirmed=False)
    assert found == (code, f"The approved {time_h} hours have ended.{more}")


def test_the_termination_policy_says_what_ends_a_session() -> None:
    said = termination_policy(BEFORE_S, can_end=True, agent="No agent reports from it.")
    assert "warning 1 hour, 30 minutes, 10 minutes and 2 minutes before." in said
    assert said.endswith(" No agent reports from it.")
    assert termination_policy((600,), can_end=True, agent="").endswith("warning 10 minutes before.")
    assert termination_policy((), can_end=True, agent="").startswith(
        "It ends at its approved time or amount. Its owner gets a warning sh"
    )
    assert termination_policy(BEFORE_S, can_end=False, agent="").startswith("Its cloud can't end it")


def test_more_time_is_inside_up_to_what_was_approved() -> None:
    end = START + HOUR
    assert extension.is_inside(end, Decimal(1), START + 2 * HOUR)
    assert extension.is_inside(end, Decimal(1), START + 2 * HOUR - timedelta(milliseconds=900))
    assert not extension.is_inside(end, Decimal("1.1"), START + 2 * HOUR)


def test_more_time_costs_the_rate_that_is_billed_and_at_worst_the_tolerance() -> None:
    costs = extension.estimate(Decimal("0.40"), Decimal(2), Policy())
    assert (costs.best_usd, costs.expected_usd, costs.worst_usd) == (Decimal("0.8"), Decimal("0.8"), Decimal("0.88"))
    assert costs.assumptions == ("2 hours more at $0.400/h, which is what the cloud bills now.",)


def test_above_the_cap_on_hours_somebody_else_decides() -> None:
    assert extension.override_sentence(Decimal(10), Decimal(2), Policy()) == ""
    assert extension.override_sentence(Decimal(10), Decimal("2.5"), Policy()).startswith(
        "12.5 hours in all is above the limit of 12 hours"
    )


def test_owners_approvers_and_fallback_contacts_may_act() -> None:
    policy = Policy(approvers=("UBOB",), fallback_contacts=("UCAROL",))

    def person(name: str, kind: ActorKind = ActorKind.SLACK) -> DeciderFacts:
        return DeciderFacts(Actor(kind, name))

    for name in ("UBOB", "UCAROL"):
        assert extension.may_act(policy, person(name), own=False)
    for who in (replace(person("UBOB"), is_guest=True), replace(person("UBOB"), is_bot=True)):
        assert not extension.may_act(policy, who, own=False)
        assert extension.may_act(policy, who, own=True)
    assert not extension.may_act(policy, person("UDAVE"), own=False)
    assert not extension.may_act(policy, person("UCAROL", ActorKind.OPERATOR), own=False)
    alice = person("UALICE")
    assert extension.may_act(policy, alice, own=True)
    for unclear in (replace(alice, known=False), replace(alice, team_ok=False), replace(alice, is_deleted=True)):
        assert not extension.may_act(policy, unclear, own=True)
