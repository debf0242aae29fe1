"""Store sessions, their instances with the agents on them, retained disks, and orphans."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import Any

from sqlalchemy import BigInteger, Boolean, ForeignKey, Index, Integer, text
from sqlalchemy.orm import Mapped, mapped_column

from ledger.kernel.checkpoint_step import CheckpointStep
from ledger.kernel.columns import EnumText, Json, MicroUsd, SafeString, SafeText, UtcDateTime
from ledger.kernel.ids import short_id
from ledger.kernel.job_state import JobState
from ledger.kernel.states import OPEN_INSTANCE, InstanceState, OrphanState, SessionState
from ledger.models.base import Base, Claimable


class Session(Claimable, Base):
    """Store one session: GPUs that were granted for a time."""

    __tablename__ = "sessions"

    id: Mapped[str] = mapped_column(SafeString(24), primary_key=True)
    request_id: Mapped[str] = mapped_column(ForeignKey("requests.id"), unique=True)
    state: Mapped[SessionState] = mapped_column(EnumText(SessionState), index=True)
    version: Mapped[int] = mapped_column(Integer, default=1)
    owner: Mapped[str] = mapped_column(SafeString(96), index=True)
    channel: Mapped[str] = mapped_column(SafeString(64))
    hours: Mapped[str] = mapped_column(SafeString(24))
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
    ready_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    #: Since when it is stopped, and the seconds of its runs before that stop or before a replacement.
    stopped_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    ran_s: Mapped[int | None] = mapped_column(Integer)
    #: Hours as granted, counted from the first moment the cloud may bill; None until then.
    deadline: Mapped[datetime | None] = mapped_column(UtcDateTime)
    warned_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    #: Of a network volume: its written end, since when its days of notices count, and how many notices were given.
    volume_ends_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    volume_grace_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    volume_notices: Mapped[int | None] = mapped_column(Integer)
    #: The most that these days may cost beyond its approvals.
    volume_excess_usd: Mapped[Decimal | None] = mapped_column(MicroUsd)
    ended_at: Mapped[datetime | None] = mapped_column(UtcDateTime, index=True)
    end_code: Mapped[str] = mapped_column(SafeString(32), default="")
    #: The sentence people read about why it ended or failed.
    end_reason: Mapped[str] = mapped_column(SafeText, default="")
    replacements_left: Mapped[int] = mapped_column(Integer, default=0)
    #: An end before the approved one that was announced and not yet ordered: when, its code, and why in one sentence.
    early_end_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    early_end_code: Mapped[str | None] = mapped_column(SafeString(32))
    early_end_reason: Mapped[str | None] = mapped_column(SafeText)
    #: Until then only its approved end ends it: somebody chose so in the message about an early end.
    kept_running_until: Mapped[datetime | None] = mapped_column(UtcDateTime)
    #: The project that its costs count for; None in rows of older releases.
    label: Mapped[str | None] = mapped_column(SafeString(48))
    #: Somebody asked to keep the disk after the work; None and false: it goes with the end.
    preserve: Mapped[bool | None] = mapped_column(Boolean)
    #: How its job (`run=`) ended, with its exit code where that was reported, and when that was recorded, once.
    job_state: Mapped[JobState | None] = mapped_column(EnumText(JobState, 16))
    job_exit_code: Mapped[int | None] = mapped_column(Integer)
    job_ended_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    gpu: Mapped[str] = mapped_column(SafeString(48), default="")
    gpu_count: Mapped[int] = mapped_column(Integer, default=1)
    #: Machines of one set, each with so many GPUs: all of them run, or the session ends.
    nodes: Mapped[int] = mapped_column(Integer, default=1, server_default="1")
    #: Commands of the queue that these machines share, so that each works alone; 0: they are one set, or one machine.
    dealt_commands: Mapped[int] = mapped_column(Integer, default=0, server_default="0")

    @property
    def short_id(self) -> str:
        """Return the short id that people read for this rental: that of its request, which they saw first."""
        return short_id(self.request_id)


_OPEN = ", ".join(f"'{state}'" for state in sorted(OPEN_INSTANCE))


class Instance(Claimable, Base):
    """Store one create call before it is sent, and what became of it. One row makes at most one create."""

    __tablename__ = "instances"

    id: Mapped[str] = mapped_column(SafeString(24), primary_key=True)
    session_id: Mapped[str] = mapped_column(ForeignKey("sessions.id"), index=True)
    request_id: Mapped[str] = mapped_column(ForeignKey("requests.id"), index=True)
    grant_id: Mapped[str] = mapped_column(ForeignKey("grants.id"))
    option_id: Mapped[str] = mapped_column(SafeString(24))
    n: Mapped[int] = mapped_column(Integer)
    state: Mapped[InstanceState] = mapped_column(EnumText(InstanceState))
    version: Mapped[int] = mapped_column(Integer, default=1)
    cloud: Mapped[str] = mapped_column(SafeString(24))
    account: Mapped[str] = mapped_column(SafeString(24))
    label: Mapped[str] = mapped_column(SafeString(48), unique=True)
    name: Mapped[str] = mapped_column(SafeString(256))
    offer: Mapped[dict[str, Any]] = mapped_column(Json)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
    sent_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    ref: Mapped[str | None] = mapped_column(SafeString(256))
    machine_id: Mapped[str | None] = mapped_column(SafeString(64))
    #: Its place in a set of machines, from 0; None where it is alone.
    node_rank: Mapped[int | None] = mapped_column(Integer)
    #: Where the other machines of its set reach it, at every port.
    set_host: Mapped[str | None] = mapped_column(SafeString(255))
    price_usd_h: Mapped[Decimal] = mapped_column(MicroUsd)
    storage_usd_h: Mapped[Decimal] = mapped_column(MicroUsd)
    #: What the cloud said last: its translated status and its own free text (hostile until escaped).
    status: Mapped[str] = mapped_column(SafeString(24), default="")
    status_text: Mapped[str] = mapped_column(SafeText, default="")
    ssh_host: Mapped[str | None] = mapped_column(SafeString(255))
    ssh_port: Mapped[int | None] = mapped_column(Integer)
    ssh_user: Mapped[str | None] = mapped_column(SafeString(64))
    #: The ports beside SSH's that its cloud has opened → where they are reached from outside; None: none.
    ports: Mapped[dict[str, str] | None] = mapped_column(Json)
    #: The SSH host key that it showed first, as OpenSSH writes it (kind and base64), and when it was looked at last.
    host_key: Mapped[str | None] = mapped_column(SafeText)
    host_key_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    #: The public half of GPU Shopper's own key for this session, as OpenSSH writes it; None: its create brought none.
    login_key: Mapped[str | None] = mapped_column(SafeText)
    #: What the last check of its GPUs found; None before the first one.
    gpu_check: Mapped[dict[str, Any] | None] = mapped_column(Json)
    #: Until then one replica checks its GPUs: two measurements at the same time would each find them slow.
    login_until: Mapped[datetime | None] = mapped_column(UtcDateTime)
    #: Since when its launch waits for its cloud's rate limit, and until when the newest refusal says to wait.
    limited_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    limited_until: Mapped[datetime | None] = mapped_column(UtcDateTime)
    live_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    reachable_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    #: From when and until when the GPU is billed, by the cloud's own timestamps where it gives them.
    billing_from: Mapped[datetime | None] = mapped_column(UtcDateTime)
    billing_until: Mapped[datetime | None] = mapped_column(UtcDateTime)
    #: The same for the storage where it pauses at times; from the send on where this is None.
    storage_from: Mapped[datetime | None] = mapped_column(UtcDateTime)
    storage_until: Mapped[datetime | None] = mapped_column(UtcDateTime)
    #: Seconds of the GPU's billed time that were booked at its last stop, counted from `billing_from`; None: no stop.
    gpu_booked_s: Mapped[int | None] = mapped_column(Integer)
    #: Seconds of the GPU's and the storage's billed time that were booked when the session's owner changed last.
    gpu_split_s: Mapped[int | None] = mapped_column(Integer)
    storage_split_s: Mapped[int | None] = mapped_column(Integer)
    #: The last check that showed it without its GPU being billed: it cannot have been billed before that.
    unbilled_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    #: The first check that showed an instance which had been ready as not working; None while it works.
    trouble_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    #: When it last worked, where its cloud was not listed for long before it failed, left, or was ended; else None.
    worked_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    #: What it had instead of the approved GPUs at the last check that showed it in trouble.
    other_gpus: Mapped[str] = mapped_column(SafeString(80), default="", server_default="")
    #: Times of complete listings of the right account without it; cleared when it is seen again.
    absent_at: Mapped[list[str]] = mapped_column(Json, default=list)
    #: When the end was ordered here, and when the cloud first accepted the order.
    terminate_asked_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    terminate_acked_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    #: When the cloud was last called to end it, unless it is certain that the call had no effect.
    terminate_called_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    #: How far the checkpoint check is with its end: saving, held, or done; until when, and why, in a sentence.
    checkpoint_step: Mapped[CheckpointStep | None] = mapped_column(EnumText(CheckpointStep, 16))
    checkpoint_until: Mapped[datetime | None] = mapped_column(UtcDateTime)
    gate_note: Mapped[str | None] = mapped_column(SafeText)
    #: What its approval reserved for that: dollars of the cap that the run does not spend, and seconds of the GPU. None
    #: where nothing was reserved; `bot.rules.checkpoints.verification.Reserved` says what follows from that.
    hold_usd: Mapped[Decimal | None] = mapped_column(MicroUsd)
    hold_s: Mapped[int | None] = mapped_column(Integer)
    #: When it ended most likely, and at the latest: until then it is booked, and may have cost `unsettled_usd` more.
    ended_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    latest_end_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    #: Dollars that budgets, caps and FOCUS count on top, until a bill or 30 days settle it; None: nothing is open.
    unsettled_usd: Mapped[Decimal | None] = mapped_column(MicroUsd)
    #: What somebody ordered of it and the cloud does not show yet (stop, start or restart), and when.
    wanted: Mapped[str | None] = mapped_column(SafeString(16))
    wanted_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    #: The error's code when the create was refused, or why it was ended; the sentence people read about it.
    outcome_code: Mapped[str] = mapped_column(SafeString(32), default="")
    outcome: Mapped[str] = mapped_column(SafeText, default="")

    __table_args__ = (
        Index(
            "uq_instances_open_grant",
            "grant_id",
            unique=True,
            sqlite_where=text(f"state IN ({_OPEN})"),
            postgresql_where=text(f"state IN ({_OPEN})"),
        ),
        Index("ix_instances_cloud_account_state", "cloud", "account", "state"),
        Index("ix_instances_state", "state"),
        Index(
            "ix_instances_unsettled",
            "latest_end_at",
            sqlite_where=text("unsettled_usd IS NOT NULL"),
            postgresql_where=text("unsettled_usd IS NOT NULL"),
        ),
    )


class Disk(Base):
    """Store a retained disk: from the stop of its machine until the start or the end; no GPU is billed meanwhile."""

    __tablename__ = "disks"

    id: Mapped[str] = mapped_column(SafeString(24), primary_key=True)
    session_id: Mapped[str] = mapped_column(ForeignKey("sessions.id"), index=True)
    instance_id: Mapped[str] = mapped_column(ForeignKey("instances.id"))
    owner: Mapped[str] = mapped_column(SafeString(96))
    cloud: Mapped[str] = mapped_column(SafeString(24))
    price_usd_h: Mapped[Decimal] = mapped_column(MicroUsd)
    since: Mapped[datetime] = mapped_column(UtcDateTime)
    #: When it is deleted unless somebody answers.
    until: Mapped[datetime] = mapped_column(UtcDateTime)
    warned_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    ended_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    #: Whole hours whose surcharge over the running disk's rate is booked.
    booked_h: Mapped[int] = mapped_column(Integer, default=0)

    __table_args__ = (
        Index(
            "uq_disks_open",
            "instance_id",
            unique=True,
            sqlite_where=text("ended_at IS NULL"),
            postgresql_where=text("ended_at IS NULL"),
        ),
    )


#: The condition of the index that allows one open orphan per instance.
OPEN_ORPHAN = "state != 'gone'"


class Orphan(Base):
    """Store an orphan: an instance of ours without its own row, such as a duplicate or one that landed late."""

    __tablename__ = "orphans"

    id: Mapped[str] = mapped_column(SafeString(24), primary_key=True)
    cloud: Mapped[str] = mapped_column(SafeString(24))
    account: Mapped[str] = mapped_column(SafeString(24))
    ref: Mapped[str] = mapped_column(SafeString(256))
    label: Mapped[str] = mapped_column(SafeString(48))
    state: Mapped[OrphanState] = mapped_column(EnumText(OrphanState))
    version: Mapped[int] = mapped_column(Integer, default=1)
    instance_id: Mapped[str | None] = mapped_column(ForeignKey("instances.id"))
    price_usd_h: Mapped[Decimal] = mapped_column(MicroUsd)
    first_seen_at: Mapped[datetime] = mapped_column(UtcDateTime)
    last_seen_at: Mapped[datetime] = mapped_column(UtcDateTime)
    billing_from: Mapped[datetime | None] = mapped_column(UtcDateTime)
    absent_at: Mapped[list[str]] = mapped_column(Json, default=list)
    ended_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    reason: Mapped[str] = mapped_column(SafeText, default="")
    #: Where its SSH server answers, as its cloud listed it last.
    ssh_host: Mapped[str | None] = mapped_column(SafeString(255))
    ssh_port: Mapped[int | None] = mapped_column(Integer)

    __table_args__ = (
        # An instance that counted as gone and is listed again becomes a new orphan.
        Index(
            "uq_orphans_open",
            "cloud",
            "account",
            "ref",
            unique=True,
            sqlite_where=text(OPEN_ORPHAN),
            postgresql_where=text(OPEN_ORPHAN),
        ),
    )


class Node(Base):
    """Store the agent of one instance. Each check-in overwrites the last one and leaves no event."""

    __tablename__ = "nodes"

    instance_id: Mapped[str] = mapped_column(ForeignKey("instances.id"), primary_key=True)
    session_id: Mapped[str] = mapped_column(ForeignKey("sessions.id"), index=True)
    #: HMAC-SHA256 of the token's secret under the deployment's pepper, hexadecimal.
    token_hash: Mapped[str] = mapped_column(SafeString(64))
    made_at: Mapped[datetime] = mapped_column(UtcDateTime)
    #: The same of the token that its agent received for the first one, of the one before that, and of the nonce that it
    #: was exchanged with; null where it never exchanged one.
    checkin_hash: Mapped[str | None] = mapped_column(SafeString(64))
    previous_hash: Mapped[str | None] = mapped_column(SafeString(64))
    nonce_hash: Mapped[str | None] = mapped_column(SafeString(64))
    #: When it was last exchanged, when a restart opened one more exchange, and when people were last notified of a
    #: token that was replaced.
    exchanged_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    exchange_open_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    token_notified_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
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
