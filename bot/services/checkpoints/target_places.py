"""Choose which files of a place count as checkpoints of its run, while a new machine has not continued it yet."""

from __future__ import annotations

from bot.outbound.checkpoint_stores import StoredFile
from bot.rules.checkpoints.resume import address
from bot.rules.checkpoints.verification import StoreLocation
from bot.rules.relocation.resume import TargetPlace, beside_name, own_place
from bot.services.runtime.context import Context
from bot.services.runtime.ports import CheckpointStores
from ledger.kernel.ids import short_id
from ledger.kernel.steps.relocation_step import MigrationStep
from ledger.queries.jobs.resume_points import PlaceBeside, places_beside
from ledger.queries.runs.relocations import StoredTargetPlace, target_places


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
        beside = await places_beside(tx, address(where, where.path))
    places = [*map(_target_place, rows), *(_place_beside(where, row) for row in beside)]
    return [place for place in places if not place.counts]


def _place_beside(where: StoreLocation, row: PlaceBeside) -> TargetPlace:
    """Describe the place of a replacement beside: it counts unless its job reported that it began below its save."""
    name = beside_name(short_id(row.request_id), row.n)
    place = own_place(address(where, where.path), name) or ""
    is_below = row.lowest_step is not None and row.lowest_step < (row.saved_step or 0)
    step = MigrationStep.FAILED if is_below else MigrationStep.DONE
    return TargetPlace(place, step, row.saved_step, [row.lowest_step] if row.lowest_step is not None else [])


def _target_place(row: StoredTargetPlace) -> TargetPlace:
    began_at = [report["lowest_step"] for report in row.reports if report.get("lowest_step") is not None]
    return TargetPlace(row.place, row.step, row.saved_step, began_at, row.started_at, row.ended_at)


def _is_hidden(file: StoredFile, where: StoreLocation, hiding: list[TargetPlace]) -> bool:
    return any(place.hides(address(where, file.path), file.at) for place in hiding)
