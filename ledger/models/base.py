"""Share among all tables the naming of constraints, and the columns of a row that a job claims."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import MetaData
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from ledger.kernel.columns import SafeString, UtcDateTime

NAMES = {
    "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "fk": "fk_%(table_name)s_%(column_0_name)s_%(referred_table_name)s",
    "pk": "pk_%(table_name)s",
}


class Base(DeclarativeBase):
    metadata = MetaData(naming_convention=NAMES)


class Claimable:
    """Add the columns of a row that a job claims when it is due."""

    due_at: Mapped[datetime | None] = mapped_column(UtcDateTime, index=True)
    claim_token: Mapped[str | None] = mapped_column(SafeString(32))
    claim_until: Mapped[datetime | None] = mapped_column(UtcDateTime)
