"""Store the keys on machines, what people bring to their sessions, offers of sessions, and secrets of jobs."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import Boolean, ForeignKey, Index, text
from sqlalchemy.orm import Mapped, mapped_column

from ledger.kernel.columns import EnumText, SafeString, SafeText, UtcDateTime
from ledger.kernel.people.credential_kind import CredentialKind
from ledger.kernel.people.key_problem import KeyProblem
from ledger.kernel.people.transfer_state import TransferState
from ledger.models.base import Base


class MachineKey(Base):
    """Store that a person's public key belongs on a machine, or no longer, and whether the machine has that already."""

    __tablename__ = "machine_keys"

    instance_id: Mapped[str] = mapped_column(ForeignKey("instances.id"), primary_key=True)
    fingerprint: Mapped[str] = mapped_column(SafeString(96), primary_key=True)
    #: Kind and base64. A copy: the person may remove the key, and then it has to be found on the machine.
    public_key: Mapped[str] = mapped_column(SafeText)
    #: The reference of the person whose key it is.
    person: Mapped[str] = mapped_column(SafeString(96))
    #: Whether it belongs on the machine; false: it has to be removed there.
    wanted: Mapped[bool] = mapped_column(Boolean)
    #: Whether the create call brought it, so that it is on the machine again after its disk was wiped.
    at_launch: Mapped[bool] = mapped_column(Boolean)
    #: Since when `wanted` says so, and when the machine was last seen with it; None: not yet.
    since: Mapped[datetime] = mapped_column(UtcDateTime)
    placed_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    #: Why the last attempt failed, and when the next one is due.
    problem: Mapped[KeyProblem | None] = mapped_column(EnumText(KeyProblem))
    due_at: Mapped[datetime] = mapped_column(UtcDateTime)


class SessionCredential(Base):
    """Store a key, or the name of a secret, that a person brought to the machines of a request and of its sessions."""

    __tablename__ = "session_credentials"

    request_id: Mapped[str] = mapped_column(ForeignKey("requests.id"), primary_key=True)
    kind: Mapped[CredentialKind] = mapped_column(EnumText(CredentialKind), primary_key=True)
    #: The fingerprint of the key, or the name of the secret.
    name: Mapped[str] = mapped_column(SafeString(96), primary_key=True)
    public_key: Mapped[str | None] = mapped_column(SafeText)
    #: The references of the person whose it is, and of who brought it here.
    person: Mapped[str] = mapped_column(SafeString(96))
    added_by: Mapped[str] = mapped_column(SafeString(96))
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
    #: Until when it counted: the session got another owner. Such a row never counts again, whoever the owner is.
    until: Mapped[datetime | None] = mapped_column(UtcDateTime)


_OFFERED = text(f"state = '{TransferState.OFFERED}'")


class Transfer(Base):
    """Store one offer to make somebody else the owner of a session, and what became of it."""

    __tablename__ = "transfers"

    id: Mapped[str] = mapped_column(SafeString(24), primary_key=True)
    session_id: Mapped[str] = mapped_column(ForeignKey("sessions.id"), index=True)
    from_owner: Mapped[str] = mapped_column(SafeString(96))
    to_person: Mapped[str] = mapped_column(SafeString(96), index=True)
    offered_by: Mapped[str] = mapped_column(SafeString(96))
    state: Mapped[TransferState] = mapped_column(EnumText(TransferState))
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
    expires_at: Mapped[datetime] = mapped_column(UtcDateTime)
    #: When it was accepted, declined, withdrawn or expired. Costs until an acceptance are the earlier owner's.
    closed_at: Mapped[datetime | None] = mapped_column(UtcDateTime)

    __table_args__ = (
        Index("uq_transfers_offered", "session_id", unique=True, sqlite_where=_OFFERED, postgresql_where=_OFFERED),
    )


class Secret(Base):
    """Store a secret that a person keeps for their jobs, encrypted under a key that is not in the database."""

    __tablename__ = "secrets"

    #: The reference of the person or the program whose secret it is.
    person: Mapped[str] = mapped_column(SafeString(96), primary_key=True)
    name: Mapped[str] = mapped_column(SafeString(96), primary_key=True)
    ciphertext: Mapped[str] = mapped_column(SafeText)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
    updated_at: Mapped[datetime] = mapped_column(UtcDateTime)
