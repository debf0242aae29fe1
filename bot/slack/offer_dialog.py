"""Open the dialog of a request's other offers, and add the field for the amount once an offer needs it."""

from __future__ import annotations

from decimal import Decimal

from bot.rules.approvals.approvers import DeciderFacts
from bot.rules.values.phrases import rate, reliability, usd
from bot.rules.values.reply_code import ReplyCode
from bot.services.approvals import decisions
from bot.services.runtime.commands import Decide
from bot.slack import modals
from bot.slack.blocks.approvals import APPROVE
from bot.slack.blocks.offers import line, place
from bot.slack.blocks.private_answer import answer
from bot.slack.blocks.request import card_amounts, shown_option
from bot.slack.handler_context import HandlerContext, HandlerJob
from ledger.queries.session_costs import spent_before
from ledger.queries.views import RequestView, request_view

#: Refusals that only ask for the amount, so the offer can be chosen all the same.
_ASKS_AMOUNT = frozenset({ReplyCode.AMOUNT_NEEDED, ReplyCode.LIMIT_SPENT})


async def open_offers(handler: HandlerContext, job: HandlerJob, facts: DeciderFacts) -> None:
    """Open the dialog for a click on a card; for a choice in it, show whether its amount must be typed."""
    received = job.message
    in_dialog = received.view == modals.OFFERS
    picked = str(received.values.get("offer") or "") if in_dialog else ""
    token = picked or received.meta or received.value.partition("/")[0]
    reply = await decisions.preview(handler.ctx, Decide(token, facts))
    request_id = str(reply.data.get("request_id", ""))
    if not request_id or not (reply.ok or reply.code in _ASKS_AMOUNT):
        await handler.say(job, answer(reply))
        return
    async with handler.ctx.db.read() as tx:
        view = await request_view(tx, request_id)
        spent_usd = await spent_before(tx, view.request)
    to_type = usd(Decimal(reply.data["expected_usd"])) if picked and reply.code == ReplyCode.AMOUNT_NEEDED else ""
    dialog = modals.offers(token if not in_dialog else received.meta, choices(view, spent_usd), picked, to_type)
    if in_dialog:
        await handler.change(received.view_id, dialog)
        return
    instead = "The dialog could not be opened in time; click *Other offers* again."
    await handler.open(job, dialog, instead, view.request.channel)


def choices(view: RequestView, spent_usd: Decimal) -> list[modals.OfferChoice]:
    """List the offers of the current quote beside the one on the card, each with what its approval would cover."""
    tokens = {one.option_id: one.token for one in view.tokens if one.action == APPROVE}
    shown = shown_option(view)
    differ = len({line(one).gpus for one in view.options}) > 1
    found = []
    for option in view.options:
        if option is shown or option.id not in tokens:
            continue
        offer = line(option).offer
        expected_usd, most_usd = card_amounts(view, option, spent_usd)
        trust = "" if offer.reliability is None else f" · reliability {reliability(offer.reliability)}"
        kind = " · spot" if offer.spot else ""
        which = f"{line(option).gpus} · " if differ else ""
        text = f"{which}{place(offer, kind=False)}{kind} · {rate(option.price_usd_h)} · about {usd(expected_usd)}"
        description = f"never more than {usd(most_usd)}{trust}"
        found.append(modals.OfferChoice(tokens[option.id], text, description))
    return found
