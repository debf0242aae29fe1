"""So far is one amount on every surface, and the card shows the hours, the cap and the expectation of now."""

from __future__ import annotations

import re
from decimal import Decimal

import pytest

from bot.api.views import session_out
from bot.practice.model import ChatMessage
from bot.practice.reader import all_text
from bot.rules.access.sight import Sight
from bot.rules.values.phrases import usd
from bot.services.billing import costs, rollup
from bot.services.billing.metering import cost_now
from bot.services.notifications.request_message import show_again
from bot.services.reports.digest import digest_due
from bot.services.sessions.service import history, listing
from ledger.kernel.states import InstanceState
from ledger.models import Request
from ledger.queries.views import SessionView
from tests.slack.conftest import Stage
from tests.slack.test_commands import private, running


async def session(stage: Stage) -> SessionView:
    (view,) = (await listing(stage.ctx)).sessions
    return view


async def surfaces(stage: Stage, card: ChatMessage) -> dict[str, str]:
    """What everybody reads of the only session's cost, by where they read it, all at one moment."""
    now, view = stage.w.clock.now(), await session(stage)
    async with stage.ctx.db.write() as tx:
        await show_again(tx, await tx.get_one(Request, view.request.id), now)
    await stage.settle()
    found = {"card": all_text(stage.ws.now(card))}
    for name, line in (("list", "/gpu list"), ("status", f"/gpu status {view.session.id}"), ("costs", "/gpu costs")):
        await stage.command("alice", line)
        found[name] = all_text(private(stage, "alice"))
    before = len(stage.calls("views.publish"))
    await stage.as_("alice").open_home()
    await stage.ws.until(lambda: len(stage.calls("views.publish")) > before)
    await stage.settle()
    home = stage.ws.home("alice")
    assert home is not None
    found["home"] = all_text(home)
    return found


async def compared(stage: Stage, card: ChatMessage) -> Decimal:
    """The one amount, after it was looked for everywhere."""
    view, now = await session(stage), stage.w.clock.now()
    so_far = cost_now(stage.ctx, view, now)
    for name, text in (await surfaces(stage, card)).items():
        assert usd(so_far) in text, (name, usd(so_far), text)
    out = session_out(stage.ctx, view, now, Sight.OWN)
    assert (out.cost_usd, out.running_usd) == (so_far, so_far - view.accrued_usd)
    assert (await costs.overview(stage.ctx)).total_usd == so_far
    return so_far


@pytest.mark.slow
async def test_every_surface_shows_the_same_amount_through_stops_and_extensions(stage: Stage) -> None:
    card = await running(stage)
    stage.w.clock.advance(1_500)
    await stage.settle()
    first = await compared(stage, card)
    stage.w.clock.advance(2_700)  # The first hour is booked.
    await stage.settle()
    assert await compared(stage, card) > first
    view = await session(stage)
    await stage.command("alice", f"/gpu extend {view.session.id} 1h for=more")
    await stage.click("bob", stage.message(), stage.approve_button(stage.message()))
    stage.w.clock.advance(3_600)
    await stage.settle()
    so_far = await compared(stage, card)
    view = await session(stage)
    text = all_text(stage.ws.now(card))
    # What is approved now, not what was approved first.
    assert f"3 h · about $1.05 · never more than {usd(view.cap_usd)} · {usd(so_far)} so far" in text
    assert so_far < view.cap_usd
    await stage.command("alice", f"/gpu stop {view.session.id}")
    await stage.w.run(120, 30)
    stopped = await compared(stage, card)
    assert re.search(r"\*(Stopped|Ready)\*", text)
    assert stopped >= so_far


async def test_every_surface_shows_the_same_amount_after_a_failover(stage: Stage) -> None:
    stage.w.tune(price_tolerance=Decimal(3), grace_usd=Decimal(0))  # Nothing is paid for waiting until the bid wins.
    await stage.restart(stage.ctx)
    card = await stage.ask("/gpu provision 1x4090 2h clouds=vast spot=yes for=fine-tune")
    await stage.click("bob", card, stage.approve_button(card))
    await stage.w.run(60)
    first = (await session(stage)).instance
    assert first is not None
    assert first.ref is not None
    stage.w.clock.advance(900)
    await stage.settle()
    stage.w.clouds["vast"].disturb(first.ref, "outbid_a")
    await stage.w.run(900, 60)
    view = await session(stage)
    assert view.instance is not None
    assert view.instance.id != first.id
    assert view.instance.state is InstanceState.LIVE
    stage.w.clock.advance(900)
    await stage.settle()
    so_far = await compared(stage, card)
    # What the first machine cost is part of it.
    first_usd = view.accrued_usd - view.booked.usd
    assert 0 < first_usd < so_far


async def test_the_digest_shows_the_amount_of_the_ended_session(stage: Stage) -> None:
    await running(stage)
    view = await session(stage)
    stage.w.clock.advance(2_700)
    await stage.settle()
    await stage.command("alice", f"/gpu terminate {view.session.id} now")
    await stage.w.run(200)
    (past,) = await history(stage.ctx, None, 9)
    total = cost_now(stage.ctx, past, stage.w.clock.now())
    stage.w.tune(digest_weekly="", digest_channel="C0GPU")
    stage.w.clock.advance(86_400)
    await rollup.roll_due(stage.ctx)
    assert await digest_due(stage.ctx) == 1
    await stage.settle()
    told = all_text(stage.message())
    assert f"*{usd(total)}* spent (the day before: $0.00)." in told
    assert f"*By owner*: <@U0ALICE> {usd(total)}" in told
    await stage.command("alice", "/gpu history")
    assert f" · {usd(total)} · ended on request" in all_text(private(stage, "alice"))
    assert (await costs.overview(stage.ctx)).total_usd == total
