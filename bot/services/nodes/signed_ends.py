"""Compare the ends that agents have with the ledger, which is older where an agent has a newer one.

A check-in is stored before its answer is sent. So a signed end whose number is above that of the last stored check-in
is from a part of the ledger that is lost. Beside an older ledger an agent keeps the latest end that it has.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from cryptography.exceptions import InvalidSignature

from bot.rules.values.labels import LabelKey
from bot.services.nodes.enrollment import signing_key
from bot.services.notifications import end_of_session
from bot.services.runtime import older_ledger
from bot.wire.checkin import Checkin
from ledger.core import Tx, amend, lock_family
from ledger.kernel.states import ENDABLE_SESSION
from ledger.models import Session
from ledger.queries.nodes import NodeContext
from ledger.queries.recovery.older import rows_of


@dataclass(frozen=True, slots=True)
class SignedEnd:
    """The newest end that an agent has, and the number of the check-in that it answered."""

    number: int
    ends_at: datetime | None


def read(labels: LabelKey, instance_id: str, report: Checkin) -> SignedEnd | None:
    """Return the end that an agent has; None where it shows none, or one that was not signed here for it."""
    if report.signed_end is None:
        return None
    message, signature = report.signed_end.message, report.signed_end.signature
    try:
        signing_key(labels).public_key().verify(base64.b64decode(signature, validate=True), message.encode())
        content = json.loads(message)
        number, end_s = content["n"], content["deadline_s"]
    except (InvalidSignature, binascii.Error, ValueError, KeyError):
        return None
    if content.get("instance") != instance_id:
        return None
    return SignedEnd(int(number), None if end_s is None else datetime.fromtimestamp(end_s, UTC))


def shows_more(stands: NodeContext, signed: SignedEnd | None, stored_seq: int) -> bool:
    """Whether an agent has an end that the ledger lacks: a newer one, or a later one beside an older ledger."""
    if signed is None:
        return False
    return signed.number > stored_seq or (stands.older_since is not None and _is_later(stands, signed))


def end_to_sign(stands: NodeContext, signed: SignedEnd | None, stored_seq: int) -> datetime | None:
    """Return the approved end to sign for an agent; None: it keeps the one that it has.

    Beside an older ledger an end is signed only for an agent that shows an earlier one.
    """
    is_older = stands.older_since is not None or (signed is not None and signed.number > stored_seq)
    if is_older and (signed is None or _is_later(stands, signed)):
        return None
    return stands.approved_until


def _is_later(stands: NodeContext, signed: SignedEnd) -> bool:
    until = stands.approved_until
    return signed.ends_at is not None and (until is None or signed.ends_at.timestamp() > int(until.timestamp()))


async def take(tx: Tx, signed: Mapping[str, SignedEnd], now: datetime) -> None:
    """Note that the ledger is older, and take into it the later ends that agents have. `signed` is by instance."""
    instances, sessions = await rows_of(tx, sorted(signed))
    later = []
    for instance_id, row in sorted(instances.items()):
        end, session = signed[instance_id].ends_at, sessions[row.session_id]
        await lock_family(tx, Session, session.id)
        session = await tx.get_one(Session, session.id, populate_existing=True)
        if end is None or session.deadline is None or session.state not in ENDABLE_SESSION or end <= session.deadline:
            continue
        later.append(older_ledger.record_later_end(tx, session, end, now))
        await end_of_session.refresh(tx, session, now)
        await amend(tx, Session, session.id, deadline=end, due_at=now, warned_at=None)
    await older_ledger.contradicted(tx, now, later)
