"""Process `/gpu key`: add, list and remove the public SSH keys of a person."""

from __future__ import annotations

from bot.rules.grammar.parser import ParsedCommand
from bot.services.access import ssh_keys
from bot.services.runtime.commands import AddKey
from bot.slack.blocks.elements import Message
from bot.slack.blocks.private_answer import answer
from bot.slack.handler_context import HandlerContext, HandlerJob


async def key(handler: HandlerContext, job: HandlerJob, parsed: ParsedCommand) -> Message | None:
    """Change or list the keys of the person who asks."""
    actor = job.message.actor
    if parsed.action == "add":
        reply = await ssh_keys.add(handler.ctx, AddKey(actor, parsed.text, job.key))
    elif parsed.action == "remove":
        reply = await ssh_keys.remove(handler.ctx, actor, parsed.text, job.key)
    else:
        reply = await ssh_keys.show(handler.ctx, actor)
    return answer(reply)
