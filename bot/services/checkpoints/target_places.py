"""Choose which files of a place count as checkpoints of its run, while a new machine has not continued it yet."""

from __future__ import annotations

from bot.outbound.checkpoint_stores import StoredFile
from bot.rules.checkpoints.resume import address
from bot.rules.checkpoints.verification import StoreLocation
from bot.rules.migrations.resume import TargetPlace
from bot.services.runtime.context import Context
from bot.services.runtime.ports import CheckpointStores
from ledger.queries.runs.migrations import StoredTargetPlace, target_places


async def counted_files(ctx: Context, stores: CheckpointStores, where: StoreLocation) -> tuple[StoredFile, ...]:
    """Return the files of a place that count as checkpoints of its run, the newest first.

    Raises `StoreUnreachable` when the store could not be read.
    """
    hiding = await _hiding_places(ctx, where)
    files = await stores.files(where.scheme, where.root, where.path)
    return tuple(file for file in files if not _is_hidden(file, where, hiding))


async def newest_counted(ctx: Context, stores: CheckpointStores, where: StoreLocation) -> StoredFile | None:
    """Return the newest file of a place that counts; None where there is none. Raises `StoreUnreachable`."""
    hiding = await _hiding_places(ctx, where)
    newest = await stores.newest(where.scheme, where.root, where.path)
    if newest is None or not _is_hidden(newest, where, hiding):
        return newest
    files = await stores.files(where.scheme, where.root, where.path)
    return next((file for file in files if not _is_hidden(file, where, hiding)), None)


async def _hiding_places(ctx: Context, where: StoreLocation) -> list[TargetPlace]:
    """Return the places of targets below this one whose files don't continue the run, as far as anybody knows."""
    if where.scheme == "https":
        return []
    async with ctx.db.read() as tx:
        rows = await target_places(tx, address(where, where.path))
    return [place for place in map(_target_place, rows) if not place.counts]


def _target_place(row: StoredTargetPlace) -> TargetPlace:
    began_at = [report["lowest_step"] for report in row.reports if report.get("lowest_step") is not None]
    return TargetPlace(row.place, row.step, row.saved_step, began_at, row.started_at, row.ended_at)


def _is_hidden(file: StoredFile, where: StoreLocation, hiding: list[TargetPlace]) -> bool:
    return any(place.hides(address(where, file.path), file.at) for place in hiding)
