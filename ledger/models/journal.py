"""Store money, journal, inbox, outbox, SSH keys and marks."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import Any

from sqlalchemy import BigInteger, CheckConstraint, ForeignKey, Index, Integer, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from ledger.kernel.columns import EnumText, Json, MicroUsd, SafeString, SafeText, UtcDateTime
from ledger.kernel.entry_kind import EntryKind
from ledger.kernel.states import InboxState, NotificationKind, NotificationState
from ledger.models.base import Base, Claimable


class LedgerEntry(Base):
    """Store one balanced double entry: `amount_usd` > 0 moves from `credit` to `debit`. Append-only (by trigger)."""

    __tablename__ = "ledger_entries"

    id: Mapped[str] = mapped_column(SafeString(24), primary_key=True)
    #: The same fact booked twice has the same key, and the second is dropped.
    key: Mapped[str] = mapped_column(SafeString(128), unique=True)
    kind: Mapped[EntryKind] = mapped_column(EnumText(EntryKind, 16))
    debit: Mapped[str] = mapped_column(SafeString(96))
    credit: Mapped[str] = mapped_column(SafeString(96))
    amount_usd: Mapped[Decimal] = mapped_column(MicroUsd)
    at: Mapped[datetime] = mapped_column(UtcDateTime, index=True)
    session_id: Mapped[str | None] = mapped_column(SafeString(24), index=True)
    instance_id: Mapped[str | None] = mapped_column(SafeString(24), index=True)
    component: Mapped[str] = mapped_column(SafeString(24), default="")
    note: Mapped[str] = mapped_column(SafeText, default="")

    __table_args__ = (CheckConstraint("amount_usd > 0", name="ck_ledger_entries_amount_positive"),)


class Event(Base):
    """Record who moved what, from where to where, and why: one row of the journal. Append-only (by trigger)."""

    __tablename__ = "events"

    id: Mapped[str] = mapped_column(SafeString(24), primary_key=True)
    at: Mapped[datetime] = mapped_column(UtcDateTime)
    actor: Mapped[str] = mapped_column(SafeString(96))
    subject: Mapped[str] = mapped_column(SafeString(128))
    kind: Mapped[str] = mapped_column(SafeString(32))
    before: Mapped[str] = mapped_column(SafeString(24), default="")
    after: Mapped[str] = mapped_column(SafeString(24), default="")
    reason: Mapped[str] = mapped_column(SafeText, default="")
    data: Mapped[dict[str, Any]] = mapped_column(Json, default=dict)

    __table_args__ = (Index("ix_events_subject_at", "subject", "at"),)


class EventHash(Base):
    """Store one link of a subject's chain: a hash over an event and the hash before it."""

    __tablename__ = "event_hashes"

    event_id: Mapped[str] = mapped_column(ForeignKey("events.id"), primary_key=True)
    subject: Mapped[str] = mapped_column(SafeString(128))
    number: Mapped[int] = mapped_column(Integer)
    hash: Mapped[str] = mapped_column(SafeString(64))
    #: When the event happened.
    at: Mapped[datetime] = mapped_column(UtcDateTime, index=True)

    __table_args__ = (UniqueConstraint("subject", "number"),)


class EventOrder(Base):
    """Give an event its position in the one order that every reader follows: 1, 2, 3, … without gaps.

    Append-only (by trigger). A position is given after the event's commit, so a reader that has read up to a position
    has missed nothing below it.
    """

    __tablename__ = "event_order"

    position: Mapped[int] = mapped_column(Integer, primary_key=True, autoincrement=False)
    event_id: Mapped[str] = mapped_column(ForeignKey("events.id"), unique=True)
    #: When it was numbered; None for events that are older than the order itself.
    numbered_at: Mapped[datetime | None] = mapped_column(UtcDateTime)


class UnnumberedEvent(Base):
    """Mark an event that has no position yet. A trigger adds it with every event.

    No foreign key: its check would be paid in the transaction of every move, and only the trigger adds rows.
    """

    __tablename__ = "unnumbered_events"

    event_id: Mapped[str] = mapped_column(SafeString(24), primary_key=True)


class Notification(Claimable, Base):
    """Store one notification in one place: `version` is wanted, `sent_version` is shown. The table is the outbox."""

    __tablename__ = "notifications"

    id: Mapped[str] = mapped_column(SafeString(24), primary_key=True)
    kind: Mapped[NotificationKind] = mapped_column(EnumText(NotificationKind))
    subject: Mapped[str] = mapped_column(SafeString(128))
    #: A channel, a user for a DM, the reference of an owner outside Slack for a DM to the person behind them, or
    #: `channel/user` for a message that only this user sees.
    destination: Mapped[str] = mapped_column(SafeString(96))
    state: Mapped[NotificationState] = mapped_column(EnumText(NotificationState))
    version: Mapped[int] = mapped_column(Integer, default=1)
    sent_version: Mapped[int] = mapped_column(Integer, default=0)
    #: Text that exists nowhere else (a private answer); everything else is rendered from state.
    body: Mapped[dict[str, Any]] = mapped_column(Json, default=dict)
    channel: Mapped[str | None] = mapped_column(SafeString(64))
    ts: Mapped[str | None] = mapped_column(SafeString(32))
    tries: Mapped[int] = mapped_column(Integer, default=0)
    error: Mapped[str] = mapped_column(SafeText, default="")
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
    sent_at: Mapped[datetime | None] = mapped_column(UtcDateTime)

    __table_args__ = (UniqueConstraint("kind", "subject", "destination"),)


class Inbox(Claimable, Base):
    """Store one inbound message before it is acknowledged. A second copy is answered from `answer`."""

    __tablename__ = "inbox"

    key: Mapped[str] = mapped_column(SafeString(128), primary_key=True)
    kind: Mapped[str] = mapped_column(SafeString(32))
    body: Mapped[dict[str, Any]] = mapped_column(Json)
    answer: Mapped[dict[str, Any] | None] = mapped_column(Json)
    state: Mapped[InboxState] = mapped_column(EnumText(InboxState))
    version: Mapped[int] = mapped_column(Integer, default=1)
    tries: Mapped[int] = mapped_column(Integer, default=0)
    error: Mapped[str] = mapped_column(SafeText, default="")
    received_at: Mapped[datetime] = mapped_column(UtcDateTime)


class SshKey(Base):
    """Store one public key of a person, who may have several. A private key never gets here."""

    __tablename__ = "ssh_keys"

    owner: Mapped[str] = mapped_column(SafeString(96), primary_key=True)
    fingerprint: Mapped[str] = mapped_column(SafeString(96), primary_key=True)
    public_key: Mapped[str] = mapped_column(SafeText)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)


class Mark(Base):
    """Store a small fact of this deployment that outlives a process: its identity, the greatest wall time seen."""

    __tablename__ = "marks"

    name: Mapped[str] = mapped_column(SafeString(64), primary_key=True)
    value: Mapped[str] = mapped_column(SafeText)
    at: Mapped[datetime] = mapped_column(UtcDateTime)


class TurnRow(Base):
    """Store when a group of calls to one account at one cloud is free again, had each turn lasted its whole interval.

    Microseconds since 1970 in UTC, because one statement on both databases must calculate with them. `written_at_us` is
    the writer's time: what is left of a turn can only become less from then on.
    """

    __tablename__ = "turns"

    name: Mapped[str] = mapped_column(SafeString(96), primary_key=True)
    free_at_us: Mapped[int] = mapped_column(BigInteger)
    written_at_us: Mapped[int] = mapped_column(BigInteger, server_default="0")
