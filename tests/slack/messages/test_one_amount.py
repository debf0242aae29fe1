"""So far is one amount on every surface, and the card shows the hours, the cap and the expectation of now."""

from __future__ import annotations

import re
from decimal import Decimal

from bot.api.views import session_out
from bot.practice.model import ChatMessage
from bot.practice.reader import all_text
from bot.rules.values.phrases import usd
from bot.services.billing import costs
from bot.services.billing.metering import cost_now
from bot.services.notifications.request_message import show_again
from bot.services.sessions.service import listing
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
    await stage.as_("alice").open_home()
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
    out = session_out(stage.ctx, view, now, mine=True)
    assert (out.cost_usd, out.running_usd) == (so_far, so_far - view.accrued_usd)
    assert (await costs.overview(stage.ctx)).total_usd == so_far
    return so_far


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
