"""Store the agents of instances: one row per instance with a token, and its last check-in."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import BigInteger, ForeignKey, Integer
from sqlalchemy.orm import Mapped, mapped_column

from ledger.kernel.columns import Json, SafeString, UtcDateTime
from ledger.models.base import Base


class Node(Base):
    """Store the agent of one instance. A check-in overwrites the last: it is state, and no event is kept of it."""

    __tablename__ = "nodes"

    instance_id: Mapped[str] = mapped_column(ForeignKey("instances.id"), primary_key=True)
    session_id: Mapped[str] = mapped_column(ForeignKey("sessions.id"), index=True)
    #: HMAC-SHA256 of the token's secret under the deployment's pepper, hexadecimal.
    token_hash: Mapped[str] = mapped_column(SafeString(64))
    made_at: Mapped[datetime] = mapped_column(UtcDateTime)
    #: The number of the last check-in; one that is not above it is a replay.
    seq: Mapped[int] = mapped_column(BigInteger, default=0)
    at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    idle_since: Mapped[datetime | None] = mapped_column(UtcDateTime)
    #: running, done or failed, as the agent reports it, and since when the last two.
    work: Mapped[str] = mapped_column(SafeString(16), default="running")
    work_over_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    #: The rest of its last report, for showing.
    report: Mapped[dict[str, Any]] = mapped_column(Json, default=dict)
    #: What a checkpoint check asks of it beyond what its session's state says.
    wanted: Mapped[list[str]] = mapped_column(Json, default=list)
    #: The API that it serves itself: its port, and the SHA-256 of the certificate that it named first, hexadecimal.
    api_port: Mapped[int | None] = mapped_column(Integer)
    api_certificate: Mapped[str | None] = mapped_column(SafeString(64))
    #: Another certificate that it named since, of which its people were notified, and when.
    api_other: Mapped[str | None] = mapped_column(SafeString(64))
    api_other_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    #: SHA-256 of the token that opens that API, as the agent receives it, and when the token was made.
    api_token_hash: Mapped[str | None] = mapped_column(SafeString(64))
    api_token_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
