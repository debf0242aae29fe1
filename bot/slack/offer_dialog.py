"""Open the dialog of a request's offers: to choose one for approvers, who may type its amount, to read for others."""

from __future__ import annotations

from decimal import Decimal

from bot.rules.approvals.approvers import DeciderFacts, Deed
from bot.rules.values.phrases import usd
from bot.rules.values.reply_code import ReplyCode
from bot.services.approvals import decisions
from bot.services.runtime.commands import Decide, refuse
from bot.slack import commands, modals
from bot.slack.blocks.offer_terms import choices
from bot.slack.blocks.private_answer import answer
from bot.slack.blocks.request import free_approvers
from bot.slack.handler_context import HandlerContext, HandlerJob
from bot.slack.render import card_facts
from ledger.queries.session_costs import spent_before
from ledger.queries.views import RequestView, request_view

#: Refusals that only ask for the amount, so the offer can be chosen all the same.
_ASKS_AMOUNT = frozenset({ReplyCode.AMOUNT_NEEDED, ReplyCode.LIMIT_SPENT})
#: Refusals that are about the person and not about the request: they may compare its offers all the same.
_MAY_READ = frozenset(
    {
        ReplyCode.REQUESTER, ReplyCode.NOT_AN_APPROVER, ReplyCode.OTHER_GROUP, ReplyCode.DELEGATOR_REQUESTED,
        ReplyCode.DELEGATOR_UNKNOWN, ReplyCode.GUEST, ReplyCode.LOOKUP_FAILED, ReplyCode.ALREADY_VOTED,
    }
)  # fmt: skip
_TOO_LATE = "The dialog could not be opened in time; click *Other offers* again."


async def open_offers(handler: HandlerContext, job: HandlerJob, facts: DeciderFacts) -> None:
    """Open the dialog for a click on a card; for a choice in it, show whether its amount must be typed."""
    received = job.message
    in_dialog = received.view == modals.OFFERS
    picked = str(received.values.get("offer") or "") if in_dialog else ""
    token = picked or received.meta or received.value.partition("/")[0]
    reply = await decisions.preview(handler.ctx, Decide(token, facts))
    request_id = str(reply.data.get("request_id", ""))
    if not request_id or not (reply.ok or reply.code in _ASKS_AMOUNT | _MAY_READ):
        await handler.say(job, answer(reply))
        return
    async with handler.ctx.db.read() as tx:
        view = await request_view(tx, request_id)
        spent_usd = await spent_before(tx, view.request)
    if reply.code in _MAY_READ:
        await _open_to_read(handler, job, view, spent_usd)
        return
    to_type = usd(Decimal(reply.data["in_all_usd"])) if picked and reply.code == ReplyCode.AMOUNT_NEEDED else ""
    dialog = modals.offers(token if not in_dialog else received.meta, choices(view, spent_usd), picked, to_type)
    if in_dialog:
        await handler.change(received.view_id, dialog)
        return
    await handler.open(job, dialog, _TOO_LATE, view.request.channel)


async def _open_to_read(handler: HandlerContext, job: HandlerJob, view: RequestView, spent_usd: Decimal) -> None:
    """Show the offers without a choice to everybody who may read about the request, and say who can approve."""
    refused = await handler.ineligible(job, Deed.READ)
    if refused is None and await commands.hidden(handler, job, view.request.requester):
        refused = refuse(ReplyCode.GUEST, "Guests can compare the offers of their own requests only.")
    if refused is not None:
        await handler.say(job, answer(refused), view.request.channel)
        return
    names = free_approvers(view, handler.ctx.policy, await card_facts(handler.ctx, view, handler.ctx.clock.now()))
    who = f"Only an approver can approve one of them: {names}." if names else "Nobody can approve one of them now."
    await handler.open(job, modals.offers_to_read(choices(view, spent_usd), who), _TOO_LATE, view.request.channel)
