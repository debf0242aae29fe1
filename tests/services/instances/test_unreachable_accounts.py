"""Rows of an account that no key opens any more: closed on an operator's word, where nothing contradicts it."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import cast

import pytest

from bot.services.instances import operator_reminders, reconcile
from bot.services.instances.unreachable_accounts import unreachable, write_off
from bot.services.runtime import recovery_mode
from ledger.kernel.actor import Actor, ActorKind
from ledger.kernel.states import InstanceState, NotificationKind, OrphanState, SessionState
from providers.contract import Listing, Provider
from providers.errors import Unavailable
from providers.rate_limits import LocalPacer
from providers.registry import REGISTRY
from tests.services.instances.test_key_rotation import Rotated
from tests.services.runtime.test_recovery_mode import rowless
from tests.support.agents import agent, listening, pass_time
from tests.support.world import World

ADA = Actor(ActorKind.OPERATOR, "ada")
WHY = "the account was closed in May"


class Empty(Rotated):
    """A key of another account, where nothing of ours is."""

    async def list(self) -> Listing:
        return replace(await super().list(), items=())


class Deaf(Rotated):
    """The new key does not work today."""

    async def list(self) -> Listing:
        raise Unavailable("vast", "it does not answer")


async def test_a_word_closes_what_no_key_can_see_and_nothing_that_somebody_still_sees(w: World) -> None:
    request_id = await w.running(candidates=("vast",))
    stray = await rowless(w)
    view = await w.view(request_id)
    row = view.instances[-1]
    ids = [row.id, stray.id]

    async def refused(*of: str, reason: str = WHY) -> str:
        reply = await write_off(w.ctx, of or ids, ADA, reason)
        assert not reply.ok, reply
        return reply.code

    assert await unreachable(w.ctx) == []
    assert await refused() == "reachable"
    before = dict(w.ctx.providers)
    assert [await refused(reason=" "), await refused("ins_nowhere", row.id)] == ["reason_needed", "unknown_id"]
    w.wrap("vast", lambda inner: cast("Provider", Rotated(inner)))
    assert {one.id for one in await unreachable(w.ctx)} == set(ids)
    assert [await refused(), await refused(stray.id)] == ["still_shown"] * 2
    w.use({**before, "vast": cast("Provider", Deaf(before["vast"]))})
    assert await refused() == "cloud_failed"
    w.use({**before, "vast": cast("Provider", Empty(before["vast"]))})
    w.clock.advance(3600)
    (page,) = [n for n in await _paged(w) if n.startswith("2 open instances")]
    assert f"gpu-shopper unreachable gone vast/{row.account} --reason" in page

    for one in (row, stray):
        await before["vast"].terminate(str(one.ref))  # The account is closed, and all of it with it.
    done = await write_off(w.ctx, ids, ADA, WHY)
    assert (done.ok, done.code) == (True, "written_off"), done
    books = await w.books()
    assert [one.state for one in books.instances] == [InstanceState.GONE]
    assert [one.state for one in books.orphans] == [OrphanState.GONE]
    (session,) = books.sessions
    assert (session.state, session.end_code, WHY in session.end_reason) == (
        SessionState.TERMINATED,
        "written_off",
        True,
    )
    closed = [one for one in books.events if one.after == InstanceState.GONE]
    assert [(one.actor, WHY in one.reason) for one in closed] == [(ADA.ref, True)] * 2
    assert {one.data.get("proof") for one in closed} == {None, "word"}
    booked = sum(one.amount_usd for one in books.entries if one.instance_id == row.id and one.kind == "accrue")
    assert booked >= row.price_usd_h  # The hour in which nobody could look is counted.
    assert [await refused(), await unreachable(w.ctx), await operator_reminders.operator_reminders_due(w.ctx)] == [
        "stale",
        [],
        0,
    ]


async def _paged(w: World) -> list[str]:
    await operator_reminders.operator_reminders_due(w.ctx)
    kind = NotificationKind.OPERATOR_PAGE
    return [str(one.body["text"]) for one in (await w.books()).notifications if one.kind is kind]


async def test_what_still_reports_is_not_closed_although_no_key_can_see_it(w: World) -> None:
    async with listening(w):
        await w.running(candidates=("vast",))
        await pass_time(w, 60)
        (row,) = (await w.books()).instances
        vast = w.ctx.providers["vast"]
        w.use({**w.ctx.providers, "vast": cast("Provider", Empty(vast))})
        reply = await write_off(w.ctx, [row.id], ADA, WHY)
        assert (reply.code, f"{w.clock.now():%H:%M}" in reply.sentence) == ("still_reports", True)
        agent(w).silent = True
        w.clock.advance(3600)
        await vast.terminate(str(row.ref))
        assert (await write_off(w.ctx, [row.id], ADA, WHY)).code == "written_off"
        w.use({**w.ctx.providers, "vast": vast})


async def test_an_unclear_create_is_given_up_and_what_comes_back_later_is_ended_or_quarantined(w: World) -> None:
    w.arm("create_lands_late", "vast", after_s=120)
    request_id = await w.approved(candidates=("vast",))
    await w.settle(1)
    row = (await w.view(request_id)).instances[-1]
    assert row.state is InstanceState.UNKNOWN
    stray = await rowless(w)
    before = dict(w.ctx.providers)
    w.use({name: one for name, one in before.items() if name != "vast"})
    done = await write_off(w.ctx, [row.id, stray.id], ADA, WHY)
    assert (done.code, (await w.view(request_id)).instances[-1].state) == ("written_off", InstanceState.TOMBSTONE)
    session = (await w.view(request_id)).session
    assert session is not None
    assert session.state is SessionState.TERMINATED
    w.use(before)  # The key is found after all, and both of them run there.
    await w.run(180, 30)
    assert {one.ref for one in (await w.books()).orphans} == {one.ref for one in w.instances()}
    again = [one for one in (await w.books()).orphans if one.ref == stray.ref and one.state is not OrphanState.GONE]
    assert [one.state for one in again] == [OrphanState.QUARANTINED]  # Nothing dies until somebody decides about it.
    assert (await recovery_mode.condemn(w.ctx.db, again[0].id, ADA, WHY, w.clock.now())).ok
    await w.run(180, 30)
    assert w.alive() == []


@pytest.mark.parametrize("cloud", ["vast", "runpod", "lambda", "tensordock"])
async def test_an_adapter_without_a_key_never_shows_that_a_machine_is_gone(w: World, cloud: str) -> None:
    await w.running(candidates=(cloud,), hours=Decimal(6))
    keyless = REGISTRY[cloud].connect({}, w.clock, LocalPacer(w.clock, 0))
    keyless.account = w.ctx.providers[cloud].account  # Even where it passes for the account of the row.
    blind = replace(w.ctx, providers={**w.ctx.providers, cloud: keyless})
    for _ in range(5):
        w.clock.advance(60)
        await reconcile.observe(blind, cloud)
    (row,) = (await w.books()).instances
    assert (row.state, row.absent_at) == (InstanceState.LIVE, [])
    assert [one.alive for one in w.clouds[cloud].instances()] == [True]
    await keyless.close()
