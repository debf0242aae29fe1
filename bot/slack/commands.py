"""Process slash commands: one service call each, and a private answer where the request's message is none."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from bot.rules.access.sight import Sight
from bot.rules.approvals.approvers import Deed, references
from bot.rules.approvals.decision import is_approver
from bot.rules.grammar.job import everything
from bot.rules.grammar.parser import GrammarError, ParsedCommand, parse
from bot.rules.instances.power import PowerAction
from bot.rules.jobs.job import JobRequest
from bot.rules.values.reply_code import ReplyCode
from bot.rules.values.text import clean
from bot.services.access import authorization, delegation
from bot.services.approvals import advance, break_glass, decisions, explanation
from bot.services.approvals.advance import Revoke
from bot.services.approvals.break_glass import BreakGlass
from bot.services.audit import journal as audit_journal
from bot.services.billing import true_up
from bot.services.billing.metering import cost_now
from bot.services.instances import power
from bot.services.plans import planner, sizing
from bot.services.plans.work_comparison import compare_work_now
from bot.services.requests import again as repeat
from bot.services.requests import submit as request_submit
from bot.services.runtime.commands import Cancel, Extend, FinishSession, Provision, Reply, Switch, Terminate
from bot.services.sessions import extension, service
from bot.slack import browsing, charts, key_command, log_command, migrate_command, people_command, provision_form
from bot.slack.blocks import help as help_message
from bot.slack.blocks.audit import audit as journal
from bot.slack.blocks.elements import Message, channel
from bot.slack.blocks.listing import SHOWN, history, listing, team
from bot.slack.blocks.plan import comparison, plan
from bot.slack.blocks.private_answer import answer
from bot.slack.blocks.profile import profile
from bot.slack.blocks.session.session_ending import done_question, end_question
from bot.slack.blocks.session.status import details as status_details
from bot.slack.blocks.session.status import status
from bot.slack.blocks.sized_plan import compared_work
from bot.slack.handler_context import HandlerContext, HandlerJob
from bot.slack.home import decidable
from bot.slack.render import card_facts
from bot.slack.subcommands import money, volume_command
from ledger.kernel.actor import Actor
from ledger.queries.people.transfers import left_at
from ledger.queries.views import nothing_ends_in, resolve

#: First letters of the ids of private conversations with the app: a direct message, or the person.
_PRIVATE: Final = ("D", "U", "W")
#: What ends spending stays possible for a guest whom the policy does not let in any more.
_ALWAYS: Final = frozenset({"terminate", "done", "stop", "cancel"})


async def run(handler: HandlerContext, job: HandlerJob) -> None:
    """Process one slash command."""
    parsed = job.parsed or parse(job.message.text, handler.ctx.policy)
    if isinstance(parsed, GrammarError):
        # It was valid when it was acknowledged, so the policy has changed since.
        await handler.say(job, help_message.grammar_error(parsed, handler.settings.command))
        return
    refused = None if parsed.name in _ALWAYS else await handler.ineligible(job, Deed.READ)
    if refused is not None:
        await handler.say(job, answer(refused))
        return
    run_command = HANDLERS.get(parsed.name)
    message = await run_command(handler, job, parsed) if run_command is not None else None
    if message is not None:
        await handler.say(job, message)


def _unknown(error: LookupError) -> Message:
    """Say that no request or session has the id that was typed."""
    return answer(authorization.refusal(error))


async def hidden(handler: HandlerContext, job: HandlerJob, requester: str) -> bool:
    """Whether a request is hidden from somebody: guests read about their own only."""
    facts = await handler.facts(job)
    if not facts.is_guest:
        return False
    async with handler.ctx.db.read() as tx:
        return requester not in await authorization.mine(tx, handler.ctx.policy, facts.actor)


async def submit(handler: HandlerContext, job: HandlerJob, wanted: JobRequest, asked_in: str, key: str) -> None:
    """Submit a request. Its message is the answer, so only what that does not say is said here."""
    shown_in = handler.settings.approvals_channel or asked_in
    if shown_in.startswith(_PRIVATE):
        await handler.say(job, answer(_nobody_decides_here(handler)), asked_in)
        return
    reply = await request_submit.provision(handler.ctx, Provision(key, job.message.actor, shown_in, wanted))
    if not reply.ok:
        await handler.say(job, answer(reply), asked_in)
    elif shown_in != asked_in:
        await handler.say(
            job, Message.of(f"Your request is shown in {channel(shown_in)} when the offers are there."), asked_in
        )


def _nobody_decides_here(handler: HandlerContext) -> Reply:
    return Reply(
        False,
        ReplyCode.NO_APPROVER_HERE,
        "No approver can see this conversation, so nothing was requested. Use a channel: "
        f"{handler.settings.command} works in each. An operator may also set GPU_SHOPPER_APPROVALS_CHANNEL.",
    )


async def _provision(handler: HandlerContext, job: HandlerJob, parsed: ParsedCommand) -> Message | None:
    if parsed.job is not None:
        await submit(handler, job, parsed.job, job.message.channel, job.key)
        return None
    if (handler.settings.approvals_channel or job.message.channel).startswith(_PRIVATE):
        return answer(_nobody_decides_here(handler))
    await provision_form.open_form(handler, job)
    return None


async def _volume(handler: HandlerContext, job: HandlerJob, parsed: ParsedCommand) -> Message | None:
    return await (_provision if parsed.action == "create" else volume_command.change)(handler, job, parsed)


async def _inventory(handler: HandlerContext, job: HandlerJob, parsed: ParsedCommand) -> Message | None:
    words = clean(job.message.text).partition(" ")[2].strip()
    return await browsing.first_rows(handler, words, parsed)


async def _plan(handler: HandlerContext, job: HandlerJob, parsed: ParsedCommand) -> Message | None:
    ctx = handler.ctx
    wanted = parsed.sizing or parsed.job or everything(ctx.policy)
    found = await sizing.plan(ctx.catalog, ctx.clock, wanted, ctx.policy)
    await handler.say(job, plan(found, handler.settings.command))
    await charts.share(handler, job, found)
    return None


async def _compare(handler: HandlerContext, _job: HandlerJob, parsed: ParsedCommand) -> Message | None:
    if parsed.job is not None:
        ctx = handler.ctx
        return compared_work(await compare_work_now(ctx.catalog, ctx.clock, parsed.job, ctx.policy))
    if parsed.question is None:
        raise ValueError("a comparison without a question")
    found = await planner.compare_market(handler.ctx.catalog, handler.ctx.clock, parsed.question, handler.ctx.policy)
    return comparison(found)


async def _refused_team(handler: HandlerContext, job: HandlerJob) -> Message | None:
    """Return the refusal for somebody who may not see everybody's sessions; None for approvers and operators."""
    facts = await handler.facts(job)
    if facts.known and is_approver(handler.ctx.policy, facts):
        return None
    policy = handler.ctx.policy
    names = references((*policy.approvers, *policy.approver_groups))
    sentence = f"Only approvers can see everybody's sessions{f': {names}' if names else ''}."
    return answer(Reply(False, ReplyCode.NOT_AN_APPROVER, sentence))


async def _history(handler: HandlerContext, job: HandlerJob, parsed: ParsedCommand) -> Message | None:
    everybody = parsed.action == "team"
    if everybody and (refused := await _refused_team(handler, job)):
        return refused
    actor, now = None if everybody else job.message.actor, handler.ctx.clock.now()
    views = await service.history(handler.ctx, actor, SHOWN)
    costs_usd = {view.session.id: cost_now(handler.ctx, view, now) for view in views}
    return history(views, costs_usd, handler.settings.command, everybody=everybody)


async def _list(handler: HandlerContext, job: HandlerJob, parsed: ParsedCommand) -> Message | None:
    if parsed.action == "team":
        if refused := await _refused_team(handler, job):
            return refused
        views, at = await service.team(handler.ctx), handler.ctx.clock.now()
        costs_usd = {view.session.id: cost_now(handler.ctx, view, at) for view in views}
        return team(views, costs_usd, handler.settings.command, at)
    overview = await service.listing(handler.ctx, job.message.actor)
    waiting = await decidable(handler, await handler.facts(job))
    now = handler.ctx.clock.now()
    costs = {view.session.id: cost_now(handler.ctx, view, now) for view in overview.sessions}
    return listing(overview, costs, handler.settings.command, now, waiting)


async def _status(handler: HandlerContext, job: HandlerJob, parsed: ParsedCommand) -> Message | None:
    ctx, now = handler.ctx, handler.ctx.clock.now()
    seen = await _seen(handler, job, parsed.target)
    if isinstance(seen, Message):
        return seen
    found, sight = seen
    view = found.session
    facts = await card_facts(ctx, found.request, now)
    between = await true_up.range_of(ctx, view.session.id) if view else None
    return status(
        found,
        ctx.policy,
        facts,
        now,
        sight,
        mine=_is_mine(found, job),
        command=handler.settings.command,
        can_end=_can_end(handler, found),
        between=between,
        end=true_up.unsure_end(ctx, view.instance) if view else None,
    )


async def details(handler: HandlerContext, job: HandlerJob) -> Message:
    """Answer the button *Details* of a session with what its short status leaves out."""
    if refused := await handler.ineligible(job, Deed.READ):
        return answer(refused)
    seen = await _seen(handler, job, job.message.value)
    if isinstance(seen, Message):
        return seen
    found, sight = seen
    if found.session is None:
        return _unknown(LookupError(nothing_ends_in(job.message.value)))
    policy, now = handler.ctx.policy, handler.ctx.clock.now()
    return status_details(found.session, policy, now, sight, can_end=_can_end(handler, found))


async def _seen(handler: HandlerContext, job: HandlerJob, target: str) -> tuple[service.Status, Sight] | Message:
    """Return what an id names and how much of it this person sees, or the answer where they may see nothing."""
    facts = await handler.facts(job)
    try:
        status = await service.status(handler.ctx, target)
        async with handler.ctx.db.read() as tx:
            request, session = status.request.request, status.session.session if status.session else None
            sight = await authorization.member_sight(tx, handler.ctx.policy, facts, request, session, target)
    except LookupError as error:
        return _unknown(error)
    return status, sight


def _is_mine(found: service.Status, job: HandlerJob) -> bool:
    return found.request.request.requester == job.message.actor.ref


def _can_end(handler: HandlerContext, found: service.Status) -> bool:
    view = found.session
    provider = handler.ctx.providers.get(view.instance.cloud) if view and view.instance else None
    return provider is None or provider.capabilities.terminate


async def _terminate(handler: HandlerContext, job: HandlerJob, parsed: ParsedCommand) -> Message | None:
    facts = await handler.facts(job)
    order = Terminate(parsed.target, facts)
    if parsed.action == "now":
        return answer(await service.terminate(handler.ctx, order))
    found = await service.before_end(handler.ctx, order)
    now = handler.ctx.clock.now()
    return answer(found) if isinstance(found, Reply) else end_question(found, now)


async def _extend(handler: HandlerContext, job: HandlerJob, parsed: ParsedCommand) -> Message | None:
    if parsed.hours is None:
        raise ValueError("an extension without a time")
    facts = await handler.facts(job)
    wanted = Extend(job.key, parsed.target, parsed.hours, facts, parsed.text)
    return answer(await extension.extend(handler.ctx, wanted))


async def _done(handler: HandlerContext, job: HandlerJob, parsed: ParsedCommand) -> Message | None:
    facts = await handler.facts(job)
    if not parsed.text:  # No word says what becomes of the disk, so its owner decides that with a button.
        found = await service.before_end(handler.ctx, Terminate(parsed.target, facts))
        return (
            answer(found) if isinstance(found, Reply) else done_question(found, parsed.action, handler.ctx.clock.now())
        )
    succeeded, preserve = parsed.action == "success", parsed.text == "preserve"
    done = FinishSession(parsed.target, facts, succeeded=succeeded, preserve=preserve, key=job.key)
    return answer(await service.done(handler.ctx, done))


async def _switch(handler: HandlerContext, job: HandlerJob, parsed: ParsedCommand) -> Message | None:
    facts = await handler.facts(job)
    order = Switch(parsed.target, facts, PowerAction(parsed.name), key=job.key)
    return answer(await power.switch(handler.ctx, order))


async def _audit(handler: HandlerContext, job: HandlerJob, parsed: ParsedCommand) -> Message | None:
    facts = await handler.facts(job)
    try:
        found = await audit_journal.audit(handler.ctx.db, parsed.target)
    except LookupError as error:
        return _unknown(error)
    async with handler.ctx.db.read() as tx:
        names = await authorization.mine(tx, handler.ctx.policy, facts.actor)
        left = await left_at(tx, found.request_id, names)
    own = found.owner in names
    if own or (facts.known and is_approver(handler.ctx.policy, facts)):
        return journal(found)
    if left is not None:
        return journal(await audit_journal.audit(handler.ctx.db, parsed.target, left))
    return answer(Reply(False, ReplyCode.NOT_YOURS, "Only its owner or an approver reads this journal."))


async def _why(handler: HandlerContext, job: HandlerJob, parsed: ParsedCommand) -> Message | None:
    try:
        async with handler.ctx.db.read() as tx:
            request, _ = await resolve(tx, parsed.target)
    except LookupError as error:
        return _unknown(error)
    if await hidden(handler, job, request.requester):
        return _unknown(LookupError(nothing_ends_in(parsed.target)))
    found = await explanation.why(handler.ctx, request.id)
    return answer(Reply(True, ReplyCode.WHY, " ".join(found.sentences)))


async def _delegate(handler: HandlerContext, job: HandlerJob, parsed: ParsedCommand) -> Message | None:
    facts = await handler.facts(job)
    if parsed.action == "list":
        everything = facts.known and is_approver(handler.ctx.policy, facts)
        rows = await delegation.listing(handler.ctx, facts.actor, everything=everything)
        return answer(Reply(True, ReplyCode.DELEGATIONS, delegation.said(rows)))
    to = Actor.from_ref(parsed.target) if parsed.action == "set" else None
    change = delegation.Delegate(facts, to, parsed.day, job.key)
    done = await (delegation.delegate if to else delegation.revoke)(handler.ctx, change)
    return answer(done)


async def _break_glass(handler: HandlerContext, job: HandlerJob, parsed: ParsedCommand) -> Message | None:
    facts = await handler.facts(job)
    wanted = BreakGlass(parsed.target, facts, parsed.text, key=job.key)
    return answer(await break_glass.break_glass(handler.ctx, wanted))


async def _cancel(handler: HandlerContext, job: HandlerJob, parsed: ParsedCommand) -> Message | None:
    facts = await handler.facts(job)
    return answer(await decisions.cancel(handler.ctx, Cancel(parsed.target, facts)))


async def _revoke(handler: HandlerContext, job: HandlerJob, parsed: ParsedCommand) -> Message | None:
    return answer(await advance.revoke(handler.ctx, Revoke(parsed.target, await handler.facts(job))))


async def _again(handler: HandlerContext, job: HandlerJob, parsed: ParsedCommand) -> Message | None:
    """Repeat a request, in the channel in which it would be made."""
    asked_in = job.message.channel
    shown_in = handler.settings.approvals_channel or asked_in
    if shown_in.startswith(_PRIVATE):
        return answer(_nobody_decides_here(handler))
    earlier, sight = None, Sight.OWN
    if parsed.target:
        policy, facts = handler.ctx.policy, await handler.facts(job)
        try:
            async with handler.ctx.db.read() as tx:
                earlier, session = await resolve(tx, parsed.target)
                sight = await authorization.sight_to_repeat(tx, policy, facts, earlier, session, parsed.target)
        except LookupError as error:
            return _unknown(error)
    reply = await repeat.again(handler.ctx, repeat.Again(job.key, job.message.actor, shown_in, earlier, sight=sight))
    if reply.ok and shown_in == asked_in:
        return None
    return answer(reply)


async def _profile(_handler: HandlerContext, _job: HandlerJob, parsed: ParsedCommand) -> Message | None:
    return profile(parsed.target)


HANDLERS: Final[Mapping[str, Callable[[HandlerContext, HandlerJob, ParsedCommand], Awaitable[Message | None]]]] = {
    "provision": _provision,
    "inventory": _inventory,
    "plan": _plan,
    "compare": _compare,
    "list": _list,
    "history": _history,
    "status": _status,
    "terminate": _terminate,
    "extend": _extend,
    "migrate": migrate_command.migrate,
    "volume": _volume,
    "done": _done,
    "audit": _audit,
    "why": _why,
    "logs": log_command.logs,
    "break-glass": _break_glass,
    "delegate": _delegate,
    "budget": money.budget,
    "costs": money.costs,
    "stop": _switch,
    "start": _switch,
    "restart": _switch,
    "cancel": _cancel,
    "revoke": _revoke,
    "again": _again,
    "share": people_command.share,
    "unshare": people_command.share,
    "transfer": people_command.transfer,
    "key": key_command.key,
    "secret": key_command.secret,
    "profile": _profile,
}
