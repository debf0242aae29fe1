"""Write the ledger: moves, claims, locks, events, inbox, outbox and entries."""

from ledger.core.claims import Claim, claim, claim_deliveries, claim_rows, release, wake
from ledger.core.events import announce, announce_once, record
from ledger.core.locks import (
    lock_auto_approval,
    lock_budgets,
    lock_families,
    lock_family,
    lock_journal,
    lock_open_spend,
    lock_orphan,
    lock_requester,
    lock_rollup,
)
from ledger.core.moves import MOVED, StaleMove, decide, move
from ledger.core.outbox import (
    notification_dead,
    notification_of,
    notification_sent,
    notifications_of,
)
from ledger.core.put_off import bring_forward, put_off
from ledger.core.writes import NewEntry, Tx, add_request, amend, book, book_all

__all__ = [
    "MOVED",
    "Claim",
    "NewEntry",
    "StaleMove",
    "Tx",
    "add_request",
    "amend",
    "announce",
    "announce_once",
    "book",
    "book_all",
    "bring_forward",
    "claim",
    "claim_deliveries",
    "claim_rows",
    "decide",
    "lock_auto_approval",
    "lock_budgets",
    "lock_families",
    "lock_family",
    "lock_journal",
    "lock_open_spend",
    "lock_orphan",
    "lock_requester",
    "lock_rollup",
    "move",
    "notification_dead",
    "notification_of",
    "notification_sent",
    "notifications_of",
    "put_off",
    "record",
    "release",
    "wake",
]
