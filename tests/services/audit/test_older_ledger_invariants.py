"""The audit of older ledgers: silent while nothing is bought, and loud about a launch in between."""

from __future__ import annotations

from datetime import timedelta

from bot.services.audit.invariants import older_ledgers
from bot.services.runtime import older_ledger
from ledger.core import record
from ledger.kernel.actor import SYSTEM, Actor, ActorKind
from ledger.kernel.event_kind import EventKind
from tests.support.world import World


async def rules(w: World) -> set[str]:
    return {one.rule for one in older_ledgers.check(await w.books())}


async def test_a_launch_before_the_ledger_is_accepted_is_found(bare: World) -> None:
    w = bare
    await w.running(candidates=("runpod",))
    assert await rules(w) == set()
    (sent,) = [event for event in (await w.books()).events if event.after == "sending"]
    async with w.ctx.db.write() as tx:
        await older_ledger.contradicted(tx, sent.at - timedelta(seconds=60))
    assert await rules(w) == {older_ledgers.RULE}
    async with w.ctx.db.write() as tx:
        ada = Actor(ActorKind.OPERATOR, "ada")
        record(tx, sent.at - timedelta(seconds=1), ada, older_ledger.SUBJECT, EventKind.LEDGER_ACCEPTED)
    assert await rules(w) == set()


async def test_what_another_ledger_had_sent_is_no_launch(bare: World) -> None:
    w = bare
    async with w.ctx.db.write() as tx:
        await older_ledger.contradicted(tx, w.clock.now())
        later = w.clock.now() + timedelta(seconds=60)
        reason = "It was launched before."
        record(tx, later, SYSTEM, "ins_1", EventKind.INSTANCE_MOVED, after="sending", reason=reason)
    assert await rules(w) == set()
