"""Steps that several use-cases share: asking for an override, asking again, and closing what belongs together."""

from __future__ import annotations

import secrets
from dataclasses import replace
from datetime import datetime
from decimal import Decimal

from bot.rules import duration
from bot.services import warning
from ledger.courses import undecided
from ledger.events import announce, record
from ledger.lookups import (
    grants_of_session,
    instances_of_session,
    open_grants,
    open_instances_of_session,
    override_of,
    session_of,
)
from ledger.models import GrantRow, Instance, Request, Session, Token
from ledger.moves import move
from ledger.states import GrantState, InstanceState, NotificationKind, RequestState, SessionState
from ledger.values import SYSTEM, Actor, GrantKind, JobRequest, new_id
from ledger.weighing import OVERRIDE
from ledger.writes import Tx, amend, book


async def ask_override(
    tx: Tx, parent: Request, total_h: Decimal, sentence: str, now: datetime, *, due_at: datetime
) -> Request:
    """Open the request that a human must approve before anything above the 12-hour cap is bought.

    `total_h` are all hours that it allows: those that were billed before, and what may be held at the end, too.
    """
    job = JobRequest.from_json(parent.job)
    job = replace(job, already_hours=max(duration.rented(total_h) - job.hours, Decimal(0)))
    override = Request(
        id=new_id("req", now),
        kind=OVERRIDE,
        state=RequestState.PENDING,
        quote_version=1,
        inbox_key=f"override/{parent.id}/{parent.quote_version}",
        parent_id=parent.id,
        requester=parent.requester,
        job=job.to_json(),
        reason=parent.reason,
        channel=parent.channel,
        rule=sentence,
        required_approvals=1,
        expires_at=parent.expires_at,
        created_at=now,
        due_at=due_at,
    )
    tx.add(override)
    await tx.flush()
    for action in ("approve", "reject"):
        tx.add(Token(token=secrets.token_urlsafe(18), request_id=override.id, quote_version=1, action=action))
    record(tx, at=now, actor=SYSTEM, subject=override.id, kind="request.made", after=override.state, reason=sentence)
    await show_again(tx, override, now)
    return override


async def show_again(tx: Tx, request: Request, now: datetime) -> None:
    """Make the request's message due for another rendering."""
    await announce(tx, at=now, kind=NotificationKind.REQUEST_MESSAGE, subject=request.id, destination=request.channel)


async def ask_again(tx: Tx, request_id: str, sentence: str, now: datetime) -> None:
    """The approval no longer covers what can be bought: its authority ends and the request is quoted anew.

    `sentence` says why and stays on the message until the next decision. The session waits in QUEUED. Every machine
    that was rented for it, or may have been, is one that failed, and is never offered for this request again.
    """
    request, session = await tx.get_one(Request, request_id), await session_of(tx, request_id)
    rented = await instances_of_session(tx, session.id) if session else []
    failed = [row.machine_id for row in rented if row.machine_id and row.state is not InstanceState.REJECTED]
    machines = list(dict.fromkeys([*request.failed_machines, *failed]))
    await void_grants(tx, request_id, sentence, now)
    for grant in await grants_of_session(tx, session.id) if session else ():
        if grant.kind == GrantKind.EXTEND:  # It added to what was decided before, and a new decision takes its place.
            await release(tx, grant, now, spent_usd=Decimal(0))
    # What was asked about the machine that is gone is over: a new decision has its own hours and its own figure.
    await close_extensions(tx, request_id, sentence, now, SYSTEM)
    await move(
        tx,
        Request,
        request_id,
        RequestState.QUOTING,
        at=now,
        actor=SYSTEM,
        reason=sentence,
        only_from=frozenset({RequestState.APPROVED}),
        values={
            "outcome": sentence,
            "due_at": now,
            "claim_token": None,
            "claim_until": None,
            "decided_at": None,
            "decided_by": None,
            "failed_machines": machines,
        },
    )
    if session is None:
        return
    if session.state is SessionState.PROVISIONING:
        await move(tx, Session, session.id, SessionState.QUEUED, at=now, actor=SYSTEM, reason=sentence)
    # The next approval brings its own hours; the end of the last one must not cut them short.
    await warning.refresh(tx, session, now)
    await amend(tx, Session, session.id, deadline=None, warned_at=None, due_at=None)


async def void_grants(tx: Tx, request_id: str, sentence: str, now: datetime) -> None:
    """End every open authority of a request and give back what it reserved."""
    for grant in await open_grants(tx, request_id):
        await move(tx, GrantRow, grant.id, GrantState.VOID, at=now, actor=SYSTEM, reason=sentence)
        await release(tx, grant, now, spent_usd=Decimal(0))


async def reserve(tx: Tx, grant: GrantRow, now: datetime) -> None:
    """Set the grant's whole cap aside, in the transaction that creates the grant."""
    await book(
        tx,
        key=f"reserve/{grant.id}",
        kind="reserve",
        debit=f"reserved:{grant.id}",
        credit=f"authority:{grant.request_id}",
        amount_usd=grant.total_cap_usd,
        at=now,
        session_id=grant.session_id,
    )


async def release(tx: Tx, grant: GrantRow, now: datetime, *, spent_usd: Decimal) -> None:
    """Give a reservation back in full; what was spent stands in the accruals. Booked once per grant."""
    await book(
        tx,
        key=f"release/{grant.id}",
        kind="release",
        debit=f"authority:{grant.request_id}",
        credit=f"reserved:{grant.id}",
        amount_usd=grant.total_cap_usd,
        at=now,
        session_id=grant.session_id,
        note=f"spent {spent_usd}",
    )


async def withdraw_ready(tx: Tx, session_id: str, sentence: str, now: datetime, actor: Actor) -> None:
    """Take back intents that were never sent."""
    for instance in await open_instances_of_session(tx, session_id):
        if instance.state is InstanceState.READY:
            await move(
                tx,
                Instance,
                instance.id,
                InstanceState.REJECTED,
                at=now,
                actor=actor,
                reason=sentence,
                only_from=frozenset({InstanceState.READY}),
                values={"outcome": sentence, "due_at": None, "claim_token": None, "claim_until": None},
            )


async def end_waiting_session(tx: Tx, request_id: str, code: str, sentence: str, now: datetime) -> None:
    """A session whose request will not be approved again has failed; it holds nothing at any cloud.

    When it had a machine, what took that away is why it is over.
    """
    session = await session_of(tx, request_id)
    if session is not None and session.state is SessionState.QUEUED:
        had = [row for row in await instances_of_session(tx, session.id) if row.live_at is not None]
        sentence = f"{had[-1].outcome} {sentence}".strip() if had else sentence
        await move(
            tx,
            type(session),
            session.id,
            SessionState.FAILED,
            at=now,
            actor=SYSTEM,
            reason=sentence,
            only_from=frozenset({SessionState.QUEUED}),
            values={"end_code": code, "end_reason": sentence, "ended_at": now, "due_at": None},
        )


async def close_override(tx: Tx, request_id: str, sentence: str, now: datetime, actor: Actor) -> None:
    """What was decided needs no override: the question about more hours is over, and its message says so."""
    override = await override_of(tx, request_id)
    if override is not None and override.state is RequestState.PENDING:
        closed = {"outcome": sentence, "decided_at": now, "decided_by": actor.ref, "due_at": None}
        to = RequestState.CANCELLED
        await move(tx, Request, override.id, to, at=now, actor=actor, reason=sentence, values=closed)


async def close_extensions(tx: Tx, request_id: str, sentence: str, now: datetime, actor: Actor) -> None:
    """A session that ends needs no more time and no other figure: withdraw what was asked and is not decided."""
    for asked in await undecided(tx, request_id, ("extend", "drift_reconfirm")):
        closed = {"outcome": sentence, "decided_at": now, "decided_by": actor.ref, "due_at": None}
        await move(tx, Request, asked.id, RequestState.CANCELLED, at=now, actor=actor, reason=sentence, values=closed)


async def close_family(tx: Tx, request: Request, to: RequestState, sentence: str, now: datetime, actor: Actor) -> None:
    """When a request ends undecided or refused, so do its override request and its waiting session, and vice versa.

    Nobody's word on more time, or on a figure, is a word on the request whose session that is.
    """
    relatives = [await override_of(tx, request.id)]
    if request.parent_id and request.kind == OVERRIDE:
        relatives.append(await tx.get(Request, request.parent_id))
    for relative in relatives:
        if relative is not None and relative.state in (RequestState.QUOTING, RequestState.PENDING):
            reached = to if relative.state is RequestState.PENDING else RequestState.CANCELLED
            await move(
                tx,
                Request,
                relative.id,
                reached,
                at=now,
                actor=actor,
                reason=sentence,
                values={
                    "outcome": sentence,
                    "due_at": None,
                    "claim_token": None,
                    "claim_until": None,
                    "decided_at": now,
                    "decided_by": actor.ref,
                },
            )
            await end_waiting_session(tx, relative.id, str(to), sentence, now)
    await end_waiting_session(tx, request.id, str(to), sentence, now)
