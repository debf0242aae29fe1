"""Store graces: machines that stopped working and are kept, because waiting is cheap and something would be lost."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal

from sqlalchemy import Boolean, ForeignKey, Index, text
from sqlalchemy.orm import Mapped, mapped_column

from ledger.kernel.columns import EnumText, MicroUsd, SafeString, UtcDateTime
from ledger.kernel.steps.grace import AtRisk, Cause, GraceChoice, GraceOutcome
from ledger.models.base import Base

_OPEN = text("ended_at IS NULL")


class GraceRow(Base):
    """Store one grace. What it costs is known from its rate, which a poll of the cloud may change."""

    __tablename__ = "graces"

    id: Mapped[str] = mapped_column(SafeString(24), primary_key=True)
    instance_id: Mapped[str] = mapped_column(ForeignKey("instances.id"))
    session_id: Mapped[str] = mapped_column(ForeignKey("sessions.id"), index=True)
    #: The reason with which its machine ends if it ends (`EndReason`), and whose cause that is.
    code: Mapped[str] = mapped_column(SafeString(32))
    cause: Mapped[Cause] = mapped_column(EnumText(Cause, 16))
    #: The code of what is wrong with the account, where that is the cause.
    account_code: Mapped[str] = mapped_column(SafeString(32), default="")
    at_risk: Mapped[AtRisk] = mapped_column(EnumText(AtRisk, 16))
    since: Mapped[datetime] = mapped_column(UtcDateTime)
    #: When its machine ends unless it works again or somebody acts; at the latest its approved end.
    until: Mapped[datetime] = mapped_column(UtcDateTime)
    #: Dollars per hour while it waits, since when, and what it had cost before that.
    usd_h: Mapped[Decimal] = mapped_column(MicroUsd)
    rated_at: Mapped[datetime] = mapped_column(UtcDateTime)
    spent_usd: Mapped[Decimal] = mapped_column(MicroUsd)
    #: The most that it may cost.
    limit_usd: Mapped[Decimal] = mapped_column(MicroUsd)
    choice: Mapped[GraceChoice | None] = mapped_column(EnumText(GraceChoice, 16))
    chosen_by: Mapped[str | None] = mapped_column(SafeString(96))
    #: Its session has a replacement beside it, so this machine only keeps its disk.
    replaced: Mapped[bool] = mapped_column(Boolean, default=False)
    ended_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    outcome: Mapped[GraceOutcome | None] = mapped_column(EnumText(GraceOutcome, 16))

    __table_args__ = (Index("uq_graces_open", "instance_id", unique=True, sqlite_where=_OPEN, postgresql_where=_OPEN),)
