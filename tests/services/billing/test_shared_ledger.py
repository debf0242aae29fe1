"""The ledger that tools share: each cost once by whichever door, ours out and never in, and changes are found."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from bot.services.billing import rollup, shared_file, shared_ledger
from bot.services.budgets import enforcement
from ledger.kernel.actor import Actor
from tests.support.builders import asked
from tests.support.clock import START
from tests.support.world import ALICE, BOB, DAVE, World

ENTRY: dict[str, Any] = {
    "skill": "training-runner",
    "provider": "s3",
    "action": "store",
    "amount_usd": 2.5,
    "timestamp": "2026-03-01T10:00:00Z",
    "notes": "a | b",
}


#: A ledger that does not take one of the entries, for whatever reason.
REFUSES = {
    "postgresql": "ALTER TABLE external_costs ADD CONSTRAINT no_poison CHECK (notes <> 'poison')",
    "sqlite": "CREATE TRIGGER no_poison BEFORE INSERT ON external_costs WHEN NEW.notes = 'poison'"
    " BEGIN SELECT RAISE(ABORT, 'poison'); END",
}


async def test_costs_of_other_tools_and_our_own_share_one_file(w: World, tmp_path: Path) -> None:
    request_id = await w.running(candidates=("vast",))
    w.clock.advance(3_700)
    await w.settle()
    await w.end(request_id)
    await w.run(150, 15)
    reply = await shared_ledger.append(w.ctx, ALICE, ENTRY)
    assert (reply.code, reply.sentence) == ("booked", "$2.50 of training-runner at s3 is booked.")
    assert (await shared_ledger.append(w.ctx, ALICE, ENTRY)).code == "known"
    assert (await shared_ledger.append(w.ctx, ALICE, ENTRY | {"amount_usd": 0})).code == "bad_entry"

    path = tmp_path / "cost_ledger.json"
    refund = ENTRY | {"skill": "storage", "amount_usd": "-0.5", "id": "r1"}
    stored = ENTRY | {"skill": "storage", "amount_usd": "1.5", "id": "r0"}
    path.write_text(json.dumps([ENTRY, refund, stored, {"skill": "broken"}]))
    *own, theirs = await shared_ledger.exported(w.ctx)
    assert theirs.pop("id").startswith("gpu-shopper/external/")
    assert theirs == ENTRY | {"timestamp": "2026-03-01T10:00:00+00:00"}
    (row,) = (await w.books()).instances
    assert [one["action"] for one in own] == ["instance_created", "instance_hour", "instance_terminated"]
    assert {one["skill"] for one in own} == {"gpu-shopper"}
    spent = sum(Decimal(str(one["amount_usd"])) for one in own)
    assert spent == (await w.session(row.session_id)).accrued_usd > 0
    assert await shared_ledger.exported(w.ctx, w.clock.now()) == []
    assert shared_file.merge(path, own) == 3
    assert shared_file.merge(path, own) == 0
    shared = json.loads(path.read_text())
    assert shared[:4] == [ENTRY, refund, stored, {"skill": "broken"}]
    assert shared[4:] == own

    # A tool that keeps more than a list, and reads the file that a link leads to, finds everything there afterwards.
    linked = tmp_path / "linked.json"
    odd: dict[str, Any] = {"version": 2, "entries": [{"id": ["odd"]}, ENTRY]}
    linked.symlink_to(tmp_path / "real.json")
    linked.resolve().write_text(json.dumps(odd))
    assert (shared_file.merge(linked, own), linked.is_symlink()) == (3, True)
    assert json.loads((tmp_path / "real.json").read_text()) == {"version": 2, "entries": [*odd["entries"], *own]}
    assert (tmp_path / "real.json.lock").is_file()

    w.tune(cost_ledger_file=str(path))
    assert (
        await shared_ledger.import_due(w.ctx) == 2
    )  # The refund with its cost: one is known, one is broken, and ours are never taken.
    assert await shared_ledger.import_due(w.ctx) == 0
    for damage in ("{", '"text"', "[" * 100_000):
        path.write_text(damage)
        assert await shared_ledger.import_due(w.ctx) == 0
    w.tune(cost_ledger_file="")
    assert await shared_ledger.import_due(w.ctx) == 0

    await rollup.roll_due(w.ctx)
    found = await shared_ledger.summary(w.ctx)
    assert dict(found.tools) == {"training-runner": Decimal("2.5"), "gpu-shopper": spent, "storage": Decimal(1)}
    assert found.total_usd == spent + Decimal("3.5")
    assert dict(found.providers) == {"vast": spent, "s3": Decimal("3.5")}
    told = shared_ledger.as_markdown(found)
    assert "Total spend: **$" in told
    assert "| training-runner | $2.50 |" in told
    assert "No budget is set." in told
    assert (await shared_ledger.summary(w.ctx, DAVE)).total_usd == 0


async def test_an_export_brings_what_other_tools_appended_once(w: World, tmp_path: Path) -> None:
    path = tmp_path / "cost_ledger.json"
    named = ENTRY | {"id": "run-7", "amount_usd": "4"}
    for one in (ENTRY, named):
        assert (await shared_ledger.append(w.ctx, ALICE, one)).code == "booked"
    path.write_text(json.dumps([ENTRY]))  # Its tool wrote this one into the file as well.
    exported = await shared_ledger.exported(w.ctx)
    assert sorted(one["amount_usd"] for one in exported) == [2.5, 4.0]
    assert shared_file.merge(path, exported) == 1
    assert shared_file.merge(path, exported) == 0
    mine, other = json.loads(path.read_text())
    assert (mine, other["skill"], other["amount_usd"]) == (ENTRY, "training-runner", 4.0)
    assert shared_file.others([mine, other]) == [ENTRY]  # Nobody imports what was exported.
    path.write_text(json.dumps([mine, other, named]))  # Its tool writes it now, too.
    assert shared_file.merge(path, exported) == 0
    assert json.loads(path.read_text()) == [ENTRY, named]
    assert await shared_ledger.exported(w.ctx, w.clock.now()) == []


async def test_no_refund_makes_room_in_a_budget_for_what_we_buy_ourselves(w: World) -> None:
    w.tune(budgets={"global": {"monthly": Decimal("0.5")}})
    request_id = str((await w.ask(candidates=("vast",))).data["request_id"])
    await w.settle()
    assert (await w.decide(request_id)).code == "over_budget"

    async def say(amount: str, actor: Actor = ALICE, at: datetime = START, **changes: Any) -> str:
        entry = ENTRY | {"amount_usd": amount, "timestamp": at.isoformat(), "id": f"{amount}/{at}/{actor}"} | changes
        return (await shared_ledger.append(w.ctx, actor, entry)).code

    assert await say("-1000000") == "bad_entry"
    assert await say("-50") == "refund_unmatched"
    assert await say("40", at=START - timedelta(days=40)) == "booked"
    assert await say("-40", BOB) == "refund_unmatched"
    assert await say("-40", skill="another-tool") == "refund_unmatched"
    assert await say("-40.01") == "refund_unmatched"
    # What was spent before the budget's month and is given back in it is no room for others in that month.
    assert [await say("-40"), await say("-40"), await say("-1")] == ["booked", "known", "refund_unmatched"]
    assert [line.spent_usd for line in await enforcement.overview(w.ctx)] == [Decimal(0)]
    assert (await w.decide(request_id)).code == "over_budget"


@pytest.mark.both_databases
async def test_many_costs_are_written_together_and_one_that_is_refused_keeps_no_other_out(bare: World) -> None:
    w = bare
    many = [ENTRY | {"id": f"n{number}", "skill": f"tool-{number % 3}"} for number in range(30)]
    refunds = [ENTRY | {"id": f"r{number}", "skill": "tool-0", "amount_usd": -20} for number in (1, 2)]
    with asked() as said:
        new, wrong = await shared_ledger.append_all(w.ctx, ALICE, [*refunds, *many, {"skill": "broken"}])
    assert new == 31
    assert [why[:7] for why in wrong] == ["entry 3", "A refun"]  # 25 dollars were booked: one refund of 20 fits.
    assert said.count("ledger_entries") <= 3, said
    assert await shared_ledger.append_all(w.ctx, BOB, many) == (0, [])

    # Whatever the ledger itself does not take is told, and what came with it is kept.
    async with w.ctx.db.write() as tx:
        await tx.execute(text(REFUSES[w.ctx.db.dialect]))
    poison = ENTRY | {"notes": "poison"}
    new, wrong = await shared_ledger.append_all(w.ctx, BOB, [poison, ENTRY | {"id": "a"}, ENTRY | {"id": "b"}])
    assert (new, wrong) == (2, ["$2.50 of training-runner at s3: the ledger does not take it."])
    for some in ([poison], [poison, poison | {"id": "c"}]):
        with pytest.raises(Exception, match="poison"):
            await shared_ledger.append_all(w.ctx, BOB, some)
    assert (await shared_ledger.verify(w.ctx)).problems == ()
    assert (await shared_ledger.summary(w.ctx)).total_usd == 32 * Decimal("2.5") - 20


@pytest.mark.both_databases
async def test_a_change_behind_the_program_is_found(bare: World) -> None:
    w = bare
    for number in range(3):
        assert (await shared_ledger.append(w.ctx, ALICE, ENTRY | {"id": str(number)})).ok
    whole = await shared_ledger.verify(w.ctx)
    assert (whole.entries, whole.hashed, whole.waiting, whole.problems) == (3, 0, 3, ())
    await rollup.roll_due(w.ctx)
    whole = await shared_ledger.verify(w.ctx)
    assert (whole.hashed, whole.waiting, whole.problems, len(whole.head)) == (3, 0, (), 64)
    async with w.ctx.db.write() as tx:
        off = "DROP TRIGGER ledger_entries_no_update" + (" ON ledger_entries" if w.ctx.db.dialect != "sqlite" else "")
        await tx.execute(text(off))
        await tx.execute(text("UPDATE ledger_entries SET amount_usd = amount_usd + 1000000"))
    problems = (await shared_ledger.verify(w.ctx)).problems
    assert [problem.split()[0] for problem in problems] == ["entry", "the"]
    async with w.ctx.db.write() as tx:
        await tx.execute(text("DELETE FROM entry_hashes WHERE number = 1"))
    problems = (await shared_ledger.verify(w.ctx)).problems
    assert problems[0] == "hash 1 is missing"
    assert problems[1] == "of 3 entries, 2 are in the hash chain and 0 wait for it"


async def test_what_is_live_is_listed_with_its_endpoint_for_its_owner(w: World) -> None:
    await w.running(candidates=("vast",))
    mine = await shared_ledger.manifest(w.ctx, ALICE, everybody=False, endpoints=False)
    (one,) = mine["instances"]
    assert (one["provider"], one["owner"], one["state"]) == ("vast", ALICE.ref, "live")
    assert one["ssh"]["command"].startswith("ssh ")
    assert (await shared_ledger.manifest(w.ctx, DAVE, everybody=False, endpoints=False))["instances"] == []
    (seen,) = (await shared_ledger.manifest(w.ctx, DAVE, everybody=True, endpoints=False))["instances"]
    assert seen["ssh"] is None
    assert START.isoformat()[:4] in mine["generated_at"]


def test_a_file_that_is_no_ledger_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "cost_ledger.json"
    assert shared_file.read_locked(path) == []
    path.write_text('{"entries": [{"skill": "x"}]}')
    assert shared_file.others(shared_file.read_locked(path)) == [{"skill": "x"}]
    path.write_text("3")
    with pytest.raises(shared_file.SharedFileError, match="no list"):
        shared_file.merge(path, [])
    assert [one.name for one in tmp_path.iterdir() if one.name.startswith(".")] == []


async def test_the_owners_of_a_budget_hear_of_what_other_tools_take_from_it(w: World, tmp_path: Path) -> None:
    path = tmp_path / "cost_ledger.json"
    path.write_text(json.dumps([ENTRY | {"amount_usd": 25}]))
    limits = {"global": {"monthly": Decimal(100)}, "user:*": {"monthly": Decimal(1)}}
    w.tune(budgets=limits, cost_ledger_file=str(path))

    async def told() -> list[tuple[str, str]]:
        notes = (await w.books()).notifications
        return sorted((one.subject, one.destination) for one in notes if one.kind == "budget.threshold")

    alices = [("user:UALICE/monthly/2026-03-01/50", to) for to in ("UALICE", "channel:operators")]
    assert await shared_ledger.import_due(w.ctx) == 1
    assert await told() == []  # Nobody's own: the file's costs are those of no user.
    assert (await shared_ledger.append(w.ctx, ALICE, ENTRY | {"amount_usd": "0.6"})).ok
    assert await told() == alices  # A person's own budget warns that person, too.
    w.tune(budgets={"global": {"monthly": Decimal(32)}})  # Lowered meanwhile: what is reached already is told next.
    assert (await shared_ledger.append(w.ctx, BOB, ENTRY | {"amount_usd": 1})).ok
    assert await told() == [("global/monthly/2026-03-01/80", "channel:operators"), *alices]
