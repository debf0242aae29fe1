"""Approvals in advance: who may give one, and which offer is inside it."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest

from bot.rules.approvals.advance import Cover, MatchedSpend, may_approve, outside
from bot.rules.approvals.approvers import DeciderFacts
from bot.rules.approvals.authority import ApprovalPlan
from bot.rules.approvals.decision import RequestFacts
from bot.rules.policy.policy import Policy
from bot.rules.values.phrases import Verdict
from bot.rules.values.reply_code import ReplyCode
from ledger.kernel.actor import Actor, ActorKind
from ledger.kernel.states import RequestState
from providers.gpus.constraint import GpuConstraint
from tests.rules.builders import NOW

REQUESTER = Actor(ActorKind.SLACK, "U1", "T1")
BOSS = Actor(ActorKind.SLACK, "U2", "T1")
POLICY = Policy(approvers=("U2", "U3"))
ONE = ApprovalPlan(required=1, rule="", confirm_amount=False, needs_override=False)
COVER = Cover(
    GpuConstraint(("H100-SXM",), 8, 8), Decimal(16), Decimal(100), Decimal(6), NOW + timedelta(hours=2), "large"
)
SPEND = MatchedSpend("H100-SXM", 8, Decimal(16), Decimal(100), Decimal(90), Decimal(6), "large", NOW)
REQUEST = RequestFacts(
    state=RequestState.WAITING,
    requester=REQUESTER,
    quote_version=0,
    expires_at=COVER.until,
    expected_usd=COVER.total_usd,
    worst_usd=COVER.total_usd,
)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({}, ""),
        ({"gpu": "A100-SXM"}, "A100-SXM is not among the GPUs that were approved in advance."),
        ({"gpu_count": 4}, "4 GPUs is not the number that was approved in advance."),
        ({"price_usd_h": Decimal(17)}, "The price is $17.00/h, above the $16.00/h that was approved in advance."),
        ({"total_usd": Decimal(101)}, "It may cost $101.00, above the $100.00 that was approved in advance."),
        (
            {"expected_usd": Decimal(101)},
            "It is expected to cost $101.00, above the $100.00 that was approved in advance.",
        ),
        ({"hours": Decimal(7)}, "It is for 7 h, and 6 h were approved in advance."),
        ({"at": COVER.until}, "The approval in advance has expired."),
        ({"tier": ""}, "The policy's tier for it has changed since it was approved in advance."),
    ],
)
def test_what_is_outside_is_named(changes: dict[str, Any], sentence: str) -> None:
    assert outside(COVER, replace(SPEND, **changes)) == sentence


def test_any_gpu_is_inside_where_none_was_named() -> None:
    assert not outside(replace(COVER, gpu=GpuConstraint((), 8, 8)), replace(SPEND, gpu="B200"))


def judge(
    who: Actor = BOSS,
    *,
    needed: ApprovalPlan = ONE,
    cover: Cover | None = COVER,
    typed: str | None = None,
    **request: Any,
) -> Verdict:
    return may_approve(POLICY, needed, cover, replace(REQUEST, **request), DeciderFacts(who), typed, NOW)


def test_an_approver_approves_the_limits() -> None:
    said = "You approved it in advance: at most $16.00/h and $100.00 in all."
    assert judge() == Verdict(True, ReplyCode.IN_ADVANCE, said)
    two = replace(ONE, required=2)
    assert judge(needed=two).sentence == f"{said} It needs 1 more approval."
    other = f"{Actor(ActorKind.SLACK, 'U3', 'T1').ref}"
    assert judge(needed=two, approvals=(other,)).sentence == said


def test_the_total_is_typed_above_the_amount_of_the_policy() -> None:
    confirm = replace(ONE, confirm_amount=True)
    assert judge(needed=confirm).code == ReplyCode.AMOUNT_NEEDED
    assert judge(needed=confirm, typed="90").code == ReplyCode.AMOUNT_MISMATCH
    assert judge(needed=confirm, typed="$100").allowed


@pytest.mark.parametrize(
    ("parts", "code"),
    [
        ({"who": REQUESTER}, ReplyCode.REQUESTER),
        ({"who": Actor(ActorKind.SLACK, "U9", "T1")}, ReplyCode.NOT_AN_APPROVER),
        ({"state": RequestState.CANCELLED}, ReplyCode.ALREADY_CANCELLED),
        ({"state": RequestState.QUOTING}, ReplyCode.NOT_WAITING),
        ({"expires_at": NOW}, ReplyCode.ALREADY_EXPIRED),
        ({"cover": None}, ReplyCode.NO_LIMIT),
        ({"cover": replace(COVER, total_usd=Decimal(101))}, ReplyCode.CAP_RAISED),
        ({"cover": replace(COVER, total_usd=Decimal(0))}, ReplyCode.CAP_RAISED),
        ({"approvals": (BOSS.ref,)}, ReplyCode.ALREADY_VOTED),
    ],
)
def test_everybody_else_and_everything_else_is_refused(parts: dict[str, Any], code: ReplyCode) -> None:
    found = judge(**parts)
    assert not found.allowed
    assert found.code == code
