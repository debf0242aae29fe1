"""The tables of requests, approvals, sessions, instances, money, journal, inbox and outbox."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

TIME = sa.DateTime(timezone=True)
JSON = sa.JSON().with_variant(postgresql.JSONB(), "postgresql")
OPEN = "state IN ('live', 'ready', 'sending', 'stopped', 'terminating', 'unknown')"


def upgrade() -> None:
    """Create the tables, each after those that it refers to."""
    _events()
    _inbox()
    _ledger_entries()
    _marks()
    _notifications()
    _requests()
    _ssh_keys()
    _approvals()
    _quotes()
    _sessions()
    _tokens()
    _grants()
    _options()
    _instances()
    _strays()


def _state() -> tuple[sa.Column[Any], ...]:
    """The state of a row and how often it moved."""
    return sa.Column("state", sa.String(24), nullable=False), sa.Column("version", sa.Integer(), nullable=False)


def _claim() -> tuple[sa.Column[Any], ...]:
    """The columns of a row that a sweep picks up."""
    return sa.Column("due_at", TIME), sa.Column("claim_token", sa.String(32)), sa.Column("claim_until", TIME)


RENTING = ("strays", "instances", "options", "grants", "tokens", "sessions", "quotes", "approvals", "requests")
RECORDING = ("ssh_keys", "notifications", "marks", "ledger_entries", "inbox", "events")


def downgrade() -> None:
    """Drop the tables, each before those that it refers to."""
    for table in RENTING + RECORDING:
        op.drop_table(table)


def _events() -> None:
    op.create_table(
        "events",
        sa.Column("id", sa.String(24), nullable=False),
        sa.Column("at", TIME, nullable=False),
        sa.Column("actor", sa.String(96), nullable=False),
        sa.Column("subject", sa.String(128), nullable=False),
        sa.Column("kind", sa.String(32), nullable=False),
        sa.Column("before", sa.String(24), nullable=False),
        sa.Column("after", sa.String(24), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("data", JSON, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_events"),
    )
    op.create_index("ix_events_subject_at", "events", ["subject", "at"])


def _inbox() -> None:
    op.create_table(
        "inbox",
        sa.Column("key", sa.String(128), nullable=False),
        sa.Column("kind", sa.String(32), nullable=False),
        sa.Column("body", JSON, nullable=False),
        sa.Column("answer", JSON),
        *_state(),
        sa.Column("tries", sa.Integer(), nullable=False),
        sa.Column("error", sa.Text(), nullable=False),
        sa.Column("received_at", TIME, nullable=False),
        *_claim(),
        sa.PrimaryKeyConstraint("key", name="pk_inbox"),
    )
    op.create_index("ix_inbox_due_at", "inbox", ["due_at"])


def _ledger_entries() -> None:
    op.create_table(
        "ledger_entries",
        sa.Column("id", sa.String(24), nullable=False),
        sa.Column("key", sa.String(128), nullable=False),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("debit", sa.String(96), nullable=False),
        sa.Column("credit", sa.String(96), nullable=False),
        sa.Column("amount_usd", sa.BigInteger(), nullable=False),
        sa.Column("at", TIME, nullable=False),
        sa.Column("session_id", sa.String(24)),
        sa.Column("instance_id", sa.String(24)),
        sa.Column("component", sa.String(24), nullable=False),
        sa.Column("note", sa.Text(), nullable=False),
        sa.CheckConstraint("amount_usd > 0", name="ck_ledger_entries_amount_positive"),
        sa.PrimaryKeyConstraint("id", name="pk_ledger_entries"),
        sa.UniqueConstraint("key", name="uq_ledger_entries_key"),
    )
    op.create_index("ix_ledger_entries_at", "ledger_entries", ["at"])
    op.create_index("ix_ledger_entries_session_id", "ledger_entries", ["session_id"])


def _marks() -> None:
    op.create_table(
        "marks",
        sa.Column("name", sa.String(64), nullable=False),
        sa.Column("value", sa.Text(), nullable=False),
        sa.Column("at", TIME, nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_marks"),
    )


def _notifications() -> None:
    op.create_table(
        "notifications",
        sa.Column("id", sa.String(24), nullable=False),
        sa.Column("kind", sa.String(24), nullable=False),
        sa.Column("subject", sa.String(128), nullable=False),
        sa.Column("destination", sa.String(96), nullable=False),
        *_state(),
        sa.Column("sent_version", sa.Integer(), nullable=False),
        sa.Column("body", JSON, nullable=False),
        sa.Column("channel", sa.String(64)),
        sa.Column("ts", sa.String(32)),
        sa.Column("tries", sa.Integer(), nullable=False),
        sa.Column("error", sa.Text(), nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("sent_at", TIME),
        *_claim(),
        sa.PrimaryKeyConstraint("id", name="pk_notifications"),
        sa.UniqueConstraint("kind", "subject", "destination", name="uq_notifications_kind_subject_destination"),
    )
    op.create_index("ix_notifications_due_at", "notifications", ["due_at"])


def _requests() -> None:
    op.create_table(
        "requests",
        sa.Column("id", sa.String(24), nullable=False),
        sa.Column("kind", sa.String(24), nullable=False),
        *_state(),
        sa.Column("quote_version", sa.Integer(), nullable=False),
        sa.Column("inbox_key", sa.String(128), nullable=False),
        sa.Column("parent_id", sa.String(24)),
        sa.Column("requester", sa.String(96), nullable=False),
        sa.Column("job", JSON, nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("channel", sa.String(64), nullable=False),
        sa.Column("rule", sa.Text(), nullable=False),
        sa.Column("required_approvals", sa.Integer(), nullable=False),
        sa.Column("chosen_option_id", sa.String(24)),
        sa.Column("expires_at", TIME, nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("decided_at", TIME),
        sa.Column("decided_by", sa.String(96)),
        sa.Column("outcome", sa.Text(), nullable=False),
        sa.Column("failed_machines", JSON, nullable=False),
        *_claim(),
        sa.ForeignKeyConstraint(["parent_id"], ["requests.id"], name="fk_requests_parent_id_requests"),
        sa.PrimaryKeyConstraint("id", name="pk_requests"),
        sa.UniqueConstraint("inbox_key", name="uq_requests_inbox_key"),
    )
    op.create_index("ix_requests_due_at", "requests", ["due_at"])
    op.create_index("ix_requests_state_created_at", "requests", ["state", "created_at"])


def _ssh_keys() -> None:
    op.create_table(
        "ssh_keys",
        sa.Column("owner", sa.String(96), nullable=False),
        sa.Column("public_key", sa.Text(), nullable=False),
        sa.Column("fingerprint", sa.String(96), nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.PrimaryKeyConstraint("owner", name="pk_ssh_keys"),
    )


def _approvals() -> None:
    op.create_table(
        "approvals",
        sa.Column("id", sa.String(24), nullable=False),
        sa.Column("request_id", sa.String(24), nullable=False),
        sa.Column("quote_version", sa.Integer(), nullable=False),
        sa.Column("approver", sa.String(96), nullable=False),
        sa.Column("decision", sa.String(16), nullable=False),
        sa.Column("option_id", sa.String(24)),
        sa.Column("price_cap_usd_h", sa.BigInteger()),
        sa.Column("total_cap_usd", sa.BigInteger()),
        sa.Column("hours", sa.String(24)),
        sa.Column("replacements", sa.Integer(), nullable=False),
        sa.Column("confirmed_usd", sa.BigInteger()),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("rule", sa.Text(), nullable=False),
        sa.Column("at", TIME, nullable=False),
        sa.ForeignKeyConstraint(["request_id"], ["requests.id"], name="fk_approvals_request_id_requests"),
        sa.PrimaryKeyConstraint("id", name="pk_approvals"),
        sa.UniqueConstraint(
            "request_id", "quote_version", "approver", name="uq_approvals_request_id_quote_version_approver"
        ),
    )


def _quotes() -> None:
    op.create_table(
        "quotes",
        sa.Column("id", sa.String(24), nullable=False),
        sa.Column("request_id", sa.String(24), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("expires_at", TIME, nullable=False),
        sa.Column("excluded", JSON, nullable=False),
        sa.Column("clouds", JSON, nullable=False),
        sa.ForeignKeyConstraint(["request_id"], ["requests.id"], name="fk_quotes_request_id_requests"),
        sa.PrimaryKeyConstraint("id", name="pk_quotes"),
        sa.UniqueConstraint("request_id", "version", name="uq_quotes_request_id_version"),
    )


def _sessions() -> None:
    op.create_table(
        "sessions",
        sa.Column("id", sa.String(24), nullable=False),
        sa.Column("request_id", sa.String(24), nullable=False),
        *_state(),
        sa.Column("owner", sa.String(96), nullable=False),
        sa.Column("channel", sa.String(64), nullable=False),
        sa.Column("hours", sa.String(24), nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("ready_at", TIME),
        sa.Column("deadline", TIME),
        sa.Column("warned_at", TIME),
        sa.Column("ended_at", TIME),
        sa.Column("end_code", sa.String(32), nullable=False),
        sa.Column("end_reason", sa.Text(), nullable=False),
        sa.Column("replacements_left", sa.Integer(), nullable=False),
        sa.Column("gpu", sa.String(48), nullable=False),
        sa.Column("gpu_count", sa.Integer(), nullable=False),
        *_claim(),
        sa.ForeignKeyConstraint(["request_id"], ["requests.id"], name="fk_sessions_request_id_requests"),
        sa.PrimaryKeyConstraint("id", name="pk_sessions"),
        sa.UniqueConstraint("request_id", name="uq_sessions_request_id"),
    )
    op.create_index("ix_sessions_due_at", "sessions", ["due_at"])
    op.create_index("ix_sessions_owner", "sessions", ["owner"])


def _tokens() -> None:
    op.create_table(
        "tokens",
        sa.Column("token", sa.String(40), nullable=False),
        sa.Column("request_id", sa.String(24), nullable=False),
        sa.Column("quote_version", sa.Integer(), nullable=False),
        sa.Column("action", sa.String(16), nullable=False),
        sa.Column("option_id", sa.String(24)),
        sa.ForeignKeyConstraint(["request_id"], ["requests.id"], name="fk_tokens_request_id_requests"),
        sa.PrimaryKeyConstraint("token", name="pk_tokens"),
    )
    op.create_index("ix_tokens_request_id", "tokens", ["request_id"])


def _grants() -> None:
    op.create_table(
        "grants",
        sa.Column("id", sa.String(24), nullable=False),
        sa.Column("request_id", sa.String(24), nullable=False),
        sa.Column("approval_id", sa.String(24), nullable=False),
        sa.Column("session_id", sa.String(24)),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("seq", sa.Integer(), nullable=False),
        *_state(),
        sa.Column("price_cap_usd_h", sa.BigInteger(), nullable=False),
        sa.Column("total_cap_usd", sa.BigInteger(), nullable=False),
        sa.Column("hours", sa.String(24), nullable=False),
        sa.Column("until", TIME, nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.ForeignKeyConstraint(["approval_id"], ["approvals.id"], name="fk_grants_approval_id_approvals"),
        sa.ForeignKeyConstraint(["request_id"], ["requests.id"], name="fk_grants_request_id_requests"),
        sa.PrimaryKeyConstraint("id", name="pk_grants"),
        sa.UniqueConstraint("request_id", "kind", "seq", name="uq_grants_request_id_kind_seq"),
    )
    op.create_index("ix_grants_session_id", "grants", ["session_id"])


def _options() -> None:
    op.create_table(
        "options",
        sa.Column("id", sa.String(24), nullable=False),
        sa.Column("quote_id", sa.String(24), nullable=False),
        sa.Column("rank", sa.Integer(), nullable=False),
        sa.Column("cloud", sa.String(24), nullable=False),
        sa.Column("offer_key", sa.String(128), nullable=False),
        sa.Column("price_usd_h", sa.BigInteger(), nullable=False),
        sa.Column("best_usd", sa.BigInteger(), nullable=False),
        sa.Column("expected_usd", sa.BigInteger(), nullable=False),
        sa.Column("worst_usd", sa.BigInteger(), nullable=False),
        sa.Column("marks", JSON, nullable=False),
        sa.Column("why", sa.Text(), nullable=False),
        sa.Column("offer", JSON, nullable=False),
        sa.Column("estimate", JSON, nullable=False),
        sa.ForeignKeyConstraint(["quote_id"], ["quotes.id"], name="fk_options_quote_id_quotes"),
        sa.PrimaryKeyConstraint("id", name="pk_options"),
    )
    op.create_index("ix_options_quote_id", "options", ["quote_id"])


def _instances() -> None:
    op.create_table(
        "instances",
        sa.Column("id", sa.String(24), nullable=False),
        sa.Column("session_id", sa.String(24), nullable=False),
        sa.Column("request_id", sa.String(24), nullable=False),
        sa.Column("grant_id", sa.String(24), nullable=False),
        sa.Column("option_id", sa.String(24), nullable=False),
        sa.Column("n", sa.Integer(), nullable=False),
        *_state(),
        sa.Column("cloud", sa.String(24), nullable=False),
        sa.Column("account", sa.String(24), nullable=False),
        sa.Column("label", sa.String(48), nullable=False),
        sa.Column("name", sa.String(256), nullable=False),
        sa.Column("offer", JSON, nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("sent_at", TIME),
        sa.Column("ref", sa.String(64)),
        sa.Column("machine_id", sa.String(64)),
        sa.Column("price_usd_h", sa.BigInteger(), nullable=False),
        sa.Column("storage_usd_h", sa.BigInteger(), nullable=False),
        sa.Column("status", sa.String(24), nullable=False),
        sa.Column("status_text", sa.Text(), nullable=False),
        sa.Column("ssh_host", sa.String(255)),
        sa.Column("ssh_port", sa.Integer()),
        sa.Column("ssh_user", sa.String(64)),
        sa.Column("live_at", TIME),
        sa.Column("reachable_at", TIME),
        sa.Column("billing_from", TIME),
        sa.Column("billing_until", TIME),
        sa.Column("heartbeat_at", TIME),
        sa.Column("absent_at", JSON, nullable=False),
        sa.Column("terminate_asked_at", TIME),
        sa.Column("terminate_acked_at", TIME),
        sa.Column("ended_at", TIME),
        sa.Column("outcome_code", sa.String(32), nullable=False),
        sa.Column("outcome", sa.Text(), nullable=False),
        *_claim(),
        sa.ForeignKeyConstraint(["grant_id"], ["grants.id"], name="fk_instances_grant_id_grants"),
        sa.ForeignKeyConstraint(["request_id"], ["requests.id"], name="fk_instances_request_id_requests"),
        sa.ForeignKeyConstraint(["session_id"], ["sessions.id"], name="fk_instances_session_id_sessions"),
        sa.PrimaryKeyConstraint("id", name="pk_instances"),
        sa.UniqueConstraint("label", name="uq_instances_label"),
    )
    op.create_index("ix_instances_cloud_account_state", "instances", ["cloud", "account", "state"])
    op.create_index("ix_instances_due_at", "instances", ["due_at"])
    op.create_index("ix_instances_request_id", "instances", ["request_id"])
    op.create_index("ix_instances_session_id", "instances", ["session_id"])
    op.create_index(
        "uq_instances_open_grant",
        "instances",
        ["grant_id"],
        unique=True,
        sqlite_where=sa.text(OPEN),
        postgresql_where=sa.text(OPEN),
    )


def _strays() -> None:
    op.create_table(
        "strays",
        sa.Column("id", sa.String(24), nullable=False),
        sa.Column("cloud", sa.String(24), nullable=False),
        sa.Column("account", sa.String(24), nullable=False),
        sa.Column("ref", sa.String(64), nullable=False),
        sa.Column("label", sa.String(48), nullable=False),
        *_state(),
        sa.Column("instance_id", sa.String(24)),
        sa.Column("price_usd_h", sa.BigInteger(), nullable=False),
        sa.Column("first_seen_at", TIME, nullable=False),
        sa.Column("last_seen_at", TIME, nullable=False),
        sa.Column("billing_from", TIME),
        sa.Column("absent_at", JSON, nullable=False),
        sa.Column("ended_at", TIME),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["instance_id"], ["instances.id"], name="fk_strays_instance_id_instances"),
        sa.PrimaryKeyConstraint("id", name="pk_strays"),
        sa.UniqueConstraint("cloud", "account", "ref", name="uq_strays_cloud_account_ref"),
    )
