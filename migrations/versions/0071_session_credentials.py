"""Move keys and names of secrets from jobs to rows of their sessions, each with its person and until when it counted.

A key that came to another owner by a transfer, or by a copy of a transferred job, is stored as over. Shares are rows
already, so a job's list of them is only emptied: it still names people with whom nothing is shared any more.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Iterator
from datetime import datetime
from typing import Any, NamedTuple

import sqlalchemy as sa
from alembic import op

from migrations.baseline.table import ID, JSON, NAME, TEXT, TIME, optional, required, table

revision = "0071"
down_revision = "0070"
branch_labels = None
depends_on = None

BATCH = 500
_EMPTY: dict[str, Any] = {"public_key": None, "share": [], "secrets": []}

_requests: Any = sa.table(
    "requests",
    sa.column("id", ID),
    sa.column("parent_id", ID),
    sa.column("requester", NAME),
    sa.column("created_at", TIME),
    sa.column("job", JSON),
)
_sessions: Any = sa.table("sessions", sa.column("id", ID), sa.column("request_id", ID))
_transfers: Any = sa.table(
    "transfers",
    sa.column("session_id", ID),
    sa.column("from_owner", NAME),
    sa.column("state", sa.String(24)),
    sa.column("closed_at", TIME),
)
_migrations: Any = sa.table("migrations", sa.column("request_id", ID), sa.column("source_request_id", ID))
_shares: Any = sa.table("shares", sa.column("request_id", ID), sa.column("person", NAME), sa.column("created_at", TIME))
_credentials: Any = sa.table(
    "session_credentials",
    sa.column("request_id", ID),
    sa.column("kind", sa.String(24)),
    sa.column("name", NAME),
    sa.column("public_key", TEXT),
    sa.column("person", NAME),
    sa.column("added_by", NAME),
    sa.column("created_at", TIME),
    sa.column("until", TIME),
)


class _Left(NamedTuple):
    """Who gave a session away first, and when."""

    person: str
    at: datetime


def upgrade() -> None:
    """Create the table, copy what jobs name, and empty their fields."""
    table(
        "session_credentials",
        required(request_id=ID, kind=sa.String(24), name=NAME),
        optional(public_key=TEXT),
        required(person=NAME, added_by=NAME, created_at=TIME),
        optional(until=TIME),
        key=["request_id", "kind", "name"],
        refers={"request_id": "requests"},
    )
    if op.get_context().as_sql:
        op.execute("-- Printed steps can't read the jobs: their keys and names of secrets are copied by a run only.")
        return
    db = op.get_bind()
    left = _first_owners(db)
    moves = sa.select(_migrations.c.request_id, _migrations.c.source_request_id)
    sources: dict[str, str] = dict(db.execute(moves).all())
    brought = _keys_that_were_left(db, left)
    for row in _requests_with_jobs(db):
        if row.job == (emptied := {**row.job, **_EMPTY}):
            continue
        rows = [] if row.parent_id is not None else list(_rows(row, left, sources, brought))
        if rows:
            db.execute(sa.insert(_credentials), rows)
        if any(row.job.get(name) for name in _EMPTY):
            db.execute(sa.update(_requests).where(_requests.c.id == row.id).values(job=emptied))


def downgrade() -> None:
    """Write what counts now into the jobs again, and drop the table."""
    if op.get_context().as_sql:
        op.drop_table("session_credentials")
        return
    db = op.get_bind()
    said: dict[str, dict[str, Any]] = {}
    counts = sa.select(_credentials).where(_credentials.c.until.is_(None)).order_by(_credentials.c.created_at)
    for row in db.execute(counts):
        job = said.setdefault(row.request_id, {"share": [], "secrets": []})
        if row.kind == "secret":
            job["secrets"].append(row.name)
        else:
            job["public_key"] = row.public_key
    for row in db.execute(sa.select(_shares).order_by(_shares.c.created_at, _shares.c.person)):
        said.setdefault(row.request_id, {"share": [], "secrets": []})["share"].append(row.person)
    for request_id, job in said.items():
        mine = _requests.c.id == request_id
        before = db.execute(sa.select(_requests.c.job).where(mine)).scalar_one()
        db.execute(sa.update(_requests).where(mine).values(job={**before, **job}))
    op.drop_table("session_credentials")


def _requests_with_jobs(db: sa.Connection) -> Iterator[Any]:
    last = ""
    while rows := db.execute(
        sa.select(_requests).where(_requests.c.id > last).order_by(_requests.c.id).limit(BATCH)
    ).all():
        yield from rows
        last = rows[-1].id


def _first_owners(db: sa.Connection) -> dict[str, _Left]:
    """Return for each transferred session's request who gave it away first, and when."""
    query = (
        sa.select(_sessions.c.request_id, _transfers.c.from_owner, _transfers.c.closed_at)
        .join(_sessions, _sessions.c.id == _transfers.c.session_id)
        .where(_transfers.c.state == "accepted")
        .order_by(_transfers.c.closed_at.desc())
    )
    return {request_id: _Left(person, at) for request_id, person, at in db.execute(query)}


def _keys_that_were_left(db: sa.Connection, left: dict[str, _Left]) -> dict[str, list[_Left]]:
    """Return for each key of a transferred session whose it was, and since when a copy of it is another person's."""
    found: dict[str, list[_Left]] = {}
    for row in _requests_with_jobs(db):
        if row.id in left and (key := row.job.get("public_key")):
            found.setdefault(key, []).append(left[row.id])
    return found


def _rows(
    row: Any, left: dict[str, _Left], sources: dict[str, str], brought: dict[str, list[_Left]]
) -> Iterator[dict[str, Any]]:
    """Yield the rows of one request's key and secrets."""
    gone = left.get(row.id)
    person, until = (gone.person, gone.at) if gone is not None else (row.requester, None)
    same = {"request_id": row.id, "person": person, "added_by": person, "created_at": row.created_at, "until": until}
    key = row.job.get("public_key")
    if key and (name := _fingerprint(key)):
        copied = next((one for one in brought.get(key, ()) if one.at <= row.created_at), None)
        own = same
        if copied is not None and copied.person != person:
            own = {**same, "person": copied.person, "added_by": copied.person, "until": row.created_at}
        yield {**own, "kind": "ssh_key", "name": name, "public_key": key}
    source = _left_before(row, left, sources)
    if source is not None and until is None:
        same |= {"person": source.person, "added_by": source.person, "until": row.created_at}
    for name in dict.fromkeys(row.job.get("secrets") or ()):
        yield {**same, "kind": "secret", "name": name, "public_key": None}


def _left_before(row: Any, left: dict[str, _Left], sources: dict[str, str]) -> _Left | None:
    """Return who had given the run away when this request to move it was made; None where nobody had."""
    found, source = None, sources.get(row.id)
    while source is not None:
        if source in left and left[source].at <= row.created_at:
            found = left[source]
        source = sources.get(source)
    return found


def _fingerprint(key: str) -> str:
    try:
        digest = hashlib.sha256(base64.b64decode(key.split()[1])).digest()
    except (IndexError, binascii.Error):
        return ""
    return f"SHA256:{base64.b64encode(digest).decode().rstrip('=')}"
