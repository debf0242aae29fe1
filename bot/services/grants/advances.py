"""Void approvals in advance: their request ended, was approved otherwise, or is asked as usual."""

from __future__ import annotations

from datetime import datetime

from ledger.core import Tx, move
from ledger.kernel.actor import SYSTEM, Actor
from ledger.kernel.states import GrantState
from ledger.models import AdvanceApproval
from ledger.queries.lookups import open_advances


async def void_all(tx: Tx, request_id: str, sentence: str, now: datetime, actor: Actor = SYSTEM) -> None:
    """Void every open approval in advance of a request; with that it reserves no budget any more."""
    for row in await open_advances(tx, request_id):
        await move(tx, AdvanceApproval, row.id, GrantState.VOID, now, actor, sentence)
