"""Decide which ends wait in recovery, while an instance of ours waits for an operator, and explain it to people."""

from __future__ import annotations

from datetime import datetime, timedelta

from bot.rules.values.command_text import cli_command
from ledger.kernel.end_reason import APPROVED

#: How long held work waits before it is checked again.
HOLD = timedelta(seconds=30)


#: What every reply says while nobody has accepted an older ledger.
OLDER = (
    "Recovery mode is on, because the ledger is older than its records. Nothing is bought, and only people and "
    f"approved ends end a session. An operator checks the ledger with {cli_command('recover')}, and accepts it with "
    f"{cli_command('recover --accept')}."
)


def recovery_notice(unknown: int, *, is_older: bool = False) -> str:
    """Say why nothing is bought, and which commands end that; "" while recovery mode is off."""
    if not unknown:
        return OLDER if is_older else ""
    one = unknown == 1
    what = "1 instance has our label but belongs" if one else f"{unknown} instances have our label but belong"
    each = "it" if one else "each"
    return (
        f"Recovery mode is on: {what} to no session. Until then nothing is bought, and only people and approved ends "
        f"end a session. An operator adopts or condemns {each}: {cli_command('orphans list')}, then "
        f"{cli_command('adopt ID')} or {cli_command('orphans condemn ID')}."
    )


def waits_until(
    asked_at: datetime,
    session_end: str | None,
    deadline: datetime | None,
    began_at: datetime,
    now: datetime,
    patience: timedelta,
) -> datetime | None:
    """Return when to look again at an end that waits in a recovery; None when the recovery does not delay the end.

    `asked_at` is when it was ordered, `session_end` the code of the session's own end, None while only the instance is
    to end. `began_at` is when the instance that the ledger does not know was first seen.

    A person's order and an approved end are the session's own, so a recovery, which may last for days, never keeps an
    instance alive past them. What a poll alone concluded waits. So does, for `patience`, an approved end that lay
    before the recovery: a ledger that was restored from a copy may not know how it was extended, and people are being
    notified.
    """
    if asked_at < began_at:
        return None
    if session_end is None:
        return now + HOLD
    overdue = session_end in APPROVED and deadline is not None and deadline <= began_at
    return min(now + HOLD, began_at + patience) if overdue and now < began_at + patience else None
