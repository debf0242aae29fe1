"""Say when an instance last worked that failed or left while its cloud was not listed for long.

Its cloud may have stopped billing at any time since. Where no bill tells when, that time makes its cost a range.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from bot.rules.billing.end_times import BLIND_SWEEPS, UNSEEN_SWEEPS
from bot.services.instances.health import last_heartbeat_at
from bot.services.runtime.context import Context
from ledger.kernel.states import InstanceState
from ledger.models import Instance
from providers.contract import InstanceStatus, ObservedInstance


async def worked_by_listing(
    ctx: Context, row: Instance, item: ObservedInstance | None, changes: Mapping[str, Any], at: datetime
) -> dict[str, Any]:
    """Return when an instance last worked that a listing at time `at` lacks or shows as failed, as a column.

    It is empty again when an instance that was not ordered to end works again. The first sign of trouble counts.
    """
    is_ending, listed_at = row.state is InstanceState.TERMINATING, ctx.listed_at.get(row.cloud)
    if item is not None and not is_ending and changes.get("trouble_at", row.trouble_at) is None:
        return {"worked_at": None} if row.worked_at is not None else {}
    if item is None:
        is_explained = bool(row.absent_at) or row.terminate_called_at is not None
    else:
        # The termination explains that an instance is offline, and never an error.
        is_offline = item.status is InstanceStatus.OFFLINE and row.terminate_called_at is None
        is_failed = row.terminate_acked_at is None and (is_offline or item.status is InstanceStatus.ERROR)
        is_explained = is_ending and not is_failed
    if is_explained:
        return {}
    worked = await last_worked(ctx, row, at, listed_at, UNSEEN_SWEEPS if item is None else BLIND_SWEEPS)
    # The failure of one that is ending is stored nowhere else, even if its cloud was listed just before.
    return worked or ({"worked_at": listed_at} if is_ending and item is not None and not _is_known(row) else {})


def _is_known(row: Instance) -> bool:
    return row.trouble_at is not None or row.worked_at is not None


async def last_worked(
    ctx: Context, row: Instance, at: datetime, listed_at: datetime | None, sweeps: int = UNSEEN_SWEEPS
) -> dict[str, Any]:
    """Return when an instance last worked, as far as this process knows, which listed it at `listed_at`, as a column.

    Nothing where that, or its trouble, is stored, or where it was listed at most so many passes before `at`.
    """
    is_recent = listed_at is not None and at - listed_at <= timedelta(seconds=sweeps * ctx.timing.sweep_s)
    if is_recent or _is_known(row):
        return {}
    shown = (listed_at, await last_heartbeat_at(ctx, row), row.reachable_at or row.live_at or row.sent_at)
    return {"worked_at": min(max(one for one in shown if one is not None), at)}
