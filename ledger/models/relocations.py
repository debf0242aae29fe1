"""Store migrations: moves of a run from one machine to another, each step of which is kept."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import BigInteger, Boolean, ForeignKey, Index, Integer, text
from sqlalchemy.orm import Mapped, mapped_column

from ledger.kernel.columns import EnumText, SafeString, SafeText, UtcDateTime
from ledger.kernel.steps.relocation_step import OVER, MigrationStep
from ledger.models.base import Base

_CLOSED = ", ".join(f"'{one}'" for one in sorted(OVER))
_OPEN = text(f"step NOT IN ({_CLOSED})")


class Migration(Base):
    """Store one migration. Its target is the session of its own request, which is approved like every other."""

    __tablename__ = "migrations"

    id: Mapped[str] = mapped_column(SafeString(24), primary_key=True)
    #: The request for the target.
    request_id: Mapped[str] = mapped_column(ForeignKey("requests.id"), unique=True)
    source_session_id: Mapped[str] = mapped_column(ForeignKey("sessions.id"), index=True)
    #: The request of that session, whose short id people read.
    source_request_id: Mapped[str] = mapped_column(ForeignKey("requests.id"))
    step: Mapped[MigrationStep] = mapped_column(EnumText(MigrationStep, 16))
    version: Mapped[int] = mapped_column(Integer, default=1)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
    #: When the step was reached, and when the next look is due; None: it is over.
    step_at: Mapped[datetime] = mapped_column(UtcDateTime)
    due_at: Mapped[datetime | None] = mapped_column(UtcDateTime, index=True)
    #: The checkpoint that was verified last: its place with its path, its step where one is known, and its size.
    saved_from: Mapped[str] = mapped_column(SafeText)
    saved_step: Mapped[int | None] = mapped_column(BigInteger)
    saved_bytes: Mapped[int] = mapped_column(BigInteger)
    saved_at: Mapped[datetime] = mapped_column(UtcDateTime)
    #: When the target was first allowed to start; from then on the source waits for the target's proved end.
    started_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    #: What the last look found missing, or why it failed, in one sentence.
    note: Mapped[str] = mapped_column(SafeText, default="")
    #: What somebody who continues the run has to know, as Markdown; empty until it is done.
    context: Mapped[str] = mapped_column(SafeText, default="")
    ended_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    #: Where the target saves, below the place of the run's checkpoints; None where its store has no folders.
    target_place: Mapped[str | None] = mapped_column(SafeText)
    #: From when the step's longest time counts, where its clock was stopped; None: from `step_at`.
    clock_from: Mapped[datetime | None] = mapped_column(UtcDateTime)
    #: When the target took over from a source that was lost or kept in grace; None: the source paused for it.
    taken_over_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    #: Nothing names the step of the save: `saved_step` is the one at which the job reported that it paused.
    is_step_inferred: Mapped[bool | None] = mapped_column(Boolean)

    __table_args__ = (
        Index("uq_migrations_open", "source_session_id", unique=True, sqlite_where=_OPEN, postgresql_where=_OPEN),
    )
