"""Say how the people of a session log in to its machine, or why nobody can at the moment."""

from __future__ import annotations

from bot.rules.values.command_text import cli_command
from bot.rules.values.reply_code import ReplyCode
from bot.services.access import authorization
from bot.services.nodes.connection import is_plain
from bot.services.runtime.commands import Reply, refuse
from bot.services.runtime.context import Context
from ledger.kernel.actor import Actor
from ledger.kernel.states import InstanceState, SessionState
from ledger.models import Instance, Session
from ledger.queries.views import session_view

#: Why nobody can log in to an instance in this state any more.
_OVER = {InstanceState.TERMINATING: "is ending", InstanceState.GONE: "has ended"}


async def login(ctx: Context, session_id: str, actor: Actor) -> Reply:
    """Return the view of a session to log in to, in `data`, for the session's people; or refuse and say what to do.

    A machine without a known host key is refused: `ssh` would have to trust whatever answers.
    """
    async with ctx.db.read() as tx:
        view = await session_view(tx, session_id)
        names = await authorization.mine(tx, ctx.policy, actor)
    session, row = view.session, view.instance
    data = {"session_id": session.id}
    if not any(person in names for person in view.people):
        name = ctx.names.of(ctx.policy, session.owner)
        whose = f"Session {session.short_id} is {name or 'somebody else'}'s."
        sentence = f"{whose} Only its owner and who shares it can log in."
        return refuse(ReplyCode.NOT_YOURS, sentence, data)
    refusal = _not_now(ctx, session, row)
    return refusal or Reply(True, ReplyCode.LOGIN, "The machine can be logged in to.", data | {"view": view})


def _not_now(ctx: Context, session: Session, row: Instance | None) -> Reply | None:
    short, data = session.short_id, {"session_id": session.id}
    over = session.state in (SessionState.TERMINATED, SessionState.FAILED)
    if over or (row is not None and row.state in _OVER):
        how = "has ended" if over or row is None else _OVER[row.state]
        return refuse(ReplyCode.ALREADY_ENDING, f"Session {short} {how}.", data)
    provider = ctx.providers.get(row.cloud) if row is not None else None
    if row is not None and provider is not None and not provider.capabilities.ssh:
        sentence = f"Session {short} runs your command at {row.cloud}, which has no SSH."
        return refuse(ReplyCode.NO_SSH, sentence, data)
    if session.state is SessionState.STOPPED:
        start = cli_command(f"start {short}")
        return refuse(ReplyCode.NOT_READY, f"The machine of session {short} is stopped. To start it: {start}.", data)
    if row is None or row.reachable_at is None or not is_plain(row.ssh_host or ""):
        sentence = f"Session {short} isn't ready yet. To see how far it is: {cli_command(f'session {short}')}."
        return refuse(ReplyCode.NOT_READY, sentence, data)
    if row.host_key is None:
        sentence = (
            f"The SSH host key of session {short} isn't known yet, so a login isn't safe. "
            "GPU Shopper reads it every 10 minutes. Try again then."
        )
        return refuse(ReplyCode.NO_HOST_KEY, sentence, data)
    return None
