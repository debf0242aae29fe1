"""Read the end of a log on a session's machine, by GPU Shopper's own login there."""

from __future__ import annotations

from bot.rules.nodes import machine_logs as rules
from bot.rules.nodes.machine_logs import LogSource
from bot.rules.values.command_text import cli_command
from bot.rules.values.reply_code import ReplyCode
from bot.services.nodes.login import login
from bot.services.nodes.login_keys import ssh_login
from bot.services.runtime.commands import Reply, refuse
from bot.services.runtime.context import Context
from ledger.kernel.actor import Actor

#: How long a machine may take to answer. Somebody waits for it.
READ_S = 15.0


async def read(ctx: Context, session_id: str, actor: Actor, source: LogSource, lines: int) -> Reply:
    """Return the last lines of a log in `data["lines"]`, for the people who may log in; or refuse and say why."""
    reply = await login(ctx, session_id, actor)
    if not reply.ok:
        return reply
    view = reply.data["view"]
    row, short, data = view.instance, view.session.short_id, {"session_id": session_id, "source": str(source)}
    at = ssh_login(ctx.labels, row)
    ran = await ctx.reach.run(at, rules.tail_command(source, lines), timeout_s=READ_S)
    if ran.problem is not None:
        again = cli_command(f"ssh {short}")
        sentence = f"The machine of session {short} did not answer over SSH. Try again, or log in: {again}."
        return refuse(ReplyCode.NO_LOG, sentence, data)
    if ran.status == rules.NO_LOG:
        sentence = f"The machine of session {short} has no {source.label} log yet."
        if source is LogSource.JOB:
            sentence += " It has one once the agent started a command: by `run=`, or through its API."
        return refuse(ReplyCode.NO_LOG, sentence, data)
    found = rules.shown(ran.output)
    sentence = f"The end of the {source.label} log of session {short}."
    return Reply(True, ReplyCode.LOG, sentence, data | {"lines": found})
