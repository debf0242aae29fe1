"""Another key of the same account: what runs goes on under it when its listing proves that, and is ended in time."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import cast

from bot.services.instances import operator_reminders
from bot.services.instances.key_rotation import proven
from bot.services.runtime import recovery_mode
from ledger.kernel.actor import Actor, ActorKind
from ledger.kernel.states import InstanceState, OrphanState, SessionState
from ledger.models import Orphan
from ledger.queries.orphans import add_orphan
from providers.contract import Listing, Provider
from tests.services.runtime.test_recovery_mode import rent, rowless
from tests.support.proxy_provider import InFront
from tests.support.world import World

ADA = Actor(ActorKind.OPERATOR, "ada")
NEW = "newkey000000"


class Rotated(InFront):
    """The same account under a new key."""

    account = NEW

    async def list(self) -> Listing:
        return replace(await self.inner.list(), account=NEW)


def pages(w: World, subject: str) -> int:
    return w.board.kinds(subject).count("operator.page")


async def test_a_new_key_takes_over_what_it_lists_and_until_then_the_operators_are_told(w: World) -> None:
    request_id = await w.running(candidates=("vast",), hours=Decimal(1))
    stray = await rowless(w)
    old, before = stray.account, dict(w.ctx.providers)
    w.use({name: one for name, one in before.items() if name != "vast"})
    assert await operator_reminders.operator_reminders_due(w.ctx) == 1
    assert await operator_reminders.operator_reminders_due(w.ctx) == 0  # Said, and said again after a while.
    w.clock.advance(1800)
    assert await operator_reminders.operator_reminders_due(w.ctx) == 2  # With the stray's own page.
    (page,) = [n for n in (await w.books()).notifications if n.subject == f"vast/{old}/no-key"]
    assert "2 open instances at vast" in page.body["text"]

    w.use(before)
    w.wrap("vast", lambda inner: cast("Provider", Rotated(inner)))
    await w.run(60, 30)
    books = await w.books()
    assert [row.account for row in books.instances] == [row.account for row in books.orphans] == [NEW]
    moved = [(one.before, one.after) for one in books.events if one.kind.endswith(".account_moved")]
    assert moved == [(old, NEW), (old, NEW)]
    assert pages(w, f"vast/{NEW}/taken-over") == 1
    assert await operator_reminders.operator_reminders_due(w.ctx) == 0
    assert (await recovery_mode.condemn(w.ctx.db, stray.id, ADA, "a test", w.clock.now())).ok
    await w.run(3600, 300)
    await w.run(120, 30)
    session = (await w.view(request_id)).session
    assert session is not None
    assert (session.state, w.alive()) == (SessionState.TERMINATED, [])


async def test_another_account_takes_over_nothing_and_a_stray_seen_under_two_keys_is_one(w: World) -> None:
    await w.running(candidates=("vast",))
    stray = await rowless(w)
    rent(w, "somebody-elses")

    class Other(Rotated):
        async def list(self) -> Listing:
            found = await super().list()
            return replace(found, items=tuple(one for one in found.items if one.name == "somebody-elses"))

    w.wrap("vast", lambda inner: cast("Provider", Other(inner)))
    await w.run(300, 60)
    assert {row.account for row in (await w.books()).instances} == {stray.account}
    assert [row.state for row in (await w.books()).instances] == [InstanceState.LIVE]
    async with w.ctx.db.write() as tx:  # As an earlier release left it, which knew nothing of keys.
        columns = {name: getattr(stray, name) for name in sorted(Orphan.__table__.c.keys())}
        await add_orphan(tx, **{**columns, "id": "str_twin00000000000", "account": NEW})
    w.wrap("vast", lambda other: cast("Provider", Rotated(other.inner)))  # type: ignore[attr-defined]
    await w.run(60, 30)
    states = {row.id: row.state for row in (await w.books()).orphans}
    assert states == {stray.id: OrphanState.GONE, "str_twin00000000000": OrphanState.QUARANTINED}


async def test_nothing_is_bought_under_another_key(w: World) -> None:
    """Its outcome would have to be searched for in an account that nobody can list."""
    request_id = await w.approved(candidates=("vast",))
    before = w.ctx.providers
    w.use({**before, "vast": cast("Provider", Rotated(before["vast"]))})
    await w.settle()
    assert (await w.view(request_id)).instances[0].outcome_code == "unsupported"
    assert w.engine.creates == []


async def test_the_same_id_with_another_label_proves_no_account(w: World) -> None:
    """An id may exist in two accounts; a label cannot be forged."""
    rows = [(await w.view(await w.running(candidates=("vast",)))).instances[0] for _ in range(2)]
    listing = await cast("Provider", Rotated(w.ctx.providers["vast"])).list()
    assert proven(w.ctx.labels, listing, rows) == {rows[0].account}
    names = {rows[0].ref: rows[1].name, rows[1].ref: rows[0].name}
    swapped = tuple(replace(item, name=names.get(item.ref, item.name)) for item in listing.items)
    assert proven(w.ctx.labels, replace(listing, items=swapped), rows) == set()
