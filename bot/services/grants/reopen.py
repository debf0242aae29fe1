"""Reopen a request whose approval no longer covers what can be bought, and close the requests related to it."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal

from bot.services.grants import advances
from bot.services.grants.reservations import release, void_grants
from bot.services.grants.set_aside import return_to_grace
from bot.services.notifications import end_of_session
from bot.services.notifications.job_ended import record_waiting_job
from ledger.core import Tx, amend, decide, move
from ledger.kernel.actor import SYSTEM, Actor
from ledger.kernel.end_reason import EndReason
from ledger.kernel.grant import GrantKind
from ledger.kernel.request_kind import ABOUT_SESSION, RequestKind
from ledger.kernel.states import InstanceState, RequestState, SessionState
from ledger.models import Request, Session
from ledger.queries.lookups import grants_of_session, instances_of_session, override_of, session_of
from ledger.queries.overspend import undecided

#: The end reason of a session that waits for a launch, by the final state of its request.
_UNDECIDED = {
    RequestState.REJECTED: EndReason.REJECTED,
    RequestState.CANCELLED: EndReason.CANCELLED,
    RequestState.EXPIRED: EndReason.EXPIRED,
}


async def reopen_request(tx: Tx, request_id: str, sentence: str, now: datetime) -> None:
    """Void the approval of a request that no longer covers what can be bought, and quote the request again.

    `sentence` says why and stays on the message until the next decision. The session waits in QUEUED. Every machine
    that was rented for it, or may have been, counts as failed and is never offered for this request again. A set of
    machines is not reopened: its other machines may run, and it ends (`node_sets`). Neither is one with a machine in
    grace, which its session returns to.
    """
    request, session = await tx.get_one(Request, request_id), await session_of(tx, request_id)
    if session is not None and (session.nodes > 1 or await return_to_grace(tx, session, sentence, now)):
        return
    rented = await instances_of_session(tx, session.id) if session else []
    failed = [row.machine_id for row in rented if row.machine_id and row.state is not InstanceState.REJECTED]
    machines = list(dict.fromkeys([*request.failed_machines, *failed]))
    await void_grants(tx, request_id, sentence, now)
    for grant in await grants_of_session(tx, session.id) if session else ():
        if grant.kind == GrantKind.EXTEND:  # It extended the old decision, which the new one replaces.
            await release(tx, grant, now, spent_usd=Decimal(0))
    # Open extension and cost requests were about the lost instance: the new decision has its own hours and cost.
    await close_extensions(tx, request_id, sentence, now, SYSTEM)
    values = {"outcome": sentence, "due_at": now, "decided_at": None, "decided_by": None, "failed_machines": machines}
    approved = frozenset({RequestState.APPROVED})
    await move(tx, Request, request_id, RequestState.QUOTING, now, SYSTEM, sentence, only_from=approved, values=values)
    if session is None:
        return
    if session.state is SessionState.PROVISIONING:
        await move(tx, Session, session.id, SessionState.QUEUED, now, SYSTEM, sentence)
    # The next approval brings its own hours; the end of the last one must not cut them short.
    await end_of_session.refresh(tx, session, now)
    await amend(tx, Session, session.id, deadline=None, warned_at=None, due_at=None)


async def end_request(tx: Tx, request_id: str, sentence: str, now: datetime) -> None:
    """End a request that was approved, but that nothing can be bought for any more. A set ends with `node_sets`."""
    await reopen_request(tx, request_id, sentence, now)
    request = await tx.get_one(Request, request_id, populate_existing=True)
    if request.state is not RequestState.QUOTING:
        return
    to, values = RequestState.UNAVAILABLE, {"outcome": sentence}
    await move(tx, Request, request_id, to, now, SYSTEM, sentence, values=values)
    await advances.void_all(tx, request_id, sentence, now)
    await end_waiting_session(tx, request_id, EndReason.NO_OFFER, sentence, now)


async def end_waiting_session(tx: Tx, request_id: str, code: EndReason, sentence: str, now: datetime) -> None:
    """Fail a waiting session whose request is not approved again; why its last instance ended comes first."""
    session = await session_of(tx, request_id)
    if session is not None and session.state is SessionState.QUEUED:
        had = [row for row in await instances_of_session(tx, session.id) if row.live_at is not None]
        sentence = f"{had[-1].outcome} {sentence}".strip() if had else sentence
        to, before = SessionState.FAILED, frozenset({SessionState.QUEUED})
        await record_waiting_job(tx, session, code, now)
        values = {"end_code": code, "end_reason": sentence, "ended_at": now}
        await move(tx, Session, session.id, to, now, SYSTEM, sentence, only_from=before, values=values)


async def close_extensions(tx: Tx, request_id: str, sentence: str, now: datetime, actor: Actor) -> None:
    """Cancel the undecided extension and cost requests of a session that ends."""
    for asked in await undecided(tx, request_id, ABOUT_SESSION):
        await decide(tx, asked.id, RequestState.CANCELLED, now, actor, sentence)


async def close_family(tx: Tx, request: Request, to: RequestState, sentence: str, now: datetime, actor: Actor) -> None:
    """Close the override request and the waiting session of a request that ends undecided or refused, and vice versa.

    Closing an extension or cost request does not close its parent request.
    """
    relatives = [await override_of(tx, request.id)]
    if request.parent_id and request.kind is RequestKind.OVERRIDE_12H:
        relatives.append(await tx.get(Request, request.parent_id))
    for relative in relatives:
        if relative is not None and relative.state in (RequestState.QUOTING, RequestState.PENDING):
            reached = to if relative.state is RequestState.PENDING else RequestState.CANCELLED
            await decide(tx, relative.id, reached, now, actor, sentence)
            await end_waiting_session(tx, relative.id, _UNDECIDED[to], sentence, now)
    await advances.void_all(tx, request.id, sentence, now, actor)
    await end_waiting_session(tx, request.id, _UNDECIDED[to], sentence, now)
