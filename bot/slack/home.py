"""The app's Home tab: my sessions, my requests, and the requests that I may decide."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal
from typing import Any

from bot.blockkit import validate_view
from bot.rules.approval import is_approver
from bot.services import sessions
from bot.services.metering import cost_now
from bot.services.sessions import Overview
from bot.slack.blocks import listing, owner
from bot.slack.blocks.parts import Block, code, context, divider, header, section, stamped
from bot.slack.desk import Desk, Job
from bot.slack.web import WebError
from ledger.models import Request
from ledger.states import RequestState

SHOWN = 10

log = logging.getLogger(__name__)


async def publish(desk: Desk, job: Job) -> None:
    """Render and publish the tab of whoever opened it."""
    heard = job.heard
    facts = await desk.directory.facts(heard.user, heard.team)
    mine = await sessions.listing(desk.ctx, facts.actor)
    decidable: tuple[Request, ...] = ()
    if facts.known and is_approver(desk.ctx.policy, facts):
        waiting = (await sessions.listing(desk.ctx)).requests
        others = [row for row in waiting if row.requester != facts.actor.ref and row.state is RequestState.PENDING]
        decidable = tuple(others)
    now = desk.ctx.clock.now()
    costs = {view.session.id: cost_now(desk.ctx, view, now) for view in mine.sessions}
    view = home(mine, decidable, costs, desk.settings.command, now)
    problems = validate_view(view)
    if problems:
        log.error("the home tab is not valid: %s", "; ".join(problems[:3]))
    try:
        await desk.web.call("views.publish", user_id=heard.user, view=view)
    except WebError as error:
        # The tab is drawn again whenever it is opened, so a failure is only worth a note.
        log.warning("the home tab of %s was not published: %s", heard.user, error)


def home(
    mine: Overview, decidable: tuple[Request, ...], costs_usd: Mapping[str, Decimal], command: str, now: datetime
) -> dict[str, Any]:
    """The view. Requests are decided in their own message, which shows the offers and the price."""
    blocks: list[Block] = [header("GPU Shopper")]
    for view in mine.sessions[:SHOWN]:
        blocks += listing.sessions([view], costs_usd, now)
        if view.session.state in owner.ENDABLE:
            blocks.append(owner.end_button(view.session))
    if not mine.sessions:
        blocks.append(section(f"You have no sessions. Ask for GPUs with {code(f'{command} provision')} in a channel."))
    blocks += [divider(), *listing.requests(mine.requests)] if mine.requests else []
    if decidable:
        lines = listing.requests(decidable)
        blocks += [divider(), section("*You may decide these*, in their own messages:"), *lines]
    blocks.append(context(f"{code(f'{command} help')} lists every command."))
    return {"type": "home", "blocks": stamped(blocks, 1)}
