"""Answer `/gpu migrate`: ask for another machine that a run moves to."""

from __future__ import annotations

from bot.rules.grammar.parser import ParsedCommand
from bot.services.relocation import start
from bot.slack.blocks.elements import Message
from bot.slack.blocks.private_answer import answer
from bot.slack.handler_context import HandlerContext, HandlerJob


async def migrate(handler: HandlerContext, job: HandlerJob, parsed: ParsedCommand) -> Message:
    """Ask for the move; its progress is on the cards of both sessions."""
    facts = await handler.facts(job)
    return answer(await start.migrate(handler.ctx, start.Migrate(job.key, parsed.target, facts, parsed.text)))
