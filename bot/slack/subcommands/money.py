"""Answer `/gpu budget` and `/gpu costs`."""

from __future__ import annotations

from bot.rules.approvals.decision import is_approver
from bot.rules.budgets.budget import CostView
from bot.rules.grammar.parser import ParsedCommand
from bot.services.billing import costs as billing_costs
from bot.services.billing import shared_ledger
from bot.services.budgets import enforcement
from bot.slack.blocks import money
from bot.slack.blocks.elements import Message
from bot.slack.handler_context import HandlerContext, HandlerJob


async def budget(handler: HandlerContext, job: HandlerJob, _parsed: ParsedCommand) -> Message:
    """Show the budgets that concern somebody; approvers see all of them."""
    facts = await handler.facts(job)
    everybody = facts.known and is_approver(handler.ctx.policy, facts)
    lines = await enforcement.overview(handler.ctx, job.message.actor)
    if everybody:  # Approvers see every budget that an approval may exceed.
        known = {(line.key, line.period) for line in lines}
        lines += [line for line in await enforcement.overview(handler.ctx) if (line.key, line.period) not in known]
    return money.budget(lines)


async def costs(handler: HandlerContext, job: HandlerJob, parsed: ParsedCommand) -> Message:
    """Show what was spent: everybody's costs to approvers, their own to others."""
    facts = await handler.facts(job)
    everybody = facts.known and is_approver(handler.ctx.policy, facts) and parsed.action != "mine"
    actor = None if everybody else job.message.actor
    if parsed.action == "summary":
        return money.summary(await shared_ledger.summary(handler.ctx, actor), everybody=everybody)
    view = CostView.MONTH if parsed.action in ("mine", "team") else CostView(parsed.action)
    found = await billing_costs.overview(handler.ctx, actor, view.period)
    return money.costs(found, everybody=everybody)
