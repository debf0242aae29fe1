"""Send reminders of undecided requests, escalate them to further approver groups, and expire them."""

from __future__ import annotations

from datetime import datetime, timedelta
from decimal import Decimal

from bot.rules.approvals.approvers import groups, name_of
from bot.rules.approvals.reminders import reminders_due
from bot.rules.policy.tiers import ApproverGroup
from bot.rules.values.phrases import hours as say_hours
from bot.rules.values.phrases import listed, plural
from bot.services.grants import approvers, reopen
from bot.services.grants.escalation import next_due
from bot.services.notifications import request_message
from bot.services.runtime.clock_guard import clock_problem
from bot.services.runtime.context import Context
from ledger.core import Claim, StaleMove, Tx, announce, announce_once, claim, move, notification_of, record, release
from ledger.kernel.actor import SYSTEM
from ledger.kernel.event_kind import EventKind
from ledger.kernel.request_kind import RequestKind
from ledger.kernel.states import NotificationKind, RequestState
from ledger.models import Request
from ledger.queries.decisions import approvals_of
from ledger.queries.journal import latest_events
from ledger.queries.lookups import current_quote

BATCH = 16

#: The last part of a reminder's subject begins with this when it escalates to further groups.
ONWARDS = "e"


async def expire_due(ctx: Context) -> int:
    """Remind approvers of undecided requests, and expire those past their time; return how many were processed."""
    if clock_problem(ctx.clock):
        return 0
    now = ctx.clock.now()
    lease = timedelta(seconds=ctx.timing.claim_ttl_s)
    held = await claim(ctx.db, Request, now=now, states={RequestState.PENDING}, limit=BATCH, lease=lease)
    for one in held:
        async with ctx.db.write() as tx:
            request = await tx.get_one(Request, one.row_id)
            if now < request.expires_at:
                await _remind(ctx, tx, one, request, now)
            else:
                await _expire(tx, one, request, now)
    if held:
        ctx.hints.outbox.set()
    return len(held)


async def _expire(tx: Tx, held: Claim, request: Request, now: datetime) -> None:
    """Expire a request; the next version of its message has no buttons."""
    open_s = int((request.expires_at - await _opened_at(tx, request)).total_seconds())
    given = [one.approver for one in await approvals_of(tx, request)]
    within = f"within {say_hours(Decimal(open_s) / 3600)}"
    sentence = f"Nobody approved it {within}."
    if given:
        needed = plural(request.required_approvals, "approval")
        sentence = f"Only {listed(map(name_of, given))} approved it {within}. It needed {needed}."
    try:
        await move(
            tx,
            Request,
            held.row_id,
            RequestState.EXPIRED,
            now,
            SYSTEM,
            sentence,
            claim=held.token,
            only_from=frozenset({RequestState.PENDING}),
            values={"outcome": sentence},
        )
    except StaleMove:
        return  # Somebody decided at this moment.
    await reopen.close_family(tx, request, RequestState.EXPIRED, sentence, now, SYSTEM)


async def _opened_at(tx: Tx, request: Request) -> datetime:
    """Return since when it waits for a decision."""
    quote = await current_quote(tx, request)
    return quote.created_at if quote else request.created_at


async def _remind(ctx: Context, tx: Tx, held: Claim, request: Request, now: datetime) -> None:
    """Announce what is due, and release the row until the next reminder or its expiry.

    Each reminder of each quote version is a message of its own, because an edit notifies nobody. Those that were missed
    while nothing ran are one, and an escalation counts as the reminder too. A 12-hour override is decided on the card
    of its request, which has the reminders.
    """
    opened_at = await _opened_at(tx, request)
    mandate = await approvers.approver_group(tx, ctx.policy, request, now)
    number = reminders_due(opened_at, now, ctx.policy.remind_after_s)
    due_at = next_due(ctx.policy, mandate, opened_at, request.expires_at, now)
    if not await release(tx, Request, held, due_at=due_at) or not (number or mandate.steps):
        return  # Another process has it, or nothing is due yet.
    if request.kind is RequestKind.OVERRIDE_12H:
        return
    if request.card_of is not None:
        # A replica of an earlier release, started since, may have shown the first request of this message again.
        await request_message.show_again(tx, request, now)
    subject, kind = f"{request.id}/{request.quote_version}", NotificationKind.REQUEST_REMINDER
    escalation_subject = f"{subject}.{ONWARDS}{mandate.steps}"
    if mandate.steps and await _escalate(ctx, tx, request, mandate, escalation_subject, number, now):
        return
    last = await latest_events(tx, request.id, EventKind.REQUEST_ESCALATED, 1) if mandate.steps else []
    if last and last[0].data.get("subject") == escalation_subject and number <= int(last[0].data.get("reminders", 0)):
        return  # The escalation was this reminder.
    reminder = f"{subject}.{number}"
    if number and await notification_of(tx, kind, reminder, request.channel) is None:
        await announce(tx, now, kind, reminder, destination=request.channel)


async def _escalate(
    ctx: Context, tx: Tx, request: Request, mandate: ApproverGroup, subject: str, number: int, now: datetime
) -> bool:
    """Notify the next approver group, once; False when it was notified before.

    Its row in the journal says which reminder it was.
    """
    kind = NotificationKind.REQUEST_REMINDER
    if not await announce_once(tx, now, kind, subject, destination=request.channel, body={}):
        return False
    names = ", ".join(groups(ctx.policy, mandate)[1:])
    said = f"Nobody has approved it yet, so {names} can approve it too."
    data = {"subject": subject, "reminders": number}
    record(tx, now, SYSTEM, request.id, EventKind.REQUEST_ESCALATED, reason=said, data=data)
    await request_message.show_again(tx, request, now)
    return True
