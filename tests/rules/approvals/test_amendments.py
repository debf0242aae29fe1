"""Approving with changes: never longer, never dearer, and a digest that changes with what stands."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

import pytest
from hypothesis import given

from bot.rules.approvals import amendments
from bot.rules.approvals.amendments import AmendedTerms
from bot.rules.approvals.approvers import DeciderFacts
from bot.rules.approvals.decision import verdict
from bot.rules.market.estimate import Component, estimate
from bot.rules.policy.policy import Policy
from tests.rules.approvals.test_decision import APPROVE, BOSS, ONE, POLICY, REQUEST
from tests.rules.builders import CLOUDS, HOURS, NOW, OFFERS, job


@given(OFFERS, HOURS, HOURS)
def test_a_shorter_time_never_costs_more_and_the_longest_costs_what_was_shown(
    one: object, asked_h: Decimal, time_h: Decimal
) -> None:
    found = estimate(one, job(str(asked_h)), Policy(), CLOUDS["runpod"])  # type: ignore[arg-type] # A drawn offer.
    shorter, longer = sorted((min(time_h, asked_h), asked_h))
    low, high = (amendments.shortened(found, asked_h, hours) for hours in (shorter, longer))
    assert low[0] <= high[0] <= found.expected_usd
    assert low[1] <= high[1] <= found.worst_usd
    assert low[0] <= low[1]
    assert abs(high[1] - found.worst_usd) <= Decimal("0.000001")


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        ({"compute": "0.53", "storage": "0.04", "transfer": "0.20"}, "$0.20 transfer"),
        ({"compute": "0.90", "transfer": "0.10"}, "$0.10 transfer"),
        ({"compute": "0.91", "transfer": "0.09"}, ""),
        ({"compute": "0.50", "storage": "0.50"}, ""),  # The price of an hour includes its disk.
        ({"compute": "8", "transfer": "0.5", "retries": "0.5", "interruptions": "0"}, "$1.00 extras"),
        ({"compute": "0.001", "transfer": "0.001"}, ""),
        ({}, ""),
    ],
)
def test_what_a_total_holds_besides_its_hours_is_said_from_a_tenth_on(parts: dict[str, str], said: str) -> None:
    amounts = [(name, Decimal(amount)) for name, amount in parts.items()]
    assert amendments.besides_hours([Component(name, usd, usd) for name, usd in amounts]) == said


def test_transfer_does_not_shrink_with_the_time() -> None:
    parts = [Component(name, *[Decimal(1)] * 2) for name in ("compute", "transfer")]
    shorter = amendments.parts_for(parts, Decimal(10), Decimal(5))
    assert [(one.name, one.expected_usd) for one in shorter] == [("compute", Decimal("0.5")), ("transfer", Decimal(1))]
    assert amendments.parts_for(parts, Decimal(10), Decimal("0.1"))[0].worst_usd == Decimal("0.1")


@pytest.mark.parametrize(
    ("time_h", "can", "code"),
    [
        (None, False, None),
        (Decimal(4), True, None),
        (Decimal(6), True, None),
        (Decimal(4), False, "not_changeable"),
        (Decimal("6.01"), True, "hours_raised"),
        (Decimal(0), True, "bad_hours"),
        (Decimal("NaN"), True, "bad_hours"),
    ],
)
def test_the_time_can_be_shortened_only(time_h: Decimal | None, can: bool, code: str | None) -> None:
    refused = amendments.may_shorten(time_h, Decimal(6), can=can)
    assert (refused.code if refused else None) == code


def test_the_digest_is_about_what_stands() -> None:
    untouched = AmendedTerms("req_1", 1)
    others = [
        AmendedTerms("req_1", 2),
        AmendedTerms("req_2", 1),
        AmendedTerms("req_1", 1, Decimal(4)),
        AmendedTerms("req_1", 1, Decimal(4), Decimal(9)),
        AmendedTerms("req_1", 1, None, Decimal(9)),
    ]
    assert not untouched.is_changed
    assert [one.is_changed for one in others] == [False, False, True, True, True]
    assert len({one.digest for one in (untouched, *others)}) == 6
    assert AmendedTerms("req_1", 1, Decimal("4.0")).digest == others[2].digest
    amounts = (Decimal("0.4"), Decimal(3))
    assert amendments.covered("r", 1, "vast:1", amounts, Decimal(2)) != amendments.covered(
        "r", 1, "vast:1", amounts, Decimal(3)
    )


def test_the_requester_reads_what_changed() -> None:
    assert amendments.amendment_summary(Decimal(6), Decimal(6), None, "") == ""
    assert amendments.amendment_summary(Decimal(6), Decimal(4), Decimal(30), "vast:7") == (
        "4 hours instead of 6 hours, at most $30.00 in all, vast:7 instead of the offer shown first"
    )


@pytest.mark.parametrize(
    ("stands", "seen", "code"),
    [
        (AmendedTerms("req_1", 2), None, "approved"),
        (AmendedTerms("req_1", 2), AmendedTerms("req_1", 2).digest, "approved"),
        (AmendedTerms("req_1", 2), "0" * 12, "changed_since"),
        (AmendedTerms("req_1", 2, Decimal(4)), None, "changed_since"),
        (AmendedTerms("req_1", 2, Decimal(4)), AmendedTerms("req_1", 2).digest, "changed_since"),
        (AmendedTerms("req_1", 2, Decimal(4)), AmendedTerms("req_1", 2, Decimal(4)).digest, "approved"),
    ],
)
def test_a_click_on_what_was_shown_before_changes_nothing(stands: AmendedTerms, seen: str | None, code: str) -> None:
    what, request = replace(APPROVE, seen=seen), replace(REQUEST, terms=stands)
    assert verdict(POLICY, ONE, what, request, DeciderFacts(BOSS), NOW).code == code
