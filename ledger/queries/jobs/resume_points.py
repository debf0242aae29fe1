"""Find replacements whose resume point is not known yet, and read those that are."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, NamedTuple

from sqlalchemy import and_, select
from sqlalchemy.ext.asyncio import AsyncSession

from ledger.engine.db import insert_for
from ledger.kernel.grant import GrantKind
from ledger.kernel.states import OPEN_INSTANCE
from ledger.kernel.stored_job import StoredJob
from ledger.models import GrantRow, Instance, Node, Request, ResumePoint


@dataclass(frozen=True, slots=True)
class Unresumed:
    """A replacement without a resume point, and its job. Only a job that keeps checkpoints ever gets one."""

    instance: Instance
    job: StoredJob


async def unresumed(tx: AsyncSession) -> list[Unresumed]:
    """Return the open replacements that have no resume point, the oldest first."""
    rows: Any = await tx.execute(
        select(Instance, Request.job)
        .join(GrantRow, GrantRow.id == Instance.grant_id)
        .join(Request, Request.id == Instance.request_id)
        .outerjoin(ResumePoint, ResumePoint.instance_id == Instance.id)
        .where(Instance.state.in_(OPEN_INSTANCE), GrantRow.kind == GrantKind.REPLACE)
        .where(ResumePoint.instance_id.is_(None))
        .order_by(Instance.id)
    )
    return [Unresumed(row, job) for row, job in rows]


async def resume_states(tx: AsyncSession, instance_ids: Collection[str]) -> dict[str, ResumePoint | None]:
    """Return the resume point of each of these that is a replacement; None where it is not known yet."""
    rows: Any = await tx.execute(
        select(Instance.id, ResumePoint)
        .join(GrantRow, and_(GrantRow.id == Instance.grant_id, GrantRow.kind == GrantKind.REPLACE))
        .outerjoin(ResumePoint, ResumePoint.instance_id == Instance.id)
        .where(Instance.id.in_(list(instance_ids)))
    )
    return dict(rows.all())


async def resume_sentences(tx: AsyncSession, instance_ids: Collection[str]) -> dict[str, str]:
    """Return by replacement what people read about the checkpoint that it continues from."""
    rows: Any = await tx.execute(
        select(ResumePoint.instance_id, ResumePoint.said).where(ResumePoint.instance_id.in_(list(instance_ids)))
    )
    return dict(rows.all())


async def add_resume_point(tx: AsyncSession, **values: Any) -> bool:
    """Store a resume point. False when another replica has stored it already."""
    insert = insert_for(tx, ResumePoint).values(**values).on_conflict_do_nothing(index_elements=["instance_id"])
    return (await tx.execute(insert.returning(ResumePoint.instance_id))).first() is not None


class PlaceBeside(NamedTuple):
    """Name a replacement that may save at a place of its own: its request, its number, its save, and where it began."""

    request_id: str
    n: int
    saved_step: int | None
    lowest_step: int | None


async def places_beside(tx: AsyncSession, below: str) -> list[PlaceBeside]:
    """Return the replacements whose runs continue from a save below this place."""
    is_below = ResumePoint.path.startswith(f"{below.rstrip('/')}/", autoescape=True)
    query = (
        select(Instance.request_id, Instance.n, ResumePoint.step, Node.report)
        .join(Instance, Instance.id == ResumePoint.instance_id)
        .outerjoin(Node, Node.instance_id == Instance.id)
        .where(is_below)
        .order_by(Instance.id)
    )
    rows: Any = await tx.execute(query)
    return [PlaceBeside(key, n, step, (report or {}).get("lowest_step")) for key, n, step, report in rows]
