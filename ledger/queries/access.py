"""Read and write API keys, stored answers, shares and people's names: look up, make, forget. Services judge them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, and_, bindparam, delete, or_, select, update
from sqlalchemy.ext.asyncio import AsyncSession

from ledger.engine.db import insert_for
from ledger.kernel.actor import Actor, ActorKind
from ledger.kernel.event_kind import EventKind
from ledger.models import ApiAnswer, ApiKey, Consumer, Event, Instance, Mark, Orphan, Request, Session, Share

PERSON = "person/"
#: The first mark after every one that begins with `PERSON`.
_AFTER_PERSONS = "person0"


@dataclass(frozen=True, slots=True)
class Whose:
    """Name one person in every way that rows do: exact references, and Slack ids of an unknown team."""

    refs: frozenset[str] = field(default=frozenset())
    slack_ids: frozenset[str] = field(default=frozenset())

    @classmethod
    def of(cls, actors: Collection[Actor]) -> Whose:
        """Collect the names of these actors."""
        slack = [actor for actor in actors if actor.kind is ActorKind.SLACK]
        # A policy may name a Slack account without its team, so that name is this person's too.
        teamless = (Actor(ActorKind.SLACK, actor.id).ref for actor in slack)
        refs = frozenset([*(actor.ref for actor in actors), *teamless])
        return cls(refs, frozenset(actor.id for actor in slack if not actor.team))

    def __contains__(self, ref: str) -> bool:
        """Whether something that belongs to `ref` belongs to this person."""
        kind, _, name = ref.partition(":")
        return ref in self.refs or (kind == ActorKind.SLACK and name.rpartition("/")[2] in self.slack_ids)

    def where(self, column: Any) -> ColumnElement[bool]:
        """Build the same check as a condition on a column of references."""
        slack = [column.like(f"{ActorKind.SLACK}:%/{name}") for name in sorted(self.slack_ids)]
        return or_(column.in_(sorted(self.refs)), *slack)


async def shared_with(tx: AsyncSession, request_ids: Collection[str]) -> dict[str, tuple[str, ...]]:
    """Return the people with whom each of these requests is shared, in the order in which they were named."""
    found: dict[str, list[str]] = defaultdict(list)
    mine = select(Share).where(Share.request_id.in_(list(request_ids)))
    for one in await tx.scalars(mine.order_by(Share.created_at, Share.person)):
        found[one.request_id].append(one.person)
    return {request_id: tuple(people) for request_id, people in found.items()}


async def owned_sessions(tx: AsyncSession, ids: Collection[str], whose: Whose) -> set[str]:
    """Return those of the sessions `ids` that belong to `whose`."""
    query = select(Session.id).where(Session.id.in_(ids), whose.where(Session.owner))
    return set(await tx.scalars(query))


def own_or_shared(whose: Whose, owner: Any, request_id: Any) -> ColumnElement[bool]:
    """Build the condition for what somebody owns, or for what belongs to a request that is shared with them."""
    return or_(whose.where(owner), request_id.in_(select(Share.request_id).where(whose.where(Share.person))))


def about(whose: Whose) -> ColumnElement[bool]:
    """Select events of requests, sessions, instances and orphans of one person, and of their own budgets."""
    sessions = select(Session.id).where(whose.where(Session.owner))
    instances = select(Instance.id).where(Instance.session_id.in_(sessions))
    users = [f"user:{Actor.from_ref(ref).id}" for ref in whose.refs if Actor.from_ref(ref).kind is ActorKind.SLACK]
    budgets = sorted({*whose.refs, *users, *(f"user:{ref}" for ref in whose.refs)})
    return or_(
        Event.subject.in_(select(Request.id).where(whose.where(Request.requester))),
        Event.subject.in_(sessions),
        Event.subject.in_(instances),
        Event.subject.in_(select(Orphan.id).where(Orphan.instance_id.in_(instances))),
        and_(Event.kind == EventKind.BUDGET_THRESHOLD, Event.subject.in_(budgets)),
    )


async def consumer_of(tx: AsyncSession, actor: str) -> Consumer | None:
    """Return the person or program that holds keys under this name."""
    return await tx.get(Consumer, actor)


async def answering_for(tx: AsyncSession, actors: Collection[str]) -> dict[str, str]:
    """Return who answers for each of these people and programs; those that hold no keys are left out."""
    found = await tx.scalars(select(Consumer).where(Consumer.actor.in_(sorted(actors))))
    return {one.actor: one.owner for one in found}


async def consumers_owned(tx: AsyncSession, whose: Whose) -> list[Actor]:
    """Return the programs that one person answers for."""
    found = await tx.scalars(select(Consumer.actor).where(whose.where(Consumer.owner)).order_by(Consumer.actor))
    return [Actor.from_ref(ref) for ref in found]


async def lock_consumer(tx: AsyncSession, actor: str, owner: str, by: str, at: datetime) -> Consumer:
    """Store the consumer when it is new and lock its row until the transaction ends: its keys are counted next."""
    insert = insert_for(tx, Consumer).values(actor=actor, owner=owner, created_at=at, created_by=by)
    await tx.execute(insert.on_conflict_do_nothing(index_elements=["actor"]))
    return (await tx.scalars(select(Consumer).where(Consumer.actor == actor).with_for_update())).one()


async def api_key(tx: AsyncSession, key_id: str) -> tuple[ApiKey, Consumer] | None:
    """Return one key with its holder, in one query."""
    query = select(ApiKey, Consumer).join(Consumer, Consumer.actor == ApiKey.actor).where(ApiKey.id == key_id)
    found = (await tx.execute(query)).first()
    return None if found is None else (found[0], found[1])


class KeyFacts(NamedTuple):
    """Hold what a call with an API key is judged by: each call reads it, so no objects are built."""

    id: str
    actor: str
    scopes: list[str]
    secret_hash: str
    expires_at: datetime
    revoked_at: datetime | None
    last_used_at: datetime | None
    owner: str


_KEY_FACTS: Any = (
    select(*(getattr(ApiKey, name) for name in KeyFacts._fields[:-1]), Consumer.owner)
    .join(Consumer, Consumer.actor == ApiKey.actor)
    .where(ApiKey.id == bindparam("key_id"))
)


async def key_facts(tx: AsyncSession, key_id: str) -> KeyFacts | None:
    """Return the facts of one key; None where there is none."""
    row = (await tx.execute(_KEY_FACTS, {"key_id": key_id})).first()
    return None if row is None else KeyFacts._make(row)


async def api_keys(tx: AsyncSession, whose: Whose | None = None) -> list[tuple[ApiKey, Consumer]]:
    """Return every key, or those of one person's names, by holder and then the oldest first."""
    query = select(ApiKey, Consumer).join(Consumer, Consumer.actor == ApiKey.actor)
    if whose is not None:
        query = query.where(whose.where(ApiKey.actor))
    rows = await tx.execute(query.order_by(ApiKey.actor, ApiKey.created_at, ApiKey.id))
    return [(key, holder) for key, holder in rows]


async def active_keys(tx: AsyncSession, actor: str, now: datetime) -> list[ApiKey]:
    """Return the keys of a holder that work now."""
    working = (ApiKey.actor == actor, ApiKey.revoked_at.is_(None), ApiKey.expires_at > now)
    return list(await tx.scalars(select(ApiKey).where(*working).order_by(ApiKey.created_at, ApiKey.id)))


async def touch_key(tx: AsyncSession, key_id: str, now: datetime) -> None:
    """Note that a key was used."""
    await tx.execute(update(ApiKey).where(ApiKey.id == key_id).values(last_used_at=now))


async def first_answer(tx: AsyncSession, key: str, body_hash: str, at: datetime) -> ApiAnswer:
    """Return the row of an Idempotency-Key, made when it is new. The caller compares its `body_hash`."""
    insert = insert_for(tx, ApiAnswer).values(key=key, body_hash=body_hash, created_at=at)
    await tx.execute(insert.on_conflict_do_nothing(index_elements=["key"]))
    return await tx.get_one(ApiAnswer, key)


async def keep_answer(tx: AsyncSession, key: str, status: int, answer: dict[str, Any]) -> None:
    """Store the answer of a call; the first answer stays."""
    kept = update(ApiAnswer).where(ApiAnswer.key == key, ApiAnswer.status.is_(None))
    await tx.execute(kept.values(status=status, answer=answer))


async def forget_answers(tx: AsyncSession, before: datetime) -> int:
    """Drop the stored answers that are older than this; returns how many there were."""
    gone = await tx.execute(delete(ApiAnswer).where(ApiAnswer.created_at < before).returning(ApiAnswer.key))
    return len(gone.all())


async def names_by_user(tx: AsyncSession) -> dict[str, str]:
    """Return the name that Slack shows for each person, by their Slack id, in one query."""
    mine = (Mark.name >= PERSON, Mark.name < _AFTER_PERSONS)
    rows = await tx.execute(select(Mark.name, Mark.value).where(*mine))
    return {name.removeprefix(PERSON): value for name, value in rows}


async def keep_name(tx: AsyncSession, user: str, name: str, now: datetime) -> None:
    """Store the name of the person with this Slack id in place of an earlier one."""
    insert = insert_for(tx, Mark).values(name=f"{PERSON}{user}", value=name, at=now)
    await tx.execute(insert.on_conflict_do_update(index_elements=["name"], set_={"value": name, "at": now}))
