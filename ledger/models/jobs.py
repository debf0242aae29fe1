"""Store who runs a queue's commands, their results, and the checkpoints from which replacements continue."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal

from sqlalchemy import BigInteger, CheckConstraint, ForeignKey, Integer
from sqlalchemy.orm import Mapped, mapped_column

from ledger.kernel.columns import MicroUsd, SafeString, SafeText, UtcDateTime
from ledger.models.base import Base


class CommandResult(Base):
    """Store how one command of a queue ended. Triggers refuse every change of it."""

    __tablename__ = "command_results"

    session_id: Mapped[str] = mapped_column(ForeignKey("sessions.id"), primary_key=True)
    #: The place of the command in the job's queue, from 1 on.
    number: Mapped[int] = mapped_column(Integer, primary_key=True, autoincrement=False)
    instance_id: Mapped[str] = mapped_column(ForeignKey("instances.id"), index=True)
    gpu: Mapped[int] = mapped_column(Integer)
    #: As a shell has it; None where nobody saw its end.
    exit_code: Mapped[int | None] = mapped_column(Integer)
    attempts: Mapped[int] = mapped_column(Integer)
    #: On the machine's clock, cut to what can be true.
    started_at: Mapped[datetime] = mapped_column(UtcDateTime)
    ended_at: Mapped[datetime] = mapped_column(UtcDateTime)
    log_tail: Mapped[str] = mapped_column(SafeText)
    recorded_at: Mapped[datetime] = mapped_column(UtcDateTime)

    __table_args__ = (
        CheckConstraint("number > 0", name="ck_command_results_number_positive"),
        CheckConstraint("ended_at >= started_at", name="ck_command_results_ended_after_start"),
    )


class CommandClaim(Base):
    """Store to which machine a command of a shared queue was dealt. Triggers refuse every change of it.

    It is dealt once in each `round`, and again only when the machine of the round before is proved gone.
    """

    __tablename__ = "command_claims"

    session_id: Mapped[str] = mapped_column(ForeignKey("sessions.id"), primary_key=True)
    number: Mapped[int] = mapped_column(Integer, primary_key=True, autoincrement=False)
    round: Mapped[int] = mapped_column(Integer, primary_key=True, autoincrement=False)
    instance_id: Mapped[str] = mapped_column(ForeignKey("instances.id"), index=True)
    dealt_at: Mapped[datetime] = mapped_column(UtcDateTime)

    __table_args__ = (CheckConstraint("number > 0 AND round >= 0", name="ck_command_claims_counted"),)


class ResumePoint(Base):
    """Store from which checkpoint a replacement continues. Triggers refuse every change of it."""

    __tablename__ = "resume_points"

    #: The replacement, and the machine of its session that was lost before it.
    instance_id: Mapped[str] = mapped_column(ForeignKey("instances.id"), primary_key=True)
    session_id: Mapped[str] = mapped_column(ForeignKey("sessions.id"), index=True)
    lost_instance_id: Mapped[str] = mapped_column(SafeString(24))
    #: Where the checkpoint lies, as the job reads it; empty: the work begins anew.
    path: Mapped[str] = mapped_column(SafeText)
    step: Mapped[int | None] = mapped_column(BigInteger)
    size_bytes: Mapped[int | None] = mapped_column(BigInteger)
    saved_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    lost_at: Mapped[datetime] = mapped_column(UtcDateTime)
    #: The work that is done again: seconds, and dollars at the price of the machine that was lost.
    lost_s: Mapped[int] = mapped_column(Integer)
    lost_usd: Mapped[Decimal] = mapped_column(MicroUsd)
    #: The sentence people read about it.
    said: Mapped[str] = mapped_column(SafeText)
    found_at: Mapped[datetime] = mapped_column(UtcDateTime)

    __table_args__ = (CheckConstraint("lost_s >= 0", name="ck_resume_points_lost_not_negative"),)
