"""Process clicks and submitted dialogs; the services check permissions, with facts that are fetched now."""

from __future__ import annotations

import re
from dataclasses import replace
from decimal import Decimal
from typing import Final

from bot.rules.approvals.approvers import DeciderFacts
from bot.rules.jobs.job import JobRequest
from bot.rules.jobs.stored import job_of
from bot.rules.values.reply_code import ReplyCode
from bot.services.access import ssh_keys
from bot.services.approvals import advance, decisions
from bot.services.approvals.advance import Revoke
from bot.services.checkpoints import hold
from bot.services.grants import amendments
from bot.services.notifications.request_message import show_again
from bot.services.runtime.commands import (
    AddKey,
    AnswerCheckpointHold,
    AnswerGrace,
    Cancel,
    Decide,
    Extend,
    FinishSession,
    KeepRunning,
    Reply,
    Terminate,
)
from bot.services.sessions import extension, grace_answers, idle_termination, service, transfer
from bot.slack import browsing, commands, forms, key_command, modals, offer_dialog, provision_form
from bot.slack.blocks.elements import code, safe
from bot.slack.blocks.inventory import BROWSE
from bot.slack.blocks.offer_terms import card_amounts, choices, shown_option
from bot.slack.blocks.private_answer import answer
from bot.slack.blocks.session.checkpoint_hold import LET_GO, SAVED
from bot.slack.blocks.session.instance_failed import GRACE_CHOICES
from bot.slack.blocks.session.session_ready_and_ended import KEEP_HOURS
from bot.slack.blocks.session.transfer import ACCEPT, DECLINE
from bot.slack.handler_context import HandlerContext, HandlerJob
from ledger.models import Request
from ledger.queries.session_costs import spent_before
from ledger.queries.views import request_view

#: Outcomes of an approval after which the dialog about the amount is (still) wanted.
#: Errors of a change that the approver can correct.
CHANGE_CODES: Final = frozenset({ReplyCode.BAD_HOURS, ReplyCode.HOURS_RAISED, ReplyCode.BAD_CAP, ReplyCode.CAP_RAISED})
AMOUNT_CODES: Final = frozenset(
    {ReplyCode.AMOUNT_NEEDED, ReplyCode.AMOUNT_MISMATCH, ReplyCode.BAD_CAP, ReplyCode.CAP_RAISED, ReplyCode.LIMIT_SPENT}
)


async def click(handler: HandlerContext, job: HandlerJob) -> None:
    """Process a button: approve, reject, one of the form for a request, or one about a session and the end it named."""
    (verb, _, named), value = job.message.action.partition(":"), job.message.value
    if verb in ("plan", "form"):
        await provision_form.click(handler, job)
    elif verb == "details":
        await handler.say(job, await commands.details(handler, job))
    elif verb == BROWSE:
        await handler.say(job, await browsing.browse(handler, job))
    elif verb == "extend":
        example = f"{handler.settings.command} extend {named} 1h"
        view = modals.extend(value, handler.ctx.policy)
        await handler.open(job, view, f"The dialog could not be opened in time; type {code(example)} instead.")
    elif verb == "reject":
        reply = await decisions.preview(handler.ctx, Decide(value, await handler.decider(job)))
        if reply.code == ReplyCode.REASON_NEEDED:
            view = modals.reject(value, handler.ctx.policy)
            await handler.open(job, view, "The dialog could not be opened in time; click *Reject* again.")
        else:
            await handler.say(job, answer(reply))
    elif verb == "addkey":
        example = code(f"{handler.settings.command} key add ssh-ed25519 AAAA…")
        await handler.open(job, modals.key(value), f"The dialog could not be opened in time; type {example} instead.")
    elif verb in ("offers", "offer"):
        await offer_dialog.open_offers(handler, job, await handler.decider(job))
    elif verb == "change":
        await _change(handler, job, read_decision(value, await handler.decider(job)))
    elif verb in ("cancel", "revoke"):
        facts = await handler.facts(job)
        revoked = advance.revoke(handler.ctx, Revoke(value, facts)) if verb == "revoke" else None
        reply = await (revoked or decisions.cancel(handler.ctx, Cancel(value, facts)))
        await handler.say(job, answer(reply))
    elif verb == "approve":
        await _approve(handler, job, read_decision(value, await handler.decider(job)))
    else:
        await handler.say(job, answer(await _about_session(handler, job, verb)))


async def _about_session(handler: HandlerContext, job: HandlerJob, verb: str) -> Reply:
    """Carry out a button about a session and the end that its message named."""
    ctx, facts = handler.ctx, await handler.facts(job)
    session, seen_s = read_mark(job.message.value)
    if verb == "terminate":
        return await service.terminate(ctx, Terminate(session, facts, seen_end_s=seen_s))
    if verb == "done":
        said = job.message.action.split(":")[2:]  # What may follow the id of the typed command, too.
        how = {"succeeded": "failed" not in said, "preserve": "preserve" in said}
        return await service.done(ctx, FinishSession(session, facts, seen_end_s=seen_s, key=job.key, **how))
    if verb == "keep":
        keep = Extend(job.key, session, KEEP_HOURS, facts, seen_end_s=seen_s, only_inside=True)
        return await extension.extend(ctx, keep)
    if verb == "spare":
        return await idle_termination.keep_running(ctx, KeepRunning(session, facts, seen_end_s=seen_s))
    if verb in GRACE_CHOICES:
        return await grace_answers.answer(ctx, AnswerGrace(session, facts, GRACE_CHOICES[verb], seen_s, job.key))
    if verb in (ACCEPT, DECLINE):
        session, _, offer = job.message.value.partition("/")
        answered = transfer.AnswerOffer(session, facts.actor, accept=verb == ACCEPT, offer=offer)
        return await transfer.answer(ctx, answered)
    if verb in (SAVED, LET_GO):
        return await hold.answer(ctx, AnswerCheckpointHold(session, facts, seen_s, saved=verb == SAVED))
    raise ValueError(f"no button about a session is called {verb}")


def read_decision(value: str, facts: DeciderFacts) -> Decide:
    """Read a button's value or a dialog's metadata: a token, and the changes and the digest that its approver saw."""
    token, seen, hours = (*value.split("/"), "", "")[:3]
    time_h = Decimal(hours) if re.fullmatch(r"[0-9]{1,6}(?:\.[0-9]{1,20})?", hours) else None
    return Decide(token, facts, hours=time_h, seen=seen or None)


def mark_of(decide: Decide) -> str:
    """Write what `read_decision` reads."""
    hours = f"{decide.hours:f}" if decide.hours is not None else ""
    return "/".join([decide.token, decide.seen or "", hours]).rstrip("/")


async def _change(handler: HandlerContext, job: HandlerJob, decide: Decide) -> None:
    """Open the dialog of an approval with changes, unless the decision would be refused already."""
    reply = await decisions.preview(handler.ctx, decide)
    request = await _request(handler, reply)
    if request is None or not (reply.ok or reply.code in AMOUNT_CODES):
        await handler.say(job, answer(reply), request.channel if request else "")
        return
    await _open_change(handler, job, request, decide)


async def _open_change(
    handler: HandlerContext, job: HandlerJob, request: Request, decide: Decide, problem: str = ""
) -> None:
    async with handler.ctx.db.read() as tx:
        view = await request_view(tx, request.id)
        spent_usd = await spent_before(tx, request)
    shown = shown_option(view)
    most_usd = card_amounts(view, shown, spent_usd)[1] if shown is not None else Decimal(0)
    most = amendments.most_hours(request, view.approvals), most_usd
    typed = (job.message.values.get("hours"), job.message.values.get("cap")) if problem else ("", "")
    again = (str(typed[0] or ""), str(typed[1] or ""))
    dialog = modals.change(mark_of(replace(decide, hours=None)), choices(view, spent_usd), most, problem, again)
    instead = f"{safe(problem)} The dialog could not be opened in time; click *Change…* again."
    await handler.open(job, dialog, instead.strip(), request.channel)


def read_mark(value: str) -> tuple[str, int | None]:
    """Read a button's value: `(session id, the end in seconds since 1970 that its message named)`."""
    session, _, end = value.partition("/")
    return session, int(end) if re.fullmatch(r"[0-9]{1,12}", end) else None


async def submitted(handler: HandlerContext, job: HandlerJob) -> None:
    """Process a dialog; its fields are read again from the stored row, as they were for the acknowledgement."""
    received, policy = job.message, handler.ctx.policy
    if received.view == modals.PROVISION:
        wanted = forms.read_job(received.values, policy)
        if isinstance(wanted, JobRequest):
            # One form submits one request, also when Slack shows an error and the same form is sent again.
            await commands.submit(handler, job, wanted, provision_form.asked_in(job), f"view:{received.view_id}")
        return
    facts = await handler.decider(job)
    more = forms.read_extension(received.values, policy) if received.view == modals.EXTEND else None
    if isinstance(more, tuple):
        session, seen_s = read_mark(received.meta)
        longer = Extend(f"view:{received.view_id}", session, more[0], facts, more[1], seen_end_s=seen_s)
        await handler.say(job, answer(await extension.extend(handler.ctx, longer)), received.user)
        return
    if received.view == modals.REJECT:
        reason = forms.read_reason(received.values, policy)
        if isinstance(reason, str):
            reply = await decisions.decide(handler.ctx, Decide(received.meta, facts, reason))
            request = await _request(handler, reply)
            if not reply.ok:
                await handler.say(job, answer(reply), request.channel if request else "")
        return
    if received.view == modals.KEY:
        await _add_key(handler, job)
        return
    if received.view == modals.SECRET:
        await key_command.store_secret(handler, job)
        return
    picked = forms.read_offer(received.values)
    if received.view == modals.OFFERS and isinstance(picked, tuple):
        await _approve(handler, job, Decide(picked[0], facts, typed_amount=picked[1]))
        return
    confirmed = forms.read_confirmation(received.values)
    if received.view == modals.AMOUNT and isinstance(confirmed, tuple):
        typed, cap_usd = confirmed
        asked = read_decision(received.meta, facts)
        await _approve(handler, job, replace(asked, typed_amount=typed, cap_usd=cap_usd))
    changed = forms.read_change(received.values, policy)
    if received.view == modals.CHANGE and isinstance(changed, forms.Change):
        asked = read_decision(received.meta, facts)
        token = changed.token or asked.token
        revised = replace(asked, token=token, hours=changed.hours, cap_usd=changed.cap_usd, typed_amount=changed.typed)
        await _approve(handler, job, revised, changing=True)


async def _add_key(handler: HandlerContext, job: HandlerJob) -> None:
    """Register the typed key, and show the card again on which its owner was named as without one."""
    ctx, received = handler.ctx, job.message
    typed = forms.read_key(received.values)
    if not isinstance(typed, str):
        return
    reply = await ssh_keys.add(ctx, AddKey(received.actor, typed, job.key))
    async with ctx.db.write() as tx:
        request = await tx.get(Request, received.meta)
        if reply.ok and request is not None:
            await show_again(tx, request, ctx.clock.now())
    ctx.hints.outbox.set()
    await handler.say(job, answer(reply), request.channel if request else "")


async def _approve(handler: HandlerContext, job: HandlerJob, decide: Decide, *, changing: bool = False) -> None:
    """Approve; where the amount must be typed (again), show the dialog. Answers are private, beside the request.

    `changing`: the decision comes from the dialog of changes, so its errors are shown there.
    """
    reply = await decisions.decide(handler.ctx, decide)
    request = await _request(handler, reply)
    channel = request.channel if request else ""
    if request is not None and changing and reply.code in CHANGE_CODES:
        await _open_change(handler, job, request, decide, reply.sentence)
    elif request is not None and reply.code in AMOUNT_CODES and "expected_usd" in reply.data:
        plainly = (
            reply.code == ReplyCode.AMOUNT_NEEDED and decide.typed_amount is None and "over_budget" not in reply.data
        )
        problem = "" if plainly else reply.sentence
        instead = f"{safe(problem)} The dialog could not be opened in time; click *Approve* again."
        view = modals.amount(mark_of(decide), _spend(request, reply, decide.hours), problem)
        await handler.open(job, view, instead.strip(), channel)
    elif not reply.ok or reply.code == ReplyCode.FIRST_OF_TWO:
        await handler.say(job, answer(reply), channel)


def _spend(request: Request, reply: Reply, time_h: Decimal | None) -> modals.ConfirmedSpend:
    return modals.ConfirmedSpend(
        offer_id=str(reply.data["offer_id"]),
        expected_usd=Decimal(reply.data["expected_usd"]),
        worst_usd=Decimal(reply.data["worst_usd"]),
        price_usd_h=Decimal(reply.data["price_usd_h"]),
        time_h=time_h or job_of(request.job).hours,
        in_all_usd=Decimal(reply.data["in_all_usd"]),
        limit_usd=reply.data.get("limit_usd"),
        limit_by=str(reply.data.get("limit_by", "")),
        spent_usd=Decimal(reply.data["spent_usd"]),
    )


async def _request(handler: HandlerContext, reply: Reply) -> Request | None:
    request_id = reply.data.get("request_id")
    async with handler.ctx.db.read() as tx:
        return await tx.get(Request, str(request_id)) if request_id else None
