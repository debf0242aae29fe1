"""Approve or reject by offer id, for clients without buttons, under the same rules as a click on the button."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

from bot.rules.approvals.advance import NO_LIMIT
from bot.rules.approvals.decision import DeciderFacts, Decision
from bot.rules.approvals.early import still_quoting
from bot.rules.values.command_text import cli_command
from bot.rules.values.reply_code import ReplyCode
from bot.services.access import delegation
from bot.services.approvals import decisions
from bot.services.approvals.terms import looking_at
from bot.services.people import eligibility
from bot.services.runtime.commands import Decide, Reply, refuse
from bot.services.runtime.context import Context
from ledger.kernel.ids import short_id
from ledger.kernel.states import RequestState
from ledger.models import Request
from ledger.queries.decisions import button


@dataclass(frozen=True, slots=True)
class Named:
    """A decision on a request by its id, with the option by its offer id.

    `version` None means the current quote.
    """

    request_id: str
    decision: Decision
    decider: DeciderFacts
    offer_id: str | None = None
    version: int | None = None
    typed_amount: str | None = None
    cap_usd: Decimal | None = None
    reason: str = ""
    hours: Decimal | None = None
    seen: str | None = None
    #: Names the call; a repeated call decides nothing. Empty where calls are never repeated.
    key: str = ""


async def decide(ctx: Context, command: Named) -> Reply:
    """Approve or reject, with the codes and sentences of a click on the button."""
    async with ctx.db.read() as tx:
        # The offers, and their buttons, may have changed since the first call.
        done = await decisions.decided_before(tx, command.request_id, command.key, ctx.clock.now())
        if done is not None:
            return done
        request = await tx.get_one(Request, command.request_id)
        version = command.version or request.quote_version
        token = await button(tx, request.id, command.decision, version, command.offer_id)
    if token is None:
        return _no_button(request, command)
    decided = Decide(
        token,
        await delegation.looked_up(ctx, await eligibility.looked_up(ctx, command.decider)),
        command.reason,
        command.typed_amount,
        command.cap_usd,
        hours=command.hours,
        seen=command.seen,
        key=command.key,
    )
    return await decisions.decide(ctx, decided)


def _no_button(request: Request, command: Named) -> Reply:
    data = {"request_id": request.id}
    if request.state is RequestState.QUOTING:
        early = still_quoting(looking_at(request))
        return refuse(early.code, early.sentence, data)
    if request.state is RequestState.WAITING:
        return refuse(NO_LIMIT.code, NO_LIMIT.sentence, data)
    if command.offer_id is None:
        return refuse(ReplyCode.OFFER_NEEDED, "Say which offer you approve, such as vast:123.", data)
    shows = cli_command(f"request {short_id(request.id)}")
    sentence = f"{command.offer_id[:80]} is not an option of this request. {shows} lists them."
    return refuse(ReplyCode.UNKNOWN_OFFER, sentence, data)
