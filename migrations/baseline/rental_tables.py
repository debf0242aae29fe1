"""Create the tables of what is rented: requests, offers, approvals, sessions, instances, disks and orphans."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from migrations.baseline.table import (
    CLAIM,
    HOURS,
    ID,
    JSON,
    NAME,
    STATE,
    TEXT,
    TIME,
    USD,
    WHOLE,
    optional,
    required,
    table,
    unique_where,
)

CLOUD = ACCOUNT = sa.String(24)
CHANNEL = sa.String(64)
LABEL = GPU = sa.String(48)
#: An id of a cloud's own: Kaggle's hold a user's name and a run's.
CLOUD_ID = sa.String(256)
OPEN = "state IN ('live', 'ready', 'sending', 'stopped', 'terminating', 'unknown')"


def create() -> None:
    """Create the tables, each after those that it refers to."""
    _requests()
    _offers()
    _approvals()
    _sessions()
    _instances()
    _beside_instances()


def _requests() -> None:
    table(
        "requests",
        required(id=ID, kind=sa.String(24), **STATE, quote_version=WHOLE, inbox_key=sa.String(128)),
        optional(parent_id=ID),
        required(requester=NAME, job=JSON, reason=TEXT, channel=CHANNEL, rule=TEXT, required_approvals=WHOLE),
        optional(chosen_option_id=ID),
        required(expires_at=TIME, created_at=TIME),
        optional(decided_at=TIME, decided_by=NAME),
        required(outcome=TEXT, failed_machines=JSON),
        optional(**CLAIM),
        refers={"parent_id": "requests"},
        unique=["inbox_key"],
        indexes=[["due_at"], ["state", "created_at"], ["parent_id", "created_at"]],
    )


def _offers() -> None:
    table(
        "quotes",
        required(id=ID, request_id=ID, version=WHOLE, created_at=TIME, expires_at=TIME, excluded=JSON, clouds=JSON),
        refers={"request_id": "requests"},
        unique=["request_id", "version"],
    )
    table(
        "options",
        required(id=ID, quote_id=ID, rank=WHOLE, cloud=CLOUD, offer_key=sa.String(128)),
        required(price_usd_h=USD, best_usd=USD, expected_usd=USD, worst_usd=USD),
        required(marks=JSON, why=TEXT, offer=JSON, estimate=JSON),
        refers={"quote_id": "quotes"},
        indexes=[["quote_id"]],
    )


def _approvals() -> None:
    table(
        "approvals",
        required(id=ID, request_id=ID, quote_version=WHOLE, approver=NAME, decision=sa.String(16)),
        optional(option_id=ID, price_cap_usd_h=USD, total_cap_usd=USD, hours=HOURS),
        required(replacements=WHOLE),
        optional(confirmed_usd=USD),
        required(reason=TEXT, rule=TEXT, at=TIME),
        optional(limit_usd=USD, on_behalf_of=NAME, digest=sa.String(64)),
        refers={"request_id": "requests"},
        unique=["request_id", "quote_version", "approver"],
    )
    table(
        "tokens",
        required(token=sa.String(40), request_id=ID, quote_version=WHOLE, action=sa.String(16)),
        optional(option_id=ID),
        key=["token"],
        refers={"request_id": "requests"},
        indexes=[["request_id"]],
    )
    table(
        "delegations",
        required(id=ID, delegator=NAME, delegate=NAME, until=TIME, made_by=NAME, created_at=TIME),
        optional(ended_at=TIME, ended_by=NAME),
        indexes=[["delegate"], ["delegator"]],
    )
    table(
        "grants",
        required(id=ID, request_id=ID, approval_id=ID),
        optional(session_id=ID),
        required(kind=sa.String(16), seq=WHOLE, **STATE),
        required(price_cap_usd_h=USD, total_cap_usd=USD, hours=HOURS, until=TIME, created_at=TIME),
        refers={"approval_id": "approvals", "request_id": "requests"},
        unique=["request_id", "kind", "seq"],
        indexes=[["session_id"]],
    )


def _sessions() -> None:
    table(
        "sessions",
        required(id=ID, request_id=ID, **STATE, owner=NAME, channel=CHANNEL, hours=HOURS, created_at=TIME),
        optional(ready_at=TIME, deadline=TIME, warned_at=TIME, ended_at=TIME),
        required(end_code=sa.String(32), end_reason=TEXT, replacements_left=WHOLE, gpu=GPU, gpu_count=WHOLE),
        optional(**CLAIM),
        optional(label=LABEL),
        optional(cut_at=TIME, cut_code=sa.String(32), cut_reason=TEXT, spared_until=TIME),
        optional(preserve=sa.Boolean()),
        refers={"request_id": "requests"},
        unique=["request_id"],
        indexes=[["due_at"], ["owner"], ["ended_at"], ["state"]],
    )


def _instances() -> None:
    table(
        "instances",
        required(id=ID, session_id=ID, request_id=ID, grant_id=ID, option_id=ID, n=WHOLE, **STATE),
        required(cloud=CLOUD, account=ACCOUNT, label=LABEL, name=sa.String(256), offer=JSON, created_at=TIME),
        optional(sent_at=TIME, ref=CLOUD_ID, machine_id=sa.String(64)),
        required(price_usd_h=USD, storage_usd_h=USD, status=sa.String(24), status_text=TEXT),
        optional(ssh_host=sa.String(255), ssh_port=WHOLE, ssh_user=sa.String(64)),
        optional(live_at=TIME, reachable_at=TIME, billing_from=TIME, billing_until=TIME, heartbeat_at=TIME),
        required(absent_at=JSON),
        optional(terminate_asked_at=TIME, terminate_acked_at=TIME, ended_at=TIME),
        required(outcome_code=sa.String(32), outcome=TEXT),
        optional(**CLAIM),
        optional(unbilled_at=TIME, storage_from=TIME, storage_until=TIME),
        optional(wanted=sa.String(16), wanted_at=TIME, trouble_at=TIME),
        optional(gate=sa.String(16), gate_until=TIME, gate_note=TEXT, hold_usd=USD, hold_s=WHOLE),
        [sa.Column("other_gpus", sa.String(80), nullable=False, server_default="")],
        optional(host_key=TEXT, host_key_at=TIME),
        refers={"grant_id": "grants", "request_id": "requests", "session_id": "sessions"},
        unique=["label"],
        indexes=[["cloud", "account", "state"], ["due_at"], ["request_id"], ["session_id"]],
    )
    unique_where("uq_instances_open_grant", "instances", "grant_id", OPEN)
    op.create_index("ix_instances_state", "instances", ["state"])


def _beside_instances() -> None:
    table(
        "nodes",
        required(instance_id=ID, session_id=ID, token_hash=sa.String(64), made_at=TIME, seq=sa.BigInteger()),
        optional(at=TIME, idle_since=TIME),
        required(work=sa.String(16)),
        optional(work_over_at=TIME),
        required(report=JSON, wanted=JSON),
        optional(api_port=WHOLE, api_certificate=sa.String(64), api_other=sa.String(64), api_other_at=TIME),
        optional(api_token_hash=sa.String(64), api_token_at=TIME),
        key=["instance_id"],
        refers={"instance_id": "instances", "session_id": "sessions"},
        indexes=[["session_id"]],
    )
    table(
        "disks",
        required(id=ID, session_id=ID, instance_id=ID, owner=NAME, cloud=CLOUD, price_usd_h=USD),
        required(since=TIME, until=TIME),
        optional(warned_at=TIME, ended_at=TIME),
        required(booked_h=WHOLE),
        refers={"session_id": "sessions", "instance_id": "instances"},
        indexes=[["session_id"]],
    )
    unique_where("uq_disks_open", "disks", "instance_id", "ended_at IS NULL")
    table(
        "strays",
        required(id=ID, cloud=CLOUD, account=ACCOUNT, ref=CLOUD_ID, label=LABEL, **STATE),
        optional(instance_id=ID),
        required(price_usd_h=USD, first_seen_at=TIME, last_seen_at=TIME),
        optional(billing_from=TIME),
        required(absent_at=JSON),
        optional(ended_at=TIME),
        required(reason=TEXT),
        refers={"instance_id": "instances"},
        unique=["cloud", "account", "ref"],
    )
