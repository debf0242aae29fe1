"""Read the end of a log on a session's machine, or follow it, by GPU Shopper's own login there."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from bot.outbound.ssh_login import Followed
from bot.rules.nodes import machine_logs as rules
from bot.rules.nodes.machine_logs import LineReader, LogSource
from bot.rules.values.command_text import cli_command
from bot.rules.values.reply_code import ReplyCode
from bot.services.access import api_keys
from bot.services.access.api_keys import Principal
from bot.services.nodes.login import login
from bot.services.nodes.login_keys import ssh_login
from bot.services.runtime.commands import Reply, refuse
from bot.services.runtime.context import Context
from ledger.kernel.actor import Actor
from ledger.kernel.login_problem import LoginProblem

#: How long a machine may take to answer. Somebody waits for it.
READ_S = 15.0
#: A stream whose session ended, or whose caller may read no more, ends within this.
LOOK_EVERY = timedelta(seconds=5)
#: Between two pieces of at most 64 KiB, so that a flood of output is slowed down on the machine and not read here.
PAUSE_S = 0.1
#: A stream ends after this, and its caller connects again, so that no dead connection stays open.
LONGEST = timedelta(minutes=15)


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
        return _no_answer(short, data)
    if ran.status == rules.NO_LOG:
        sentence = f"The machine of session {short} has no {source.label} log yet."
        if source is LogSource.JOB:
            sentence += " It has one once the agent started a command: by `run=`, or through its API."
        return refuse(ReplyCode.NO_LOG, sentence, data)
    found = rules.shown(ran.output)
    sentence = f"The end of the {source.label} log of session {short}."
    return Reply(True, ReplyCode.LOG, sentence, data | {"lines": found})


def _no_answer(short: str, data: dict[str, Any]) -> Reply:
    again = cli_command(f"ssh {short}")
    sentence = f"The machine of session {short} did not answer over SSH. Try again, or log in: {again}."
    return refuse(ReplyCode.NO_LOG, sentence, data)


@dataclass
class LogStream:
    """A log that is followed: whose it is, for whom, since when, and the command that prints it."""

    ctx: Context
    who: Principal
    session_id: str
    began: datetime
    followed: Followed
    #: Why the stream ended; empty until it did.
    ended: str = ""
    _looked: datetime | None = None

    async def lines(self) -> AsyncIterator[tuple[str, ...]]:
        """Yield the lines as they come, and nothing now and then while none come; then `ended` says why."""
        reader = LineReader()
        try:
            while (piece := await self.followed.read(LOOK_EVERY.total_seconds())) is not None:
                yield reader.feed(piece)
                if ended := await self._over():
                    break
                if piece:
                    await self.ctx.clock.sleep(PAUSE_S)
            else:
                ended = "The connection to the machine ended."
            if rest := reader.rest():
                yield rest
            self.ended = ended
        finally:
            await self.followed.close()

    async def _over(self) -> str:
        """Return why this person may not read on; empty where they may."""
        now = self.ctx.clock.now()
        if now - (self._looked or self.began) < LOOK_EVERY:
            return ""
        self._looked = now
        if now - self.began >= LONGEST:
            return "A stream lasts 15 minutes. Start it again."
        if not await api_keys.works(self.ctx.db, self.who, now):
            return "The key works no longer."
        reply = await login(self.ctx, self.session_id, self.who.actor)
        return "" if reply.ok else reply.sentence


async def follow(ctx: Context, session_id: str, who: Principal, source: LogSource, lines: int) -> LogStream | Reply:
    """Begin to follow a log, for the people who may log in; or refuse and say why.

    A log that is not there yet is waited for.
    """
    reply = await login(ctx, session_id, who.actor)
    if not reply.ok:
        return reply
    view = reply.data["view"]
    command = rules.tail_command(source, lines, follow=True)
    followed = await ctx.reach.follow(ssh_login(ctx.labels, view.instance), command, timeout_s=READ_S)
    if isinstance(followed, LoginProblem):
        return _no_answer(view.session.short_id, {"session_id": session_id, "source": str(source)})
    return LogStream(ctx, who, session_id, ctx.clock.now(), followed)
