"""Answer `/gpu logs ID`: read the log on the machine and show its end to the one who asked."""

from __future__ import annotations

from bot.rules.grammar.parser import ParsedCommand
from bot.rules.nodes.machine_logs import LogSource
from bot.rules.values.reply_code import ReplyCode
from bot.services.nodes import machine_logs
from bot.services.runtime.commands import Reply
from bot.slack.blocks import machine_log
from bot.slack.blocks.elements import Message
from bot.slack.blocks.private_answer import answer
from bot.slack.handler_context import HandlerContext, HandlerJob
from ledger.kernel.ids import short_id
from ledger.queries.views import resolve


async def logs(handler: HandlerContext, job: HandlerJob, parsed: ParsedCommand) -> Message:
    """Show the log that the words name."""
    try:
        async with handler.ctx.db.read() as tx:
            request, session = await resolve(tx, parsed.target)
    except LookupError as error:
        return answer(Reply(False, ReplyCode.UNKNOWN_ID, f"{error}."))
    if session is None:
        sentence = f"Request {short_id(request.id)} has no session yet."
        return answer(Reply(False, ReplyCode.NO_SESSION, sentence))
    source = LogSource(parsed.action)
    reply = await machine_logs.read(handler.ctx, session.id, job.message.actor, source, machine_log.LINES)
    return machine_log.log(reply, session.short_id)
