"""Answer `/gpu volume`: list network volumes, and ask for one, for more time, or for its end."""

from __future__ import annotations

from bot.rules.grammar.parser import ParsedCommand
from bot.services.billing.metering import cost_now
from bot.services.runtime.commands import Extend, Reply, Terminate
from bot.services.sessions import extension, service, volume_lookup
from bot.slack.blocks import volume_list as blocks
from bot.slack.blocks.elements import Message
from bot.slack.blocks.private_answer import answer
from bot.slack.blocks.session.session_ending import end_question
from bot.slack.handler_context import HandlerContext, HandlerJob


async def change(handler: HandlerContext, job: HandlerJob, parsed: ParsedCommand) -> Message:
    """List the volumes, ask for more time for one, or confirm that it is to be deleted."""
    ctx, now = handler.ctx, handler.ctx.clock.now()
    if parsed.action == "list":
        views = await volume_lookup.mine(ctx, job.message.actor)
        return blocks.listing([(view, cost_now(ctx, view, now)) for view in views], handler.settings.command)
    found = await volume_lookup.named(ctx, job.message.actor, parsed.target)
    if isinstance(found, Reply):
        return answer(found)
    facts = await handler.facts(job)
    if parsed.action == "extend" and parsed.hours is not None:
        wanted = Extend(job.key, found.session.id, parsed.hours, facts, parsed.text)
        return answer(await extension.extend(ctx, wanted))
    stakes = await service.before_end(ctx, Terminate(found.session.id, facts))
    return answer(stakes) if isinstance(stakes, Reply) else end_question(stakes, now)
