"""Say when an instance last worked that failed or left while its cloud was not listed for long.

Its cloud may have stopped billing at any time since. Where no bill tells when, that time makes its cost a range.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from bot.services.billing.metering import BLIND_SWEEPS
from bot.services.billing.true_up import UNSEEN_SWEEPS
from bot.services.instances.health import last_heartbeat_at
from bot.services.runtime.context import Context
from ledger.kernel.states import InstanceState
from ledger.models import Instance
from providers.contract import InstanceStatus, ObservedInstance


async def since_trouble(
    ctx: Context, row: Instance, item: ObservedInstance, changes: Mapping[str, Any], at: datetime
) -> dict[str, Any]:
    """Return the column that follows from a listing at time `at` and its `changes`: when a failed instance last worked.

    It is empty again when an instance that was not ordered to end works again.
    """
    listed_at = ctx.listed_at.get(row.cloud)
    if row.state is not InstanceState.TERMINATING:
        if changes.get("trouble_at") is not None:
            return await _last_worked(ctx, row, at, listed_at)
        works = changes.get("trouble_at", row.trouble_at) is None
        return {"worked_at": None} if works and row.worked_at is not None else {}
    # The termination explains that an instance is offline, and never an error.
    offline = item.status is InstanceStatus.OFFLINE and row.terminate_called_at is None
    if not offline and item.status is not InstanceStatus.ERROR:
        return {}
    if row.terminate_acked_at is not None or _is_known(row):
        return {}
    # Its failure is stored nowhere else, so it is stored even if its cloud was listed just before.
    return await _last_worked(ctx, row, at, listed_at) or {"worked_at": listed_at}


async def since_absence(ctx: Context, row: Instance, at: datetime) -> dict[str, Any]:
    """Return the same for a listing at time `at` without an instance. Only the first one counts."""
    if row.absent_at or row.terminate_called_at is not None or _is_known(row):
        return {}
    return await _last_worked(ctx, row, at, ctx.listed_at.get(row.cloud), UNSEEN_SWEEPS)


async def since_order(
    ctx: Context, row: Instance, listed_at: datetime | None, *, was_there: bool | None
) -> dict[str, Any]:
    """Return the same for an instance that its cloud accepts to end, and that was not listed just before the order.

    `listed_at`: when this process listed its cloud last before it called. A listing without it does not count.
    """
    if not was_there or row.terminate_asked_at is None or _is_known(row):
        return {}
    shown_at = None if row.absent_at else listed_at
    return await _last_worked(ctx, row, row.terminate_asked_at, shown_at, UNSEEN_SWEEPS)


def _is_known(row: Instance) -> bool:
    return row.trouble_at is not None or row.worked_at is not None


async def _last_worked(
    ctx: Context, row: Instance, at: datetime, listed_at: datetime | None, sweeps: int = BLIND_SWEEPS
) -> dict[str, Any]:
    """Return when it last worked, as far as this process knows, which listed its cloud at `listed_at`.

    Nothing if that was at most so many passes before `at`.
    """
    if listed_at is not None and at - listed_at <= timedelta(seconds=sweeps * ctx.timing.sweep_s):
        return {}
    shown = (listed_at, await last_heartbeat_at(ctx, row), row.reachable_at or row.live_at or row.sent_at)
    return {"worked_at": min(max(one for one in shown if one is not None), at)}
