"""What follows a slash command: one service call, and a private answer where the request's message does not say it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from bot.rules.approvals.decision import is_approver
from bot.rules.budgets.budget import Period
from bot.rules.grammar.job import everything
from bot.rules.grammar.parser import GrammarError, ParsedCommand, parse
from bot.rules.instances.power import PowerAction
from bot.rules.values.reply_code import ReplyCode
from bot.services.access import authorization, delegation, ssh_keys
from bot.services.approvals import break_glass, decisions, explanation
from bot.services.approvals.break_glass import BreakGlass
from bot.services.audit import journal as audit_journal
from bot.services.billing import costs, shared_ledger, true_up
from bot.services.billing.metering import cost_now
from bot.services.budgets import enforcement
from bot.services.grants import approvers
from bot.services.instances import power
from bot.services.plans import planner
from bot.services.requests import submit as request_submit
from bot.services.runtime.commands import AddKey, Cancel, Extend, FinishSession, Provision, Reply, Switch, Terminate
from bot.services.sessions import extension, service
from bot.slack import charts, modals
from bot.slack.blocks import help as help_message
from bot.slack.blocks import money
from bot.slack.blocks.audit import audit as journal
from bot.slack.blocks.comparison import comparison
from bot.slack.blocks.elements import channel, code
from bot.slack.blocks.inventory import inventory
from bot.slack.blocks.listing import listing
from bot.slack.blocks.plan import plan
from bot.slack.blocks.private_answer import answer, said
from bot.slack.blocks.profile import profile
from bot.slack.blocks.session_ending import end_question
from bot.slack.blocks.status import status
from bot.slack.handler_context import HandlerContext, HandlerJob
from bot.slack.home import decidable
from ledger.kernel.actor import Actor
from ledger.kernel.job import JobRequest
from ledger.queries.views import resolve

#: What the ids of conversations begin with that only one person has with the app: a direct message, or the person.
_PRIVATE: Final = ("D", "U", "W")


async def run(desk: HandlerContext, job: HandlerJob) -> None:
    """Process one slash command."""
    parsed = job.parsed or parse(job.message.text, desk.ctx.policy)
    if isinstance(parsed, GrammarError):
        # It was good when it was acknowledged, so the policy has changed since.
        await desk.say(job, help_message.grammar_error(parsed, desk.settings.command))
        return
    handler = HANDLERS.get(parsed.name)
    if handler is not None:
        await handler(desk, job, parsed)


async def submit(desk: HandlerContext, job: HandlerJob, wanted: JobRequest, asked_in: str, key: str) -> None:
    """Hand a request to its service. Its message is the answer, so only what that does not say is said here."""
    shown_in = desk.settings.approvals_channel or asked_in
    if shown_in.startswith(_PRIVATE):
        await desk.say(job, answer(_nobody_decides_here(desk)), asked_in)
        return
    reply = await request_submit.provision(desk.ctx, Provision(key, job.message.actor, shown_in, wanted))
    if not reply.ok:
        await desk.say(job, answer(reply), asked_in)
    elif shown_in != asked_in:
        await desk.say(job, said(f"Your request is shown in {channel(shown_in)} when the offers are there."), asked_in)


def _nobody_decides_here(desk: HandlerContext) -> Reply:
    return Reply(
        False,
        ReplyCode.NOBODY_DECIDES_HERE,
        "Nobody who approves can see this conversation, so nothing was asked for. Ask in a channel: "
        f"{desk.settings.command} works in each. An operator may also set GPU_SHOPPER_APPROVALS_CHANNEL.",
    )


async def _provision(desk: HandlerContext, job: HandlerJob, parsed: ParsedCommand) -> None:
    if parsed.job is not None:
        await submit(desk, job, parsed.job, job.message.channel, job.key)
        return
    if (desk.settings.approvals_channel or job.message.channel).startswith(_PRIVATE):
        await desk.say(job, answer(_nobody_decides_here(desk)))
        return
    example = code(f"{desk.settings.command} provision 4xA100-80GB 6h for=fine-tune")
    instead = f"The form could not be opened in time. Try again, or ask in words: {example}"
    view = modals.provision(job.message.channel, desk.ctx.providers, desk.ctx.policy)
    await desk.open(job, view, instead)


async def _inventory(desk: HandlerContext, job: HandlerJob, parsed: ParsedCommand) -> None:
    wanted = parsed.job or everything(desk.ctx.policy)
    found = await desk.ctx.catalog.inventory(wanted, desk.ctx.policy)
    await desk.say(job, inventory(found, wanted, desk.settings.command))


async def _plan(desk: HandlerContext, job: HandlerJob, parsed: ParsedCommand) -> None:
    ctx = desk.ctx
    wanted = parsed.job or everything(ctx.policy)
    found = await planner.plan(ctx.catalog, ctx.clock, wanted, ctx.policy)
    await desk.say(job, plan(found, desk.settings.command))
    await charts.share(desk, job, found)


async def _compare(desk: HandlerContext, job: HandlerJob, parsed: ParsedCommand) -> None:
    if parsed.question is None:
        raise ValueError("a comparison without a question")
    found = await planner.compare_market(desk.ctx.catalog, desk.ctx.clock, parsed.question, desk.ctx.policy)
    await desk.say(job, comparison(found))


async def _list(desk: HandlerContext, job: HandlerJob, _parsed: ParsedCommand) -> None:
    overview = await service.listing(desk.ctx, job.message.actor)
    waiting = await decidable(desk, await desk.directory.facts(job.message.user, job.message.team))
    now = desk.ctx.clock.now()
    costs = {view.session.id: cost_now(desk.ctx, view, now) for view in overview.sessions}
    await desk.say(job, listing(overview, costs, desk.settings.command, now, waiting))


async def _status(desk: HandlerContext, job: HandlerJob, parsed: ParsedCommand) -> None:
    try:
        found = await service.status(desk.ctx, parsed.target)
    except LookupError as error:
        await desk.say(job, answer(Reply(False, ReplyCode.UNKNOWN_ID, f"{error}.")))
        return
    now, view = desk.ctx.clock.now(), found.session
    cost = cost_now(desk.ctx, view, now) if view else None
    mine = found.request.request.requester == job.message.actor.ref
    provider = desk.ctx.providers.get(view.instance.cloud) if view and view.instance else None
    can_end = provider is None or provider.capabilities.terminate
    async with desk.ctx.db.read() as tx:
        asked = await approvers.approver_group(tx, desk.ctx.policy, found.request.request, now)
    between = await true_up.range_of(desk.ctx, view.session.id) if view else None
    shown = status(found, desk.ctx.policy, cost, now, mine=mine, can_end=can_end, mandate=asked, between=between)
    await desk.say(job, shown)


async def _terminate(desk: HandlerContext, job: HandlerJob, parsed: ParsedCommand) -> None:
    facts = await desk.directory.facts(job.message.user, job.message.team)
    order = Terminate(parsed.target, facts)
    if parsed.action == "now":
        await desk.say(job, answer(await service.terminate(desk.ctx, order)))
        return
    found = await service.before_end(desk.ctx, order)
    now = desk.ctx.clock.now()
    await desk.say(job, answer(found) if isinstance(found, Reply) else end_question(found, now))


async def _extend(desk: HandlerContext, job: HandlerJob, parsed: ParsedCommand) -> None:
    if parsed.hours is None:
        raise ValueError("an extension without a time")
    facts = await desk.directory.facts(job.message.user, job.message.team)
    wanted = Extend(job.key, parsed.target, parsed.hours, facts, parsed.text)
    await desk.say(job, answer(await extension.extend(desk.ctx, wanted)))


async def _done(desk: HandlerContext, job: HandlerJob, parsed: ParsedCommand) -> None:
    facts = await desk.directory.facts(job.message.user, job.message.team)
    succeeded, preserve = parsed.action == "success", parsed.text == "preserve"
    done = FinishSession(parsed.target, facts, succeeded=succeeded, preserve=preserve, key=job.key)
    await desk.say(job, answer(await service.done(desk.ctx, done)))


async def _switch(desk: HandlerContext, job: HandlerJob, parsed: ParsedCommand) -> None:
    facts = await desk.directory.facts(job.message.user, job.message.team)
    order = Switch(parsed.target, facts, PowerAction(parsed.name), key=job.key)
    await desk.say(job, answer(await power.switch(desk.ctx, order)))


async def _budget(desk: HandlerContext, job: HandlerJob, _parsed: ParsedCommand) -> None:
    facts = await desk.directory.facts(job.message.user, job.message.team)
    everybody = facts.known and is_approver(desk.ctx.policy, facts)
    lines = await enforcement.overview(desk.ctx, job.message.actor)
    if everybody:  # Those who decide see every budget that they may run into.
        known = {(line.key, line.period) for line in lines}
        lines += [line for line in await enforcement.overview(desk.ctx) if (line.key, line.period) not in known]
    await desk.say(job, money.budget(lines))


async def _audit(desk: HandlerContext, job: HandlerJob, parsed: ParsedCommand) -> None:
    facts = await desk.directory.facts(job.message.user, job.message.team)
    try:
        found = await audit_journal.audit(desk.ctx.db, parsed.target)
    except LookupError as error:
        await desk.say(job, answer(Reply(False, ReplyCode.UNKNOWN_ID, f"{error}.")))
        return
    async with desk.ctx.db.read() as tx:
        own = found.owner in await authorization.mine(tx, desk.ctx.policy, facts.actor)
    if own or (facts.known and is_approver(desk.ctx.policy, facts)):
        await desk.say(job, journal(found))
    else:
        await desk.say(
            job, answer(Reply(False, ReplyCode.NOT_YOURS, "Only its owner or an approver reads this journal."))
        )


async def _why(desk: HandlerContext, job: HandlerJob, parsed: ParsedCommand) -> None:
    try:
        async with desk.ctx.db.read() as tx:
            request, _ = await resolve(tx, parsed.target)
    except LookupError as error:
        await desk.say(job, answer(Reply(False, ReplyCode.UNKNOWN_ID, f"{error}.")))
        return
    found = await explanation.why(desk.ctx, request.id)
    await desk.say(job, answer(Reply(True, ReplyCode.WHY, " ".join(found.sentences))))


async def _delegate(desk: HandlerContext, job: HandlerJob, parsed: ParsedCommand) -> None:
    facts = await desk.directory.facts(job.message.user, job.message.team)
    if parsed.action == "list":
        everything = facts.known and is_approver(desk.ctx.policy, facts)
        rows = await delegation.listing(desk.ctx, facts.actor, everything=everything)
        await desk.say(job, answer(Reply(True, ReplyCode.DELEGATIONS, delegation.said(rows))))
        return
    to = Actor.from_ref(parsed.target) if parsed.action == "set" else None
    change = delegation.Delegate(facts, to, parsed.day, job.key)
    done = await (delegation.delegate if to else delegation.revoke)(desk.ctx, change)
    await desk.say(job, answer(done))


async def _break_glass(desk: HandlerContext, job: HandlerJob, parsed: ParsedCommand) -> None:
    facts = await desk.directory.facts(job.message.user, job.message.team)
    wanted = BreakGlass(parsed.target, facts, parsed.text, key=job.key)
    await desk.say(job, answer(await break_glass.break_glass(desk.ctx, wanted)))


async def _costs(desk: HandlerContext, job: HandlerJob, parsed: ParsedCommand) -> None:
    facts = await desk.directory.facts(job.message.user, job.message.team)
    everybody = facts.known and is_approver(desk.ctx.policy, facts)
    actor = None if everybody else job.message.actor
    if parsed.action == "summary":
        await desk.say(job, money.summary(await shared_ledger.summary(desk.ctx, actor), everybody=everybody))
        return
    found = await costs.overview(desk.ctx, actor, Period(parsed.action))
    await desk.say(job, money.costs(found, everybody=everybody))


async def _cancel(desk: HandlerContext, job: HandlerJob, parsed: ParsedCommand) -> None:
    facts = await desk.directory.facts(job.message.user, job.message.team)
    await desk.say(job, answer(await decisions.cancel(desk.ctx, Cancel(parsed.target, facts))))


async def _key(desk: HandlerContext, job: HandlerJob, parsed: ParsedCommand) -> None:
    actor = job.message.actor
    if parsed.action == "add":
        reply = await ssh_keys.add(desk.ctx, AddKey(actor, parsed.text, job.key))
    elif parsed.action == "remove":
        reply = await ssh_keys.remove(desk.ctx, actor, job.key)
    else:
        reply = await ssh_keys.show(desk.ctx, actor)
    await desk.say(job, answer(reply))


async def _profile(desk: HandlerContext, job: HandlerJob, parsed: ParsedCommand) -> None:
    await desk.say(job, profile(parsed.target))


HANDLERS: Final[Mapping[str, Callable[[HandlerContext, HandlerJob, ParsedCommand], Awaitable[None]]]] = {
    "provision": _provision,
    "inventory": _inventory,
    "plan": _plan,
    "compare": _compare,
    "list": _list,
    "status": _status,
    "terminate": _terminate,
    "extend": _extend,
    "done": _done,
    "audit": _audit,
    "why": _why,
    "break-glass": _break_glass,
    "delegate": _delegate,
    "budget": _budget,
    "costs": _costs,
    "stop": _switch,
    "start": _switch,
    "restart": _switch,
    "cancel": _cancel,
    "key": _key,
    "profile": _profile,
}
