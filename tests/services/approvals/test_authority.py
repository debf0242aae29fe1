"""Authority counts the whole run: however it is cut into parts, the parts need the approvers of the whole."""

from __future__ import annotations

import random
from dataclasses import replace
from decimal import Decimal
from typing import Any, Final

import pytest

from bot.rules.jobs.stored import job_of, stored_job
from bot.rules.policy.tiers import ApprovalTier
from bot.services.audit import invariants
from bot.services.grants import authority
from bot.services.requests import submit
from bot.services.requests.again import Again, again
from bot.services.runtime.commands import Provision
from ledger.core import Tx
from ledger.engine.db import Database
from ledger.kernel.request_kind import RequestKind
from ledger.kernel.states import RequestState, SessionState
from ledger.kernel.steps.relocation_step import MigrationStep
from ledger.models import Approval, Migration
from providers.sandbox.clock import SandboxTiming
from tests.services.checkpoints.test_verification import looks_at
from tests.support.clock import SteppedClock
from tests.support.stores import Shelf, served
from tests.support.world import ALICE, BOB, CAROL, CHANNEL, World, world

SLICES: Final = 50
CHECKPOINT: Final = "s3://bucket/run"


async def approve(w: World, request_id: str) -> int:
    """Let Bob approve, and Carol too where one is not enough. Returns how many it took."""
    for number, who in enumerate((BOB, CAROL), 1):
        amount = (await w.decide(request_id, who)).data.get("in_all_usd")
        code = (await w.view(request_id)).request.state
        if code is RequestState.PENDING and number == 1:
            continue
        assert code is RequestState.APPROVED, (code, amount)
        return number
    raise AssertionError("two people did not suffice")


async def test_six_extensions_by_the_same_person_need_a_second_one(w: World) -> None:
    w.tune(two_approvers_above_usd=Decimal("1.2"))
    request_id = await w.running(hours=Decimal(1), candidates=("vast",))
    codes = []
    for _ in range(6):
        more = await w.more(request_id, "1.5", reason="more")
        codes.append((await w.decide(str(more.data["request_id"]), BOB)).code)
        if codes[-1] == "first_of_two":
            break
    assert codes[-1] == "first_of_two", codes
    extension = (await w.view(str(more.data["request_id"]))).request
    assert extension.required_approvals == 2
    assert " in all is above $1.20" in extension.rule
    spent = sum(one.total_cap_usd for one in (await w.books()).grants)
    assert spent <= Decimal("1.2")  # What Bob alone approved.
    assert (await w.decide(extension.id, CAROL)).code == "approved"


async def test_extensions_reach_the_tier_of_the_whole(w: World) -> None:
    w.tune(approval_tiers=(ApprovalTier("large", approvals=2, above_usd=Decimal("1.2")),))
    request_id = await w.running(hours=Decimal(1), candidates=("vast",))
    codes = []
    for _ in range(6):
        more = str((await w.more(request_id, "1.5", reason="more")).data["request_id"])
        codes.append((await w.decide(more, BOB)).code)
        if codes[-1] == "first_of_two":
            break
    assert codes[0] == "approved"
    assert codes[-1] == "first_of_two", codes
    assert (await w.decide(more, CAROL)).code == "approved"
    assert invariants.authority.check(await w.books()) == []


async def test_the_amount_of_the_whole_session_is_typed(w: World) -> None:
    w.tune(confirm_above_usd=Decimal("1.2"))
    request_id = await w.running(hours=Decimal(3), candidates=("vast",))
    extension = str((await w.more(request_id, "2")).data["request_id"])
    asked = await w.decide(extension, BOB)
    assert asked.code == "amount_needed"
    in_all = asked.data["in_all_usd"]
    assert in_all > Decimal("1.2") > asked.data["expected_usd"]
    assert (await w.decide(extension, BOB, typed_amount=f"{asked.data['expected_usd']:.2f}")).code == "amount_mismatch"
    assert (await w.decide(extension, BOB, typed_amount=f"{in_all:.2f}")).code == "approved"


async def test_a_tier_asks_for_the_approvals_of_the_offer_that_is_approved(w: World) -> None:
    request_id = str((await w.ask(hours=Decimal(10))).data["request_id"])
    await w.settle()
    options = (await w.view(request_id)).options
    cheap, dear = options[0], max(options, key=lambda one: one.worst_usd)
    between = (cheap.worst_usd + dear.worst_usd) / 2
    assert cheap.worst_usd < between < dear.worst_usd
    w.tune(approval_tiers=(ApprovalTier("large", approvals=2, above_usd=between),))
    first, second = [str((await w.ask(hours=Decimal(10))).data["request_id"]) for _ in range(2)]
    await w.settle()
    assert (await w.view(first)).request.required_approvals == 1
    assert (await w.decide(first, BOB)).code == "approved"
    assert (await w.decide(second, BOB, rank=dear.rank)).code == "first_of_two"
    request = (await w.view(second)).request
    assert (request.required_approvals, request.rule.startswith("Tier large: needs 2 approvals")) == (2, True)
    assert (await w.decide(second, CAROL, rank=dear.rank)).code == "approved"


async def test_an_expiry_says_who_had_approved(w: World) -> None:
    w.tune(two_approvers_above_usd=Decimal("0.10"))
    request_id = str((await w.ask()).data["request_id"])
    await w.settle()
    assert (await w.decide(request_id, BOB)).code == "first_of_two"
    w.clock.advance(w.ctx.policy.request_ttl_s)
    await w.settle()
    request = (await w.view(request_id)).request
    assert request.outcome == f"Only {BOB.ref} approved it within 2 hours. It needed 2 approvals."


async def test_again_from_its_checkpoint_counts_on_in_dollars_and_hours(w: World) -> None:
    async with served(Shelf()) as stores:
        looks_at(w, stores)
        request_id = await w.running(hours=Decimal(7), candidates=("vast",), checkpoint=CHECKPOINT)
        first = await w.view(request_id)
        assert first.request.required_approvals == 1
        w.tune(two_approvers_above_usd=first.options[0].worst_usd * Decimal("1.5"))
        reply = await again(w.ctx, Again("again-1", ALICE, CHANNEL, first.request))
        await w.settle()
        view = await w.view(str(reply.data["request_id"]))
    assert view.request.run_id == request_id
    assert view.request.required_approvals == 2
    # Fourteen hours of one run need the override, which seven alone do not.
    assert view.override is not None
    unsaved = await again(w.ctx, Again("again-2", ALICE, CHANNEL, replace_checkpoint(first.request)))
    assert (await w.view(str(unsaved.data["request_id"]))).request.run_id is None


def replace_checkpoint(request: Any) -> Any:
    """The same request without a checkpoint, as its row would be."""
    copy = type(request)()
    for name in ("id", "parent_id", "kind", "requester", "run_id"):
        setattr(copy, name, getattr(request, name))
    copy.job = stored_job(replace(job_of(request.job), checkpoint=None))
    return copy


async def test_the_invariant_notices_a_part_with_too_few_approvers(w: World) -> None:
    w.tune(two_approvers_above_usd=Decimal(5))
    request_id = await w.running(hours=Decimal(2), candidates=("vast",))
    extension = str((await w.more(request_id, "1")).data["request_id"])
    assert (await w.decide(extension, BOB)).code == "approved"
    books = await w.books()
    assert invariants.authority.check(books) == []
    lower = [replaced(one, two_above_usd=Decimal("0.01")) for one in books.approvals]
    found = invariants.authority.check(replace(books, approvals=tuple(lower)))
    assert {one.rule for one in found} == {invariants.authority.RULE}
    assert "and 1 approved it" in found[0].sentence


def replaced(row: Approval, **changes: Any) -> Approval:
    values = {column.name: getattr(row, column.name) for column in Approval.__table__.columns}
    return Approval(**{**values, **changes})


class Slices:
    """One run that is asked for in parts, at random."""

    def __init__(self, w: World, dice: random.Random, number: int) -> None:
        self.w = w
        self.dice = dice
        self.number = number
        self.asked = 0
        self.request_id = ""
        self.people = 0
        self.replaced = False
        self.steps: list[str] = []

    async def first(self, hours: Decimal, usd_h: Decimal) -> None:
        """The first part, approved as it is shown or in advance."""
        more: dict[str, Any] = {"hours": hours, "candidates": ("vast",), "checkpoint": CHECKPOINT, "reason": "train"}
        advance = self.dice.random() < 0.3
        if advance:
            limit = usd_h * hours * Decimal("1.05")
            more |= {"wait": True, "start_at": "1h", "max_price_usd_h": Decimal(5), "budget_cap_usd": limit}
        reply = await self.w.ask(**more)
        assert reply.ok, reply
        await self.begun(str(reply.data["request_id"]), in_advance=advance)

    async def begun(self, request_id: str, *, in_advance: bool = False) -> None:
        """A new session of the run: approved, launched and running."""
        await self.w.settle()
        self.steps.append("advance" if in_advance else "approve")
        if in_advance:
            reply = await self.w.decide(request_id, BOB)
            assert reply.code == "in_advance", reply
            is_enough = "more approval" not in reply.sentence
            assert is_enough or (await self.w.decide(request_id, CAROL)).code == "in_advance"
            self.people = max(self.people, 1 if is_enough else 2)
            await self.w.run(3700, 1850)
            assert (await self.w.view(request_id)).request.state is RequestState.APPROVED
        else:
            self.people = max(self.people, await approve(self.w, request_id))
        await self.w.settle()
        await self.w.run(40, 20)
        self.request_id, self.replaced = request_id, False

    async def more(self, hours: Decimal) -> None:
        """The next part, in one of four ways."""
        how = self.dice.choice(("extend", "extend", "again", "migrate", "replace"))
        if how == "replace" and self.replaced:
            how = "extend"  # A session has one replacement.
        self.steps.append(f"{how} {hours}")
        if how == "replace":
            self.replaced = True
            row = next(one for one in reversed((await self.w.books()).instances) if one.ref and not one.ended_at)
            self.w.clouds[row.cloud].disturb(str(row.ref), "vanish")
            await self.runs_again()
        if how in ("replace", "extend"):
            reply = await self.w.more(self.request_id, f"{hours}", reason="more")
            assert reply.ok, (reply, self.steps)
            self.people = max(self.people, await approve(self.w, str(reply.data["request_id"])))
            return
        await self.elapse()
        self.asked += 1
        request = (await self.w.view(self.request_id)).request
        job = replace(job_of(request.job), hours=hours, wait=False, start_at=None)
        job = replace(job, budget_cap_usd=None, max_price_usd_h=None)
        key = f"slice-{self.number}-{self.asked}"
        if how == "again":
            earlier = replace_checkpoint(request)
            earlier.job = stored_job(job)
            reply = await again(self.w.ctx, Again(key, ALICE, CHANNEL, earlier))
        else:
            asks = Provision(key, ALICE, CHANNEL, job, authority.run_of(request))

            async def store(tx: Tx, request_id: str) -> None:
                tx.add(await self.moved(request_id))

            reply = await submit.submit(self.w.ctx, asks, kind=RequestKind.MIGRATE, store=store)
        assert reply.ok, reply
        source = self.request_id
        await self.begun(str(reply.data["request_id"]))
        if how == "migrate":
            await self.w.end(source)
            await self.w.run(120, 30)

    async def runs_again(self) -> None:
        """Wait for the replacement; where the approval does not cover one, people approve the next offer."""
        for _ in range(20):
            await self.w.run(60, 60)
            view = await self.w.view(self.request_id)
            if view.request.state is RequestState.PENDING:
                self.people = max(self.people, await approve(self.w, self.request_id))
            elif view.session is not None and view.session.state is SessionState.RUNNING:
                rows = [one for one in (await self.w.books()).instances if one.session_id == view.session.id]
                if rows[-1].n > 1 and rows[-1].reachable_at is not None:
                    return
        raise AssertionError(f"it was not replaced: {self.steps}")

    async def moved(self, request_id: str) -> Migration:
        """The row of a move from the run's session of now."""
        session, now = (await self.w.view(self.request_id)).session, self.w.clock.now()
        assert session is not None
        return Migration(
            id=f"mig_{request_id.partition('_')[2]}",
            request_id=request_id,
            source_session_id=session.id,
            source_request_id=self.request_id,
            step=MigrationStep.DONE,
            created_at=now,
            step_at=now,
            saved_from=CHECKPOINT,
            saved_bytes=1,
            saved_at=now,
        )

    async def elapse(self) -> None:
        """Nearly all hours of the session of now are over."""
        session = (await self.w.view(self.request_id)).session
        assert session is not None
        assert session.deadline is not None
        left_s = (session.deadline - self.w.clock.now()).total_seconds() - 1500
        await self.w.run(max(left_s, 1), max(left_s, 1))
        session = (await self.w.view(self.request_id)).session
        assert session is not None
        assert session.state is SessionState.RUNNING, self.steps


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10))
async def test_fifty_random_slices_need_the_approvers_of_the_whole(
    sqlite_db: Database, clock: SteppedClock, seed: int
) -> None:
    dice = random.Random(seed)
    shelf = Shelf()
    async with world(sqlite_db, clock, sandbox=SandboxTiming.quick()) as w, served(shelf) as stores:
        looks_at(w, stores)
        w.tune(approvers=(BOB.id, CAROL.id), max_hours=Decimal(100), max_open_requests_per_user=200)
        whole = str((await w.ask(hours=Decimal(10), candidates=("vast",), checkpoint=CHECKPOINT)).data["request_id"])
        await w.settle()
        usd_h = (await w.view(whole)).options[0].worst_usd / 10
        for number in range(SLICES // 10):
            hours = Decimal(dice.choice((4, 6, 8, 10)))
            # Far enough from the total: what ended costs what it used, and not its worst case.
            factor = dice.choice(("0.5", "0.7", "1.5", "2"))
            w.tune(two_approvers_above_usd=None)
            w.tune(two_approvers_above_usd=usd_h * hours * Decimal(factor))
            slices = Slices(w, dice, number)
            parts = [Decimal(1)] * int(hours) if dice.random() < 0.3 else [hours / 4] * 4
            await slices.first(parts[0], usd_h)
            for part in parts[1:]:
                await slices.more(part)
            needed = 2 if Decimal(factor) < 1 else 1
            assert slices.people == needed, (number, hours, factor, slices.steps)
            shelf.put("run/step-1/model.pt", 1_000, w.clock.now())
            await w.end(slices.request_id)
            await w.run(120, 60)
        assert invariants.authority.check(await w.books()) == []
