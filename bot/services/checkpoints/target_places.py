"""Tell apart which files of a place count as checkpoints of its run while a new machine is still to prove itself."""

from __future__ import annotations

from bot.outbound.checkpoint_stores import StoredFile
from bot.rules.checkpoints.resume import address
from bot.rules.checkpoints.verification import StoreLocation
from bot.rules.migrations.resume import TargetPlace, is_below
from bot.services.runtime.context import Context
from bot.services.runtime.ports import CheckpointStores
from ledger.core import Tx
from ledger.queries.runs.migrations import target_places


async def uncounted_places(tx: Tx, where: StoreLocation) -> list[str]:
    """Return the places below this one whose files don't continue the run, as far as anybody knows."""
    if where.scheme == "https":
        return []
    rows = await target_places(tx, address(where, where.path))
    places = []
    for row in rows:
        steps = [report["lowest_step"] for report in row.reports if report.get("lowest_step") is not None]
        places.append(TargetPlace(row.place, row.step, row.saved_step, steps))
    return [target.place for target in places if not target.counts]


async def counted_files(ctx: Context, stores: CheckpointStores, where: StoreLocation) -> tuple[StoredFile, ...]:
    """Return the files of a place that count as checkpoints of its run, the newest first.

    Raises `StoreUnreachable` when the store could not be read.
    """
    async with ctx.db.read() as tx:
        uncounted = await uncounted_places(tx, where)
    files = await stores.files(where.scheme, where.root, where.path)
    return tuple(file for file in files if not is_below(address(where, file.path), uncounted))


async def newest_counted(ctx: Context, stores: CheckpointStores, where: StoreLocation) -> StoredFile | None:
    """Return the newest file of a place that counts; None where there is none. Raises `StoreUnreachable`."""
    async with ctx.db.read() as tx:
        uncounted = await uncounted_places(tx, where)
    if not uncounted:
        return await stores.newest(where.scheme, where.root, where.path)
    return next(iter(await counted_files(ctx, stores, where)), None)
