"""Publish the app's Home tab for a person who opens it or clicks in it."""

from __future__ import annotations

import logging
from collections.abc import Collection

from bot.rules.approvals.approvers import Deed, ineligible, is_approver_of
from bot.rules.approvals.decision import DeciderFacts, is_approver, linked
from bot.rules.jobs.stored import job_of
from bot.services.billing import costs
from bot.services.billing.metering import cost_now
from bot.services.budgets import enforcement
from bot.services.grants import approvers
from bot.services.sessions import service
from bot.slack.blocks.home import DECISIONS, Mine, closed, home
from bot.slack.handler_context import HandlerContext, HandlerJob, note_problems
from bot.slack.web import WebError
from ledger.kernel.request_kind import RequestKind
from ledger.kernel.states import RequestState
from ledger.models import AdvanceApproval, Request
from ledger.queries.lookups import advances_of
from ledger.queries.views import request_view

log = logging.getLogger(__name__)


async def publish(handler: HandlerContext, job: HandlerJob) -> None:
    """Render and publish the tab."""
    received = job.message
    facts = await handler.facts(job)
    now = handler.ctx.clock.now()
    refused = ineligible(handler.ctx.policy, facts, Deed.READ)
    view = home(await _mine(handler, facts), handler.settings.command, now) if refused is None else closed(refused)
    note_problems(view)
    try:
        await handler.web.call("views.publish", user_id=received.user, view=view)
    except WebError as error:
        # The tab is drawn again whenever it is opened, so a failure is only worth a note.
        log.warning("the home tab of %s was not published: %s", received.user, error)


async def _mine(handler: HandlerContext, facts: DeciderFacts) -> Mine:
    ctx = handler.ctx
    own, now = await service.listing(ctx, facts.actor), ctx.clock.now()
    mine = {view.session.id for view in own.sessions}
    sees_team = facts.known and is_approver(ctx.policy, facts)
    everybody = (await service.listing(ctx)).sessions if sees_team else ()
    team = [view for view in everybody if view.session.id not in mine]
    spent = await costs.brief(ctx, facts.actor)
    of_team = await costs.brief(ctx) if sees_team else None
    waiting = await decidable(handler, facts)
    async with ctx.db.read() as tx:
        views = [await request_view(tx, row.id) for row in waiting[:DECISIONS]]
    return Mine(
        overview=own,
        costs_usd={view.session.id: cost_now(ctx, view, now) for view in (*own.sessions, *team)},
        spent=spent,
        team_spent=of_team,
        budgets=await enforcement.overview(ctx, facts.actor),
        decidable=views,
        decidable_in_all=len(waiting),
        by_buttons=ctx.policy.allow_slack_decisions,
        team=team,
    )


async def decidable(handler: HandlerContext, facts: DeciderFacts) -> list[Request]:
    """List the requests that this person can approve, which are not their own."""
    policy = handler.ctx.policy
    if not facts.known or not is_approver(policy, facts):
        return []
    names = {facts.actor.ref, *(one.ref for one in linked(policy, facts.actor))}
    waiting = (await service.listing(handler.ctx)).requests
    pending = [
        row
        for row in waiting
        if row.state in (RequestState.PENDING, RequestState.WAITING)
        and (policy.allow_self_approval or row.requester not in names)
    ]
    async with handler.ctx.db.read() as tx:
        asked = await approvers.approver_groups(tx, policy, pending, handler.ctx.clock.now())
        given = await advances_of(tx, [row.id for row in pending])
    # An override is decided on the card of its request, which is listed already.
    pending = [row for row in pending if row.kind is not RequestKind.OVERRIDE_12H]
    pending = [row for row in pending if _is_open(row, given.get(row.id, ()), names)]
    return [row for row in pending if is_approver_of(policy, facts, asked[row.id])]


def _is_open(row: Request, given: Collection[AdvanceApproval], names: Collection[str]) -> bool:
    """Whether a request waits for this person: for a decision, or for one in advance that they have not made."""
    if row.state is RequestState.PENDING:
        return True
    return job_of(row.job).max_price_usd_h is not None and not any(one.approver in names for one in given)
