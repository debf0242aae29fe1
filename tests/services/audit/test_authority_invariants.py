"""The audit of authority: silent on right books and on live edits, and loud about each missing approval."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from decimal import Decimal
from typing import Any

from bot.rules.jobs.stored import job_of, stored_job
from bot.rules.policy.tiers import ApprovalTier
from bot.services.audit.invariants import authority
from bot.services.requests.again import Again, again
from ledger.kernel.request_kind import RequestKind
from ledger.models import Approval
from ledger.queries.audit import Books
from tests.services.approvals.test_authority import CHECKPOINT, replaced
from tests.services.checkpoints.test_verification import looks_at
from tests.support.stores import Shelf, served
from tests.support.world import ALICE, BOB, CAROL, CHANNEL, World

Limits = Mapping[str, Any]


def rules(books: Books) -> list[str]:
    return sorted({one.rule for one in authority.check(books)})


def with_approvals(books: Books, change: Callable[[Approval], Approval]) -> Books:
    return replace(books, approvals=tuple(change(one) for one in books.approvals))


def judged_by(books: Books, change: Callable[[Limits], Limits]) -> Books:
    """The books as if each decision had been judged by other limits."""
    return with_approvals(
        books, lambda one: replaced(one, policy_limits=one.policy_limits and change(one.policy_limits))
    )


def by_tiers(books: Books, *tiers: Limits) -> Books:
    return judged_by(books, lambda limits: {**limits, "tiers": list(tiers)})


def tier(above_usd: Decimal, approvals: int = 2, **changes: Any) -> Limits:
    empty: Limits = {"name": "large", "above_hours": None, "only_amounts": True, "people": None}
    return {**empty, "approvals": approvals, "above_usd": str(above_usd), **changes}


async def extended(w: World) -> Books:
    """Two hours, then one more, each approved by Bob."""
    request_id = await w.running(hours=Decimal(2), candidates=("vast",))
    extension = str((await w.more(request_id, "1", reason="more")).data["request_id"])
    assert (await w.decide(extension, BOB)).code == "approved"
    return await w.books()


async def test_a_part_without_the_approvals_of_the_tier_of_the_whole_is_found(w: World) -> None:
    books = await extended(w)
    whole = sum((one.total_cap_usd for one in books.grants), Decimal(0))
    most = max(one.total_cap_usd for one in books.grants)
    between = (whole + most) / 2  # No part is above it, and both together are.
    assert most < between < whole
    assert rules(books) == []
    broken = by_tiers(books, tier(between))
    assert rules(broken) == [authority.TIERS]
    (violation,) = authority.check(broken)  # The first part was right.
    assert "its run is in tier large, and 1 approved it" in violation.sentence
    assert rules(by_tiers(books, tier(whole))) == []
    assert rules(by_tiers(books, tier(between, above_hours="2.5"))) == [authority.TIERS]
    assert rules(by_tiers(books, tier(between, above_hours="3"))) == []


async def test_an_approval_of_somebody_outside_the_tiers_group_is_found(w: World) -> None:
    books, cent = await extended(w), Decimal("0.01")
    assert rules(by_tiers(books, tier(cent, 1, people=["slack:UBOB"]))) == []
    assert rules(by_tiers(books, tier(cent, 1, people=["slack:UCAROL"]))) == [authority.TIERS]
    delegated = with_approvals(
        by_tiers(books, tier(cent, 1, people=["slack:UCAROL"])), lambda one: replaced(one, on_behalf_of=CAROL.ref)
    )
    assert rules(delegated) == []


async def test_rows_that_the_spend_may_have_belonged_to_raise_no_alarm(w: World) -> None:
    books, cent = await extended(w), Decimal("0.01")
    both = tier(cent, 2)
    assert rules(by_tiers(books, tier(cent, 1, name="ours", only_amounts=False), both)) == []
    assert rules(by_tiers(books, tier(cent, 3, name="ours", only_amounts=False), both)) == [authority.TIERS]
    assert rules(by_tiers(books, tier(cent, 2, only_amounts=False))) == []
    old = with_approvals(by_tiers(books, both), lambda one: replaced(one, policy_limits=None))
    assert rules(old) == []


async def test_a_live_edit_of_the_policy_raises_no_alarm(w: World) -> None:
    await extended(w)
    w.tune(approval_tiers=(ApprovalTier("large", approvals=2, above_usd=Decimal("0.01")),), max_hours=Decimal(1))
    books = await w.books()
    assert rules(books) == []
    assert {one.policy_limits["max_hours"] for one in books.approvals if one.policy_limits} == {"12"}


async def test_an_extension_above_the_hours_that_only_its_owner_approved_is_found(w: World) -> None:
    w.tune(max_hours=Decimal("2.5"))
    books = await extended(w)
    assert rules(books) == []  # Three hours in all: Bob approved the third, and it isn't his session.
    broken = with_approvals(books, lambda one: replaced(one, approver=ALICE.ref))
    assert rules(broken) == [authority.HOURS]
    (violation,) = authority.check(broken)
    assert "its run may take 3.00 hours with it, above 2.5" in violation.sentence


async def test_a_run_continued_above_the_hours_without_an_override_is_found(w: World) -> None:
    async with served(Shelf()) as stores:
        looks_at(w, stores)
        first = await w.running(hours=Decimal(7), candidates=("vast",), checkpoint=CHECKPOINT)
        reply = await again(w.ctx, Again("again-1", ALICE, CHANNEL, (await w.view(first)).request))
        await w.settle()
        assert (await w.decide(str(reply.data["request_id"]), BOB)).code == "approved"
        await w.settle()
        books = await w.books()
    (override,) = [one for one in books.requests if one.kind is RequestKind.OVERRIDE_12H]
    assert rules(books) == []
    without = tuple(one for one in books.approvals if one.request_id != override.id)
    assert rules(replace(books, approvals=without)) == [authority.HOURS]
    own = with_approvals(books, lambda one: replaced(one, approver=ALICE.ref) if one.request_id == override.id else one)
    assert rules(own) == [authority.HOURS]
    lower = judged_by(replace(books, approvals=without), lambda limits: {**limits, "max_hours": "14"})
    assert rules(lower) == []
    override.job = stored_job(replace(job_of(override.job), already_hours=Decimal(0)))
    assert rules(books) == [authority.HOURS]  # It allows seven hours, not fourteen.
