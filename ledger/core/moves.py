"""Change states, in the only place that does: one guarded UPDATE, its journal row and its notifications."""

from __future__ import annotations

from datetime import datetime
from typing import Any, TypeVar

from sqlalchemy import select, update
from sqlalchemy.ext.asyncio import AsyncSession

from ledger.core.events import announce, announce_again, record
from ledger.core.locks import lock_family
from ledger.kernel.actor import Actor, ActorKind
from ledger.kernel.event_kind import EventKind
from ledger.kernel.proof import ProofOfEnd
from ledger.kernel.request_kind import RequestKind
from ledger.kernel.states import (
    OUTDATED,
    GrantState,
    InstanceState,
    NotificationKind,
    OrphanState,
    RequestState,
    SessionState,
    State,
    announced,
    claim_goes_on,
    is_terminal,
    nothing_due,
    reachable,
    sources,
)
from ledger.models import AdvanceApproval, GrantRow, Instance, Orphan, Request, Session, Share

Row = TypeVar("Row", Request, GrantRow, AdvanceApproval, Session, Instance, Orphan)

#: The rows that jobs claim.
CLAIMED: tuple[type[Any], ...] = (Request, Session, Instance)


#: What the audit log calls a move, by machine.
MOVED: dict[type[State], EventKind] = {
    RequestState: EventKind.REQUEST_MOVED,
    GrantState: EventKind.GRANT_MOVED,
    SessionState: EventKind.SESSION_MOVED,
    InstanceState: EventKind.INSTANCE_MOVED,
    OrphanState: EventKind.ORPHAN_MOVED,
}


class MoveError(Exception):
    """Say that a move did not happen; `row_id`, `now` and `to` say which."""

    def __init__(self, row_id: str, now: str, to: str) -> None:
        super().__init__(f"{row_id} is {now} and did not become {to}")
        self.row_id = row_id
        self.now = now
        self.to = to


class StaleMove(MoveError):
    """Say that somebody else moved the row first, or that the claim of this work is lost."""


class IllegalMove(MoveError):
    """Say that no legal move leads from the row's history to this state: a bug in the caller."""


class ProofMissing(TypeError):
    """Say that a move of an instance to GONE was tried without a `ProofOfEnd`."""


async def move(
    tx: AsyncSession,
    model: type[Row],
    row_id: str,
    to: State,
    at: datetime,
    actor: Actor,
    reason: str = "",
    *,
    only_from: frozenset[State] | None = None,
    version: int | None = None,
    claim: str | None = None,
    proof: ProofOfEnd | None = None,
    values: dict[str, Any] | None = None,
    noted: dict[str, Any] | None = None,
) -> Row:
    """Move one row to `to` and return it as it is now.

    The WHERE clause comes from the table of legal moves, narrowed by `only_from`, `version` (the row's version that
    the decision was made on) and `claim` (the token under which the work was done); `noted` goes into the journal. The
    claim ends here, unless it `claim_goes_on`. Raises `StaleMove` when the row has moved on, `IllegalMove` when it
    could never have come here, `LookupError` for an unknown id.
    """
    if to is InstanceState.GONE and proof is None:
        raise ProofMissing(f"{row_id}: only a ProofOfEnd moves an instance to gone")
    _refuse_misuse(model, to, claim, values or {})
    await lock_family(tx, model, row_id)
    allowed = sources(to) if only_from is None else sources(to) & only_from
    before = (
        await tx.execute(select(model.state, model.version).where(model.id == row_id).with_for_update(key_share=True))
    ).first()
    if before is None:
        raise LookupError(f"there is no {model.__tablename__} row {row_id}")
    where = [model.id == row_id, model.state.in_(allowed), model.version == before.version]
    if version is not None:
        where.append(model.version == version)
    if claim is not None:
        where.append(model.claim_token == claim)  # type: ignore[attr-defined] # Checked above.
    changed = {"state": to, "version": model.version + 1, **_freed(to), **(values or {})}
    row = (
        await tx.execute(
            update(model).where(*where).values(changed).returning(model).execution_options(populate_existing=True)
        )
    ).scalar_one_or_none()
    if row is None:
        raise _refusal(row_id, before.state, to)
    record(
        tx,
        at,
        actor,
        row_id,
        MOVED[type(to)],
        before=str(before.state),
        after=str(to),
        reason=reason,
        data=_evidence(proof) | (noted or {}),
    )
    await _tell(tx, row, to, at)
    return row


async def decide(
    tx: AsyncSession,
    request_id: str,
    to: RequestState,
    at: datetime,
    actor: Actor,
    reason: str,
    *,
    outcome: str | None = None,
    only_from: frozenset[State] | None = None,
    noted: dict[str, Any] | None = None,
    values: dict[str, Any] | None = None,
) -> Request:
    """Move a request to its decided state, and store when, by whom, and why: the reason, unless `outcome` is given."""
    said = reason if outcome is None else outcome
    decided = {"outcome": said, "decided_at": at, "decided_by": actor.ref, **(values or {})}
    return await move(tx, Request, request_id, to, at, actor, reason, only_from=only_from, noted=noted, values=decided)


def _freed(to: State) -> dict[str, Any]:
    """Return the columns by which a claim ends with the move, and by which no job looks again at a finished row."""
    if isinstance(to, GrantState | OrphanState):
        return {}
    freed: dict[str, Any] = {} if claim_goes_on(to) else {"claim_token": None, "claim_until": None}
    return freed | ({"due_at": None} if nothing_due(to) else {})


def _evidence(proof: ProofOfEnd | None) -> dict[str, Any]:
    return {"proof": str(proof.kind), "evidence": [t.isoformat() for t in proof.evidence]} if proof else {}


def _refuse_misuse(model: type[Any], to: State, claim: str | None, values: dict[str, Any]) -> None:
    """Raise TypeError for a call that could only do something else than it says."""
    if type(to) is not model.state.type.enum:
        raise TypeError(f"{to!r} is a state of another machine than {model.__name__}'s")
    if not values.keys().isdisjoint({"id", "state", "version"}):
        raise TypeError("a move sets id, state and version itself; values are the other columns")
    if claim is not None and model not in CLAIMED:
        raise TypeError(f"{model.__name__} rows are not claimed, so a claim cannot guard their moves")


def _refusal(row_id: str, now: State, to: State) -> MoveError:
    """Distinguish a lost race from a bug: after a race the row is where a legal history leads."""
    followed = is_terminal(now) or any(now == state or now in reachable(state) for state in sources(to))
    return (StaleMove if followed else IllegalMove)(row_id, str(now), str(to))


async def _tell(
    tx: AsyncSession, row: Request | GrantRow | AdvanceApproval | Session | Instance | Orphan, to: State, at: datetime
) -> None:
    """Make the notifications of a move due, and again those that it leaves behind, to say what became of them."""
    for kind in announced(to):
        await _announce(tx, row, to, kind, at)
    of_session, of_request = OUTDATED.get(to, (frozenset(), frozenset()))
    if of_session:
        await announce_again(tx, at, of_session, row.id)
    if of_request:
        await announce_again(tx, at, of_request, row.request_id if isinstance(row, Session) else row.id)


async def _announce(
    tx: AsyncSession,
    row: Request | GrantRow | AdvanceApproval | Session | Instance | Orphan,
    to: State,
    kind: NotificationKind,
    at: datetime,
) -> None:
    """Find out where the notification of this move is read, and make it due there."""
    if isinstance(row, Orphan):
        await announce(tx, at, kind, row.id, destination="channel:operators")
        return
    request = row if isinstance(row, Request) else await tx.get_one(Request, row.request_id)
    if request.kind is RequestKind.OVERRIDE_12H and request.parent_id:
        # An override has no message of its own: it is decided on the card of the request that needs it.
        if kind is not NotificationKind.REQUEST_MESSAGE:
            return
        request = await tx.get_one(Request, request.parent_id)
    subject, destination = request.card_id, request.channel
    owner = Actor.from_ref(request.requester)
    direct = kind in (NotificationKind.SESSION_READY, NotificationKind.SESSION_ENDED)
    replied = kind is NotificationKind.REQUEST_RESULT and isinstance(to, SessionState)
    # One message for one fact: a person in Slack reads it directly, so the thread has no reply about it.
    if replied and owner.kind is ActorKind.SLACK:
        return
    if kind is NotificationKind.REQUEST_RESULT:
        # Each outcome is a reply of its own in the thread, so its subject names the state that was reached.
        subject = f"{request.id}/{to}"
    elif direct:
        # Who answers for a program or an operator is looked up at the delivery: the policy and the keys know it.
        subject, destination = row.id, direct_to(request.requester)
    await announce(tx, at, kind, subject, destination=destination)
    if kind is NotificationKind.SESSION_READY:
        # Whoever shares the machine logs in as well.
        for ref in await tx.scalars(select(Share.person).where(Share.request_id == request.id).order_by(Share.person)):
            await announce(tx, at, kind, subject, destination=direct_to(ref))


def direct_to(ref: str) -> str:
    """Return the destination of a direct message to the actor of a reference."""
    person = Actor.from_ref(ref)
    return person.id if person.kind is ActorKind.SLACK else person.ref
