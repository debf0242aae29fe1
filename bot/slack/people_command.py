"""Answer `/gpu share`, `/gpu unshare` and `/gpu transfer`: who uses a machine, and whose it is."""

from __future__ import annotations

from bot.rules.grammar.parser import ParsedCommand
from bot.services.access import sharing
from bot.services.sessions import transfer as transfers
from bot.slack.blocks.elements import Message
from bot.slack.blocks.private_answer import answer
from bot.slack.blocks.session.transfer import ACCEPT, DECLINE
from bot.slack.handler_context import HandlerContext, HandlerJob
from ledger.kernel.actor import Actor


async def share(handler: HandlerContext, job: HandlerJob, parsed: ParsedCommand) -> Message:
    """Share a machine with somebody, or no longer."""
    person = Actor.from_ref(parsed.text)
    wanted = sharing.ShareWith(parsed.target, job.message.actor, person, off=parsed.action == "off")
    return answer(await sharing.change(handler.ctx, wanted))


async def transfer(handler: HandlerContext, job: HandlerJob, parsed: ParsedCommand) -> Message:
    """Offer a session to another owner, or answer such an offer."""
    if parsed.action in (ACCEPT, DECLINE):
        answered = transfers.AnswerOffer(parsed.target, job.message.actor, accept=parsed.action == ACCEPT)
        return answer(await transfers.answer(handler.ctx, answered))
    offered = transfers.OfferSession(parsed.target, job.message.actor, Actor.from_ref(parsed.text))
    return answer(await transfers.offer(handler.ctx, offered))
