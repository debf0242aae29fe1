"""Continue with an older ledger: operators accept it, and what was approved in it before buys nothing."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime

from bot.rules.instances.ledger_age import AcceptedRecords
from bot.rules.instances.older_facts import OlderFacts, read_facts
from bot.rules.values.command_text import cli_command
from bot.rules.values.phrases import plural
from bot.rules.values.reply_code import ReplyCode
from bot.services.grants import advances, reopen, reservations
from bot.services.notifications import request_message
from bot.services.people import direct_messages
from bot.services.runtime.clock_guard import approved_now, clock_problem
from bot.services.runtime.commands import Reply, refuse
from bot.services.runtime.context import Context
from bot.services.runtime.older_ledger import SUBJECT
from ledger.core import Tx, amend, lock_family, record
from ledger.kernel.actor import SYSTEM, Actor
from ledger.kernel.event_kind import EventKind
from ledger.kernel.ids import short_id
from ledger.kernel.states import RequestState
from ledger.models import Request, Session
from ledger.queries.recovery.older import (
    advances_before,
    launches_approved_before,
    missing_machines,
    note_accepted,
    older_mark,
)

VOID = "The ledger was restored from an older copy, so this approval is void."


@dataclass(frozen=True, slots=True)
class Accept:
    """Accept the ledger as it is. `keeps_approvals`: what was approved before buys as if nothing had happened."""

    actor: Actor
    keeps_approvals: bool = False


@dataclass(frozen=True, slots=True)
class _Voided:
    launches: int = 0
    advances: int = 0
    #: Sessions whose machine their cloud lacks now; they are not replaced without a person.
    missing: int = 0


async def older_facts(ctx: Context) -> OlderFacts | None:
    """Return how the ledger differs from its records; None while it is not older, or once it is accepted."""
    async with ctx.db.read() as tx:
        mark = await older_mark(tx)
    return None if mark is None else read_facts(mark.value)


async def accept(ctx: Context, command: Accept, unlisted: Collection[str]) -> Reply:
    """Accept an older ledger for operators. Code of success: `ledger_accepted`.

    `unlisted` are the clouds that could not be listed just now: machines there count as missing.
    """
    now = approved_now(ctx.clock)
    if now is None:
        # What is seen later than this time counts again, so it must not be the time of a clock that is ahead.
        sentence = f"The ledger can't be accepted now: {clock_problem(ctx.clock)}. Try again when the clock is right."
        return refuse(ReplyCode.CLOCK_WRONG, sentence)
    async with ctx.db.write() as tx:
        mark = await older_mark(tx)
        facts = read_facts(mark.value) if mark is not None else None
        if mark is None or facts is None or not await note_accepted(tx, mark.at, now, facts.records):
            sentence = f"The ledger has all that its records know. See {cli_command('recover')}."
            return refuse(ReplyCode.NOT_OLDER, sentence)
        voided = _Voided() if command.keeps_approvals else await _void(ctx, tx, mark.at, unlisted, now)
        sentence = _accepted(voided, keeps_approvals=command.keeps_approvals)
        record(
            tx,
            now,
            command.actor,
            SUBJECT,
            EventKind.LEDGER_ACCEPTED,
            reason=sentence,
            data={"differences": facts.sentences},
        )
    ctx.epoch.accept(AcceptedRecords(now, facts.records))
    await ctx.epoch.cover(tx)
    for hint in (ctx.hints.outbox, ctx.hints.instances, ctx.hints.requests, ctx.hints.sessions):
        hint.set()
    return Reply(True, ReplyCode.LEDGER_ACCEPTED, sentence)


async def _void(ctx: Context, tx: Tx, noticed_at: datetime, unlisted: Collection[str], now: datetime) -> _Voided:
    """Void what was approved before the ledger's age was noticed, and has bought nothing in it: it may have since."""
    launches = await launches_approved_before(tx, noticed_at)
    for launch in launches:
        await lock_family(tx, Session, launch.session_id)
        await reservations.withdraw_ready(tx, launch.session_id, VOID, now, SYSTEM)
        request = await tx.get_one(Request, launch.request_id, populate_existing=True)
        if request.state is RequestState.APPROVED:
            await reopen.end_request(tx, request.id, VOID, now)
        text = f"{VOID} Request {short_id(request.id)} launches nothing. If you still need it, request it again."
        subject = f"{request.id}/void"
        await direct_messages.notify(tx, ctx.policy, now, request.requester, subject=subject, text=text)
    in_advance = await advances_before(tx, noticed_at)
    for request_id in in_advance:
        await lock_family(tx, Request, request_id)
        await advances.void_all(tx, request_id, VOID, now)
        request = await tx.get_one(Request, request_id, populate_existing=True)
        await amend(tx, Request, request_id, outcome=VOID)
        await request_message.show_again(tx, request, now)
    missing = await missing_machines(tx, noticed_at, unlisted)
    for session_id in missing:
        await amend(tx, Session, session_id, replacements_left=0)
    return _Voided(len(launches), len(in_advance), len(missing))


def _accepted(voided: _Voided, *, keeps_approvals: bool) -> str:
    if keeps_approvals:
        return "The ledger is accepted. Earlier approvals stay in force, and GPU Shopper buys again."
    launches = "1 approved launch was" if voided.launches == 1 else f"{voided.launches} approved launches were"
    in_advance = f"{plural(voided.advances, 'approval')} in advance {'is' if voided.advances == 1 else 'are'} void"
    unseen = plural(voided.missing, "session")
    missing = f" {unseen} whose machine wasn't listed can't be replaced automatically." if voided.missing else ""
    if not voided.launches and not voided.advances:
        return f"The ledger is accepted, and GPU Shopper buys again. No earlier approval was waiting.{missing}"
    return (
        f"The ledger is accepted, and GPU Shopper buys again. {launches} cancelled, and {in_advance}. "
        f"Their owners can request again.{missing}"
    )
