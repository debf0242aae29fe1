"""Close the runs of a batch cloud, which nothing can end from outside and whose absence no listing proves.

A run ends by its own final status, or by the timeout that it was pushed with and a margin, whichever is seen first.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from decimal import Decimal
from typing import NamedTuple

from bot.services.instances.transitions import adopt, gone
from bot.services.runtime.context import Context
from ledger.core import Tx, amend, move
from ledger.kernel.actor import SYSTEM
from ledger.kernel.end_reason import EndReason
from ledger.kernel.proof import ProofOfEnd
from ledger.kernel.states import InstanceState, SessionState
from ledger.models import GrantRow, Instance, Session
from providers.contract import InstanceStatus, Listing, ObservedInstance

BY_TIMEOUT = "Its cloud never reported its final status. It counts as ended half an hour after its timeout."


class RunVerdict(NamedTuple):
    """How a run ended: the code for programs and the sentence for people."""

    code: EndReason
    sentence: str


async def close_run(ctx: Context, row: Instance, listing: Listing) -> bool:
    """Close the row of a run that has ended. True when something changed; False while the run may continue.

    A push with an unknown outcome whose run has ended is adopted first, and closed in the next reconcile pass.
    """
    item = next((i for i in listing.items if i.ref == row.ref or (row.ref is None and i.name == row.name)), None)
    ended = item is not None and item.status is InstanceStatus.TERMINATED
    now = ctx.clock.now()
    async with ctx.db.write() as tx:
        if row.state is InstanceState.UNKNOWN:
            if item is None or not ended:
                return False
            await adopt(ctx, tx, row.id, item, now)
            return True
        if item is not None and ended:
            proof: ProofOfEnd | None = ProofOfEnd.from_final_status(row.account, listing.at)
        else:
            proof = await _timed_out(tx, row, now)
        if proof is None:
            return False
        await _close(ctx, tx, row, proof, item if ended else None, now)
    return True


async def _timed_out(tx: Tx, row: Instance, now: datetime) -> ProofOfEnd | None:
    """Return the proof of end of a run whose timeout, its grant's hours at most, has passed; None before that."""
    grant = await tx.get_one(GrantRow, row.grant_id)
    timeout = timedelta(hours=float(Decimal(grant.hours)))
    return ProofOfEnd.from_timeout(row.account, row.live_at or row.created_at, timeout, now)


async def _close(
    ctx: Context, tx: Tx, row: Instance, proof: ProofOfEnd, item: ObservedInstance | None, now: datetime
) -> None:
    """End instance and session with what the run itself reports. Nothing is pushed again without a new approval."""
    ended_by: str
    ended_by, sentence = _verdict(row, item)
    session = await tx.get_one(Session, row.session_id, populate_existing=True)
    if session.state is SessionState.TERMINATING:
        sentence = f"{session.end_reason} {sentence}".strip()
        ended_by = session.end_code
        await amend(tx, Session, session.id, end_reason=sentence)
    else:
        values = {
            "end_code": ended_by,
            "end_reason": sentence,
        }
        await move(tx, Session, session.id, SessionState.TERMINATING, now, SYSTEM, sentence, values=values)
    ended_at = (item.ended_at if item else None) or min(proof.at, now)
    await gone(ctx, tx, row, proof, ended_at, now, outcome=(ended_by, sentence))


def _verdict(row: Instance, item: ObservedInstance | None) -> RunVerdict:
    if item is None:
        return RunVerdict(EndReason.RUN_TIMEOUT, BY_TIMEOUT)
    if item.succeeded:
        return RunVerdict(EndReason.RUN_COMPLETED, f"The run at {row.cloud} succeeded.")
    return RunVerdict(EndReason.RUN_FAILED, f"The run at {row.cloud} failed ({item.status_text or item.status}).")
