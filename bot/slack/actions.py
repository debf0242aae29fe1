"""What follows a click and a submitted dialog. Who may do what is judged by the services, from facts fetched now."""

from __future__ import annotations

import re
from dataclasses import replace
from decimal import Decimal
from typing import Final

from bot.rules.approvals.approvers import DeciderFacts
from bot.rules.values.phrases import plural
from bot.rules.values.reply_code import ReplyCode
from bot.services.approvals import decisions
from bot.services.checkpoints import hold
from bot.services.grants import amendments
from bot.services.plans import planner
from bot.services.runtime.commands import (
    AnswerCheckpointHold,
    Decide,
    Extend,
    FinishSession,
    KeepRunning,
    Reply,
    Terminate,
)
from bot.services.sessions import extension, idle_termination, service
from bot.slack import charts, commands, forms, modals
from bot.slack.blocks.checkpoint_hold import LET_GO, SAVED
from bot.slack.blocks.elements import code, safe, section
from bot.slack.blocks.plan import plan, plan_sections
from bot.slack.blocks.private_answer import answer
from bot.slack.blocks.session_ready_and_ended import KEEP_HOURS
from bot.slack.handler_context import HandlerContext, HandlerJob
from ledger.kernel.ids import short_id
from ledger.kernel.job import JobRequest
from ledger.models import Request
from ledger.queries.views import request_view

#: Outcomes of an approval after which the dialog about the amount is (still) wanted.
#: What is wrong with a change, and can be typed anew.
CHANGE_CODES: Final = frozenset({ReplyCode.BAD_HOURS, ReplyCode.HOURS_RAISED, ReplyCode.BAD_CAP, ReplyCode.CAP_RAISED})
AMOUNT_CODES: Final = frozenset(
    {ReplyCode.AMOUNT_NEEDED, ReplyCode.AMOUNT_MISMATCH, ReplyCode.BAD_CAP, ReplyCode.CAP_RAISED, ReplyCode.LIMIT_SPENT}
)

_CHANNEL: Final = re.compile(r"[CDG][A-Z0-9]{2,20}")


async def click(desk: HandlerContext, job: HandlerJob) -> None:
    """Process a button: approve, reject, the plan of a form, or one about a session and the end that it spoke of."""
    verb = job.message.action.partition(":")[0]
    if verb == "plan":
        await _plan(desk, job)
        return
    facts = await desk.directory.facts(job.message.user, job.message.team)
    session, seen_s = read_mark(job.message.value)
    if verb == "terminate":
        await desk.say(job, answer(await service.terminate(desk.ctx, Terminate(session, facts, seen_end_s=seen_s))))
    elif verb == "done":
        await desk.say(job, answer(await service.done(desk.ctx, FinishSession(session, facts, seen_end_s=seen_s))))
    elif verb == "keep":
        keep = Extend(job.key, session, KEEP_HOURS, facts, seen_end_s=seen_s, only_inside=True)
        await desk.say(job, answer(await extension.extend(desk.ctx, keep)))
    elif verb == "spare":
        await desk.say(
            job, answer(await idle_termination.keep_running(desk.ctx, KeepRunning(session, facts, seen_end_s=seen_s)))
        )
    elif verb in (SAVED, LET_GO):
        said = AnswerCheckpointHold(session, facts, seen_s, saved=verb == SAVED)
        await desk.say(job, answer(await hold.answer(desk.ctx, said)))
    elif verb == "extend":
        example = f"{desk.settings.command} extend {short_id(session)} 1h"
        view = modals.extend(job.message.value, desk.ctx.policy)
        await desk.open(job, view, f"The dialog could not be opened in time; type {code(example)} instead.")
    elif verb == "reject":
        facts = await desk.decider(job)
        reply = await decisions.preview(desk.ctx, Decide(job.message.value, facts))
        if reply.code == ReplyCode.REASON_NEEDED:
            view = modals.reject(job.message.value, desk.ctx.policy)
            await desk.open(job, view, "The dialog could not be opened in time; click *Reject* again.")
        else:
            await desk.say(job, answer(reply))
    elif verb == "change":
        await _change(desk, job, read_decision(job.message.value, await desk.decider(job)))
    else:
        await _approve(desk, job, read_decision(job.message.value, await desk.decider(job)))


def read_decision(value: str, facts: DeciderFacts) -> Decide:
    """What a button or a dialog's metadata says: a token, and what was changed and seen where somebody changed it."""
    token, seen, hours = (*value.split("/"), "", "")[:3]
    time_h = Decimal(hours) if re.fullmatch(r"[0-9]{1,6}(?:\.[0-9]{1,20})?", hours) else None
    return Decide(token, facts, hours=time_h, seen=seen or None)


def mark_of(decide: Decide) -> str:
    """The inverse of `read_decision`."""
    hours = f"{decide.hours:f}" if decide.hours is not None else ""
    return "/".join([decide.token, decide.seen or "", hours]).rstrip("/")


async def _change(desk: HandlerContext, job: HandlerJob, decide: Decide) -> None:
    """Open the dialog of an approval with changes, unless the decision would be refused as it is."""
    reply = await decisions.preview(desk.ctx, decide)
    request = await _request(desk, reply)
    if request is None or not (reply.ok or reply.code in AMOUNT_CODES):
        await desk.say(job, answer(reply), request.channel if request else "")
        return
    await _open_change(desk, job, request, decide)


async def _open_change(
    desk: HandlerContext, job: HandlerJob, request: Request, decide: Decide, problem: str = ""
) -> None:
    async with desk.ctx.db.read() as tx:
        view = await request_view(tx, request.id)
    most = amendments.most_hours(request, view.approvals)
    typed = (job.message.values.get("hours"), job.message.values.get("cap")) if problem else ("", "")
    again = (str(typed[0] or ""), str(typed[1] or ""))
    dialog = modals.change(mark_of(replace(decide, hours=None)), modals.offers_of(view), most, problem, again)
    instead = f"{safe(problem)} The dialog could not be opened in time; click *Change…* again."
    await desk.open(job, dialog, instead.strip(), request.channel)


def read_mark(value: str) -> tuple[str, int | None]:
    """`(session id, the end in seconds since 1970 that the message spoke of)` of a button's value."""
    session, _, end = value.partition("/")
    return session, int(end) if re.fullmatch(r"[0-9]{1,12}", end) else None


async def submitted(desk: HandlerContext, job: HandlerJob) -> None:
    """Process a dialog. Its fields were read once for the acknowledgement and are read again from the stored row."""
    heard, policy = job.message, desk.ctx.policy
    if heard.view == modals.PROVISION:
        wanted = forms.read_job(heard.values, policy)
        if isinstance(wanted, JobRequest):
            asked_in = _asked_in(job)
            # One form asks once, also when Slack shows an error and the same form is sent again.
            await commands.submit(desk, job, wanted, asked_in, f"view:{heard.view_id}")
        return
    facts = await desk.decider(job)
    more = forms.read_extension(heard.values, policy) if heard.view == modals.EXTEND else None
    if isinstance(more, tuple):
        session, seen_s = read_mark(heard.meta)
        longer = Extend(f"view:{heard.view_id}", session, more[0], facts, more[1], seen_end_s=seen_s)
        await desk.say(job, answer(await extension.extend(desk.ctx, longer)), heard.user)
        return
    if heard.view == modals.REJECT:
        reason = forms.read_reason(heard.values, policy)
        if isinstance(reason, str):
            reply = await decisions.decide(desk.ctx, Decide(heard.meta, facts, reason))
            request = await _request(desk, reply)
            if not reply.ok:
                await desk.say(job, answer(reply), request.channel if request else "")
        return
    confirmed = forms.read_confirmation(heard.values)
    if heard.view == modals.AMOUNT and isinstance(confirmed, tuple):
        typed, cap_usd = confirmed
        asked = read_decision(heard.meta, facts)
        await _approve(desk, job, replace(asked, typed_amount=typed, cap_usd=cap_usd))
    changed = forms.read_change(heard.values, policy)
    if heard.view == modals.CHANGE and isinstance(changed, forms.Change):
        asked = read_decision(heard.meta, facts)
        token = changed.token or asked.token
        revised = replace(asked, token=token, hours=changed.hours, cap_usd=changed.cap_usd, typed_amount=changed.typed)
        await _approve(desk, job, revised, changing=True)


def _asked_in(job: HandlerJob) -> str:
    """The conversation that a form was opened in; the person's own one when it does not say."""
    return job.message.meta if _CHANNEL.fullmatch(job.message.meta) else job.message.user


async def _plan(desk: HandlerContext, job: HandlerJob) -> None:
    """Show the plan of what is typed on top of the form; privately in its conversation where no dialog can be shown."""
    ctx = desk.ctx
    wanted = forms.read_job(job.message.values, ctx.policy, to_rent=False)
    if not isinstance(wanted, JobRequest):
        problems = "\n".join(f"• {safe(sentence)}" for sentence in wanted.values())
        await desk.show(job, modals.planned([section(f"This cannot be planned yet.\n{problems}")]), "views.push")
        return
    asked = [cloud for cloud in ctx.providers if not wanted.candidates or cloud in wanted.candidates]
    waiting = modals.planned([section(f"Asking {plural(len(asked), 'cloud')}…")])
    view_id = await desk.show(job, waiting, "views.push")
    found = await planner.plan(ctx.catalog, ctx.clock, wanted, ctx.policy)
    if not (view_id and await desk.change(view_id, modals.planned(plan_sections(found)))):
        await desk.say(job, plan(found, desk.settings.command), _asked_in(job))
    await charts.share(desk, job, found)


async def _approve(desk: HandlerContext, job: HandlerJob, decide: Decide, *, changing: bool = False) -> None:
    """Decide; where the amount must be typed (again), show the dialog. Answers are private, where the request is.

    `changing`: what was typed into the dialog of changes is at stake, so what is wrong with it is said there.
    """
    reply = await decisions.decide(desk.ctx, decide)
    request = await _request(desk, reply)
    channel = request.channel if request else ""
    if request is not None and changing and reply.code in CHANGE_CODES:
        await _open_change(desk, job, request, decide, reply.sentence)
    elif request is not None and reply.code in AMOUNT_CODES and "expected_usd" in reply.data:
        plainly = (
            reply.code == ReplyCode.AMOUNT_NEEDED and decide.typed_amount is None and "over_budget" not in reply.data
        )
        problem = "" if plainly else reply.sentence
        instead = f"{safe(problem)} The dialog could not be opened in time; click *Approve* again."
        view = modals.amount(mark_of(decide), _spend(request, reply, decide.hours), problem)
        await desk.open(job, view, instead.strip(), channel)
    elif not reply.ok or reply.code == ReplyCode.FIRST_OF_TWO:
        await desk.say(job, answer(reply), channel)


def _spend(request: Request, reply: Reply, time_h: Decimal | None) -> modals.ConfirmedSpend:
    return modals.ConfirmedSpend(
        offer_id=str(reply.data["offer_id"]),
        expected_usd=Decimal(reply.data["expected_usd"]),
        worst_usd=Decimal(reply.data["worst_usd"]),
        price_usd_h=Decimal(reply.data["price_usd_h"]),
        time_h=time_h or request.job.hours,
        limit_usd=reply.data.get("limit_usd"),
        limit_by=str(reply.data.get("limit_by", "")),
        spent_usd=Decimal(reply.data["spent_usd"]),
    )


async def _request(desk: HandlerContext, reply: Reply) -> Request | None:
    request_id = reply.data.get("request_id")
    async with desk.ctx.db.read() as tx:
        return await tx.get(Request, str(request_id)) if request_id else None
