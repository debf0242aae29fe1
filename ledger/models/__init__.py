"""Define the rows that services read and write, and each fact only once.

`state` is assigned when a row is made and changed only by `ledger.core.moves`; the listener below refuses every other
assignment. `version` counts moves. `due_at`, `claim_token` and `claim_until` belong to `core.claims`: a row is due when
`due_at` has passed, and None means that nothing is to be done.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import event, inspect

from ledger.models.access import ApiAnswer, ApiKey, BudgetLimit, Consumer, Share, Webhook, WebhookDelivery
from ledger.models.base import Base, Claimable
from ledger.models.costs import (
    BillLine,
    EntryHash,
    ExternalCost,
    Facet,
    OpenSpend,
    Rollup,
    SessionOpenSpend,
    Unrolled,
    UnsettledSpend,
)
from ledger.models.graces import GraceRow
from ledger.models.jobs import CommandClaim, CommandResult, ResumePoint
from ledger.models.journal import (
    Event,
    EventHash,
    EventOrder,
    Inbox,
    LedgerEntry,
    Mark,
    Notification,
    SshKey,
    TurnRow,
    UnnumberedEvent,
)
from ledger.models.people import MachineKey, Secret, SessionCredential, Transfer
from ledger.models.relocations import Migration
from ledger.models.requests import (
    AdvanceApproval,
    Approval,
    CountedRequest,
    Delegation,
    GrantRow,
    Option,
    Quote,
    Request,
    Token,
    WaitLimits,
)
from ledger.models.retired import keep_retired
from ledger.models.sessions import Disk, Instance, Node, Orphan, Session

keep_retired()

__all__ = [
    "MOVABLE",
    "AdvanceApproval",
    "ApiAnswer",
    "ApiKey",
    "Approval",
    "Base",
    "BillLine",
    "BudgetLimit",
    "Claimable",
    "CommandClaim",
    "CommandResult",
    "Consumer",
    "CountedRequest",
    "Delegation",
    "Disk",
    "EntryHash",
    "Event",
    "EventHash",
    "EventOrder",
    "ExternalCost",
    "Facet",
    "GraceRow",
    "GrantRow",
    "Inbox",
    "Instance",
    "LedgerEntry",
    "MachineKey",
    "Mark",
    "Migration",
    "Node",
    "Notification",
    "OpenSpend",
    "Option",
    "Orphan",
    "Quote",
    "Request",
    "ResumePoint",
    "Rollup",
    "Secret",
    "Session",
    "SessionCredential",
    "SessionOpenSpend",
    "Share",
    "SshKey",
    "StateAssigned",
    "Token",
    "Transfer",
    "TurnRow",
    "UnnumberedEvent",
    "Unrolled",
    "UnsettledSpend",
    "WaitLimits",
    "Webhook",
    "WebhookDelivery",
]

#: The rows whose state only `ledger.core.moves` changes.
MOVABLE = (Request, GrantRow, AdvanceApproval, Session, Instance, Orphan)


class StateAssigned(TypeError):
    """Refuse `row.state = …` on a stored row. `ledger.core.moves.move` checks, records and announces."""


def _refuse_assignment(target: Any, *_: Any) -> None:
    if inspect(target).has_identity:
        raise StateAssigned(f"{type(target).__name__}.state is changed only by ledger.core.moves.move")


for _model in MOVABLE:
    event.listen(_model.state, "set", _refuse_assignment)
