"""Create the tables beside what is rented: the journal, messages, costs, budgets, API keys and webhooks."""

from __future__ import annotations

import sqlalchemy as sa

from migrations.baseline.table import CLAIM, ID, JSON, NAME, STATE, TEXT, TIME, USD, WHOLE, optional, required, table

SUBJECT = sa.String(128)
HASH = sa.String(64)
SHORT = sa.String(48)


def create() -> None:
    """Create the tables, each after those that it refers to."""
    _journal()
    _messages()
    _costs()
    _totals()
    _access()
    _webhooks()


def _journal() -> None:
    table(
        "events",
        required(id=ID, at=TIME, actor=NAME, subject=SUBJECT, kind=sa.String(32)),
        required(before=sa.String(24), after=sa.String(24), reason=TEXT, data=JSON),
        indexes=[["subject", "at"]],
    )
    table(
        "seals",
        required(event_id=ID, subject=SUBJECT, number=WHOLE, hash=HASH, at=TIME),
        key=["event_id"],
        refers={"event_id": "events"},
        unique=["subject", "number"],
        indexes=[["at"]],
    )


def _messages() -> None:
    table(
        "inbox",
        required(key=sa.String(128), kind=sa.String(32), body=JSON),
        optional(answer=JSON),
        required(**STATE, tries=WHOLE, error=TEXT, received_at=TIME),
        optional(**CLAIM),
        key=["key"],
        indexes=[["due_at"]],
    )
    table(
        "notifications",
        required(id=ID, kind=sa.String(24), subject=SUBJECT, destination=NAME, **STATE, sent_version=WHOLE, body=JSON),
        optional(channel=sa.String(64), ts=sa.String(32)),
        required(tries=WHOLE, error=TEXT, created_at=TIME),
        optional(sent_at=TIME),
        optional(**CLAIM),
        unique=["kind", "subject", "destination"],
        indexes=[["due_at"]],
    )
    table("marks", required(name=sa.String(64), value=TEXT, at=TIME), key=["name"])
    table("turns", required(name=NAME, free_at_us=sa.BigInteger()), key=["name"])


def _costs() -> None:
    table(
        "ledger_entries",
        required(id=ID, key=sa.String(128), kind=sa.String(16), debit=NAME, credit=NAME, amount_usd=USD, at=TIME),
        optional(session_id=ID, instance_id=ID),
        required(component=sa.String(24), note=TEXT),
        also=[sa.CheckConstraint("amount_usd > 0", name="ck_ledger_entries_amount_positive")],
        unique=["key"],
        indexes=[["at"], ["session_id"], ["instance_id"]],
    )
    table(
        "entry_seals",
        [sa.Column("number", WHOLE, autoincrement=False, nullable=False)],
        required(entry_id=ID, hash=HASH),
        key=["number"],
        refers={"entry_id": "ledger_entries"},
        unique=["entry_id"],
    )
    table(
        "external_costs",
        required(entry_id=ID, key=NAME, skill=SHORT, provider=SHORT, action=NAME, amount_usd=USD, at=TIME),
        required(notes=TEXT, owner=NAME, added_at=TIME),
        key=["entry_id"],
        refers={"entry_id": "ledger_entries"},
        unique=["key"],
    )
    table(
        "bill_lines",
        required(cloud=sa.String(24), account=sa.String(24), line_id=sa.String(160), ref=sa.String(256)),
        required(component=sa.String(24), amount_usd=USD, begins=TIME, ends=TIME, read_at=TIME),
        key=["cloud", "account", "line_id"],
        indexes=[["cloud", "account", "ref"]],
    )


def _totals() -> None:
    table("unrolled", required(entry_id=ID, at=TIME), key=["entry_id"], refers={"entry_id": "ledger_entries"})
    table(
        "facets",
        required(id=WHOLE, owner=NAME, cloud=SHORT, gpu=SHORT, label=SHORT, tool=SHORT),
        unique=["owner", "cloud", "gpu", "label", "tool"],
    )
    table(
        "rollup",
        required(tier=sa.String(24), begins=TIME, facet_id=WHOLE, amount_usd=USD),
        key=["tier", "begins", "facet_id"],
        refers={"facet_id": "facets"},
        indexes=[["facet_id", "tier", "begins"]],
        sqlite_with_rowid=False,
    )
    table(
        "budget_limits",
        required(scope=NAME, period=sa.String(16), limit_usd=USD, set_by=NAME, set_at=TIME),
        key=["scope", "period"],
    )


def _access() -> None:
    table("ssh_keys", required(owner=NAME, public_key=TEXT, fingerprint=sa.String(96), created_at=TIME), key=["owner"])
    table(
        "consumers",
        required(actor=NAME, owner=NAME, created_at=TIME, created_by=NAME),
        key=["actor"],
        indexes=[["owner"]],
    )
    table(
        "api_keys",
        required(id=ID, actor=NAME, scopes=JSON, secret_hash=HASH, created_at=TIME, created_by=NAME, expires_at=TIME),
        optional(revoked_at=TIME, revoked_by=NAME, last_used_at=TIME),
        indexes=[["actor"]],
    )
    table(
        "api_answers",
        required(key=sa.String(180), body_hash=HASH),
        optional(status=WHOLE, answer=JSON),
        required(created_at=TIME),
        key=["key"],
        indexes=[["created_at"]],
    )


def _webhooks() -> None:
    table(
        "webhooks",
        required(id=ID, actor=NAME, url=TEXT, topics=JSON, note=TEXT, everything=sa.Boolean(), secret=TEXT),
        optional(old_secret=TEXT, old_until=TIME),
        required(created_at=TIME, created_by=NAME, seen_at=TIME),
        optional(off_at=TIME),
        required(off_reason=TEXT),
        indexes=[["actor"]],
    )
    with_webhook = sa.ForeignKeyConstraint(
        ["webhook_id"], ["webhooks.id"], name="fk_webhook_deliveries_webhook_id_webhooks", ondelete="CASCADE"
    )
    table(
        "webhook_deliveries",
        required(id=ID, webhook_id=ID, event_id=ID, kind=SHORT, state=sa.String(24), tries=WHOLE, attempts=JSON),
        required(created_at=TIME),
        optional(sent_at=TIME, **CLAIM),
        also=[with_webhook],
        unique=["webhook_id", "event_id"],
        indexes=[["due_at"]],
    )
