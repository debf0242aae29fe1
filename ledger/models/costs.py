"""Store costs summed up by the hour, day and month, the hash chain of the entries, and other tools' costs."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal

from sqlalchemy import BigInteger, ForeignKey, Index, Integer, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from ledger.kernel.columns import EnumText, MicroUsd, SafeString, SafeText, UtcDateTime
from ledger.kernel.states import RollupTier
from ledger.models.base import Base


class Facet(Base):
    """Store one combination of what costs are grouped by. Empty text where something does not apply or is unknown."""

    __tablename__ = "facets"

    id: Mapped[int] = mapped_column(Integer, primary_key=True, autoincrement=True)
    owner: Mapped[str] = mapped_column(SafeString(96))
    cloud: Mapped[str] = mapped_column(SafeString(48))
    gpu: Mapped[str] = mapped_column(SafeString(48))
    label: Mapped[str] = mapped_column(SafeString(48))
    #: The other tool that the cost belongs to; empty for our own.
    tool: Mapped[str] = mapped_column(SafeString(48))

    __table_args__ = (UniqueConstraint("owner", "cloud", "gpu", "label", "tool"),)


class Rollup(Base):
    """Sum up one facet's costs in one hour, day or month (UTC); negative where a correction gave money back."""

    __tablename__ = "rollup"

    tier: Mapped[RollupTier] = mapped_column(EnumText(RollupTier), primary_key=True)
    begins: Mapped[datetime] = mapped_column(UtcDateTime, primary_key=True)
    facet_id: Mapped[int] = mapped_column(ForeignKey("facets.id"), primary_key=True)
    amount_usd: Mapped[Decimal] = mapped_column(MicroUsd)

    __table_args__ = (
        Index("ix_rollup_facet_id_tier_begins", "facet_id", "tier", "begins"),
        {"sqlite_with_rowid": False},
    )


class Unrolled(Base):
    """Mark an entry that is not in the rollup yet. A trigger adds it with the entry, whichever release wrote that."""

    __tablename__ = "unrolled"

    entry_id: Mapped[str] = mapped_column(ForeignKey("ledger_entries.id"), primary_key=True)
    #: The entry's own time, so that a query by time begins at the few rows here.
    at: Mapped[datetime] = mapped_column(UtcDateTime)


class OpenSpend(Base):
    """Sum up what approvals may still spend, by owner and project, as of each session's last settling."""

    __tablename__ = "open_spend"

    owner: Mapped[str] = mapped_column(SafeString(96), primary_key=True)
    #: Empty text where the session has none.
    label: Mapped[str] = mapped_column(SafeString(48), primary_key=True)
    usd: Mapped[Decimal] = mapped_column(MicroUsd)
    rate_usd_h: Mapped[Decimal] = mapped_column(MicroUsd)


class SessionOpenSpend(Base):
    """Store what one live session added to `OpenSpend` when it was settled last."""

    __tablename__ = "session_open_spend"

    session_id: Mapped[str] = mapped_column(ForeignKey("sessions.id"), primary_key=True)
    owner: Mapped[str] = mapped_column(SafeString(96))
    label: Mapped[str] = mapped_column(SafeString(48))
    usd: Mapped[Decimal] = mapped_column(MicroUsd)
    rate_usd_h: Mapped[Decimal] = mapped_column(MicroUsd)


class UnsettledSpend(Base):
    """Mark a session whose open spend may have changed. A trigger adds it with the change, whichever release made that.

    A session may be marked several times: a mark that is unique would make one writer wait for another.
    """

    __tablename__ = "unsettled_spend"

    id: Mapped[int] = mapped_column(BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=True)
    session_id: Mapped[str] = mapped_column(SafeString(24))


class EntryHash(Base):
    """Store one link of the chain of all entries: a hash over an entry and the hash before it."""

    __tablename__ = "entry_hashes"

    number: Mapped[int] = mapped_column(Integer, primary_key=True, autoincrement=False)
    entry_id: Mapped[str] = mapped_column(ForeignKey("ledger_entries.id"), unique=True)
    hash: Mapped[str] = mapped_column(SafeString(64))


class ExternalCost(Base):
    """Store what another tool says it spent, beside the entry that books it."""

    __tablename__ = "external_costs"

    entry_id: Mapped[str] = mapped_column(ForeignKey("ledger_entries.id"), primary_key=True)
    #: The tool's own id of it, or one made of its content: the same cost arrives once, whether by file, API or command.
    key: Mapped[str] = mapped_column(SafeString(96), unique=True)
    skill: Mapped[str] = mapped_column(SafeString(48))
    provider: Mapped[str] = mapped_column(SafeString(48))
    action: Mapped[str] = mapped_column(SafeString(96))
    #: Dollars, negative for a refund.
    amount_usd: Mapped[Decimal] = mapped_column(MicroUsd)
    at: Mapped[datetime] = mapped_column(UtcDateTime)
    notes: Mapped[str] = mapped_column(SafeText, default="")
    #: Who appended it.
    owner: Mapped[str] = mapped_column(SafeString(96))
    added_at: Mapped[datetime] = mapped_column(UtcDateTime)


class BillLine(Base):
    """Store one line of a cloud's own bill, as it was read last: late lines are added, and open ones grow."""

    __tablename__ = "bill_lines"

    cloud: Mapped[str] = mapped_column(SafeString(24), primary_key=True)
    account: Mapped[str] = mapped_column(SafeString(24), primary_key=True)
    line_id: Mapped[str] = mapped_column(SafeString(160), primary_key=True)
    ref: Mapped[str] = mapped_column(SafeString(256))
    component: Mapped[str] = mapped_column(SafeString(24))
    amount_usd: Mapped[Decimal] = mapped_column(MicroUsd)
    begins: Mapped[datetime] = mapped_column(UtcDateTime)
    ends: Mapped[datetime] = mapped_column(UtcDateTime)
    read_at: Mapped[datetime] = mapped_column(UtcDateTime)

    __table_args__ = (Index("ix_bill_lines_cloud_account_ref", "cloud", "account", "ref"),)
