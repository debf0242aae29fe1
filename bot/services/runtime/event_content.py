"""Return an event of the journal as plain JSON: what is hashed, exported, and named by the epoch."""

from __future__ import annotations

from datetime import UTC
from typing import Any

from bot.rules.audit.hash_chain import START, event_hash
from bot.rules.instances.ledger_age import NamedEvent
from ledger.kernel.columns import storable_json
from ledger.models import Event


def content(event: Event) -> dict[str, Any]:
    """Return an event as plain JSON: what is hashed, and what an export has on each line."""
    return {
        "id": event.id,
        "at": event.at.astimezone(UTC).isoformat(),
        "actor": event.actor,
        "subject": event.subject,
        "kind": event.kind,
        "before": event.before,
        "after": event.after,
        "reason": event.reason,
        "data": event.data,
    }


def named_event(event: Event) -> NamedEvent:
    """Return how the epoch names an event: by its id and the hash of its content alone, as it is stored."""
    return NamedEvent(event.id, event_hash(START, storable_json(content(event))))
