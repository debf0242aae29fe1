"""Say whether a service works on this ledger."""

from __future__ import annotations

from datetime import timedelta

from bot.rules.values.command_text import cli_command
from bot.services.runtime.context import Context
from ledger.kernel.ids import short_id
from ledger.queries.nodes import listened_at, note_listening

#: Seconds between two checks of the agents.
LOOK_S = 15.0
LISTENING = "nodes/listening"

#: After so long without a check, no service runs.
AWAY = timedelta(seconds=4 * LOOK_S)


async def count_as_listened(ctx: Context) -> None:
    """Count the time that a practice clock jumped over as time in which check-ins were received.

    Its agents report at every stop of the clock, so one that was silent at each of them was silent all the time.
    """
    async with ctx.db.write() as tx:
        await note_listening(tx, LISTENING, ctx.clock.now())


async def nobody_acts(ctx: Context, request_id: str) -> str:
    """Return the sentence that warns that no service works on this ledger; "" while one does."""
    async with ctx.db.read() as tx:
        seen_at = await listened_at(tx, LISTENING)
    if seen_at is not None and ctx.clock.now() - seen_at < AWAY:
        return ""
    return (
        f"No service is running, so nothing happens until {cli_command('serve')} runs. "
        f"To see its state: {cli_command(f'request {short_id(request_id)}')}"
    )
