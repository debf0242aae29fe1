"""Create, list, revoke and authenticate API keys.

A key is 256 random bits, so its keyed hash needs no slow function. The pepper is derived from the deployment's label
key, which is not in the database either: a copied database alone authenticates nobody.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import lru_cache

from bot.rules.access.scopes import (
    ACTIVE_KEYS,
    FOR_PEOPLE,
    KEY_DAYS,
    KEY_ID_LENGTH,
    MOST_KEY_DAYS,
    PLAIN,
    TOKEN,
    BadHolder,
    Scope,
    holder,
    scopes,
)
from bot.rules.approvals.approvers import Deed
from bot.rules.values.command_text import cli_command
from bot.rules.values.labels import LabelKey
from bot.rules.values.phrases import plural
from bot.rules.values.reply_code import ReplyCode
from bot.services.people import eligibility
from bot.services.runtime.commands import Reply, refuse
from bot.services.runtime.context import Context
from ledger.core import record
from ledger.engine.db import Database
from ledger.kernel.actor import Actor, ActorKind
from ledger.kernel.event_kind import EventKind
from ledger.kernel.ids import BASE32
from ledger.models import ApiKey
from ledger.queries.access import KeyFacts, active_keys, api_key, api_keys, key_facts, lock_consumer, touch_key

#: The last use of a key is stored at most this often.
USE_NOTED = timedelta(minutes=1)
_PEPPER = b"gpu-shopper API keys, version 1"
#: What an unknown key id is compared with, so that it takes the same time as a known one.
_NOBODY = "0" * 64


@dataclass(frozen=True, slots=True)
class NewKey:
    """Request an API key. `name` is a program (`atlas`) or a person (`operator:ada`); no scopes: the usual ones."""

    name: str
    owner: str = ""
    scopes: tuple[str, ...] = ()
    days: int = KEY_DAYS


@dataclass(frozen=True, slots=True)
class Principal:
    """The actor whom a key authenticates, and the `owner` who is responsible for it.

    The owner of a person's own key is that person. `key_id` is empty for the operator on the server, who needs no key.
    `is_agent`: an AI agent, or a program that acts for a person, makes the call.
    """

    key_id: str
    actor: Actor
    owner: Actor
    scopes: frozenset[Scope]
    is_agent: bool = False

    def as_agent(self) -> Principal:
        """Return the same for an AI agent that uses this key: it never has the scopes that only people have."""
        return replace(self, scopes=self.scopes - FOR_PEOPLE, is_agent=True)


@dataclass(frozen=True, slots=True)
class KeyView:
    """An API key as people see it: everything but its secret."""

    id: str
    actor: str
    owner: str
    scopes: tuple[str, ...]
    state: str
    created_at: datetime
    created_by: str
    expires_at: datetime
    last_used_at: datetime | None


_SCOPES = {str(scope): scope for scope in Scope}


def pepper(labels: LabelKey) -> bytes:
    """Derive the key under which secrets are hashed; every replica of a deployment derives the same."""
    return _pepper_of(labels.key)


@lru_cache(maxsize=8)
def _pepper_of(key: bytes) -> bytes:
    return hmac.digest(key, _PEPPER, "sha256")


def _hashed(labels: LabelKey, secret: str) -> str:
    return hmac.new(pepper(labels), secret.encode(), hashlib.sha256).hexdigest()


async def issue(ctx: Context, command: NewKey, by: Actor) -> Reply:
    """Create a key, unless Slack shows that the person who answers for it may not hold one."""
    try:
        owner = holder(command.name, command.owner).owner
    except BadHolder as error:
        return refuse(error.code, str(error))
    if not_them := await eligibility.ineligible_for(ctx, owner, Deed.KEY):
        sentence = f"Slack does not show {owner.ref} as a member who may hold an API key. Name somebody else."
        return refuse(not_them.code, sentence)
    return await create(ctx.db, ctx.labels, command, by, ctx.clock.now())


async def create(db: Database, labels: LabelKey, command: NewKey, by: Actor, now: datetime) -> Reply:
    """Store a new key for anybody. `data["token"]` is the whole key: it is shown this once and stored nowhere."""
    try:
        of = holder(command.name, command.owner)
        allowed = scopes(command.scopes, of)
    except BadHolder as error:
        return refuse(error.code, str(error))
    if not 1 <= command.days <= MOST_KEY_DAYS:
        return refuse(ReplyCode.BAD_EXPIRY, f"A key lives for 1 to {MOST_KEY_DAYS} days.")
    key_id = "".join(secrets.choice(BASE32) for _ in range(KEY_ID_LENGTH))
    secret = secrets.token_urlsafe(32)
    async with db.write() as tx:
        behind = await lock_consumer(tx, of.actor.ref, of.owner.ref, by.ref, now)
        if behind.owner != of.owner.ref:
            sentence = f"{of.actor.ref} belongs to {behind.owner} already. Create its keys with that owner."
            return refuse(ReplyCode.OTHER_OWNER, sentence)
        working = await active_keys(tx, of.actor.ref, now)
        if len(working) >= ACTIVE_KEYS:
            sentence = f"{of.actor.ref} has {ACTIVE_KEYS} working keys. Revoke one first: {working[0].id} is the older."
            return refuse(ReplyCode.TOO_MANY_KEYS, sentence)
        expires_at = now + timedelta(days=command.days)
        tx.add(
            ApiKey(
                id=key_id,
                actor=of.actor.ref,
                scopes=[str(scope) for scope in allowed],
                secret_hash=_hashed(labels, secret),
                created_at=now,
                created_by=by.ref,
                expires_at=expires_at,
            )
        )
        said = f"{', '.join(allowed)}; until {expires_at:%Y-%m-%d}"
        record(tx, now, by, of.actor.ref, EventKind.API_KEY_CREATED, reason=f"{key_id}: {said}")
    sentence = (
        f"Key {key_id} of {of.actor.ref} works for {plural(command.days, 'day')}. Store it now: it is shown once."
    )
    data = {"key_id": key_id, "token": f"gpuk_{key_id}_{secret}", "actor": of.actor.ref, "expires_at": expires_at}
    return Reply(True, ReplyCode.KEY_CREATED, sentence, data)


async def revoke(db: Database, key_id: str, by: Actor, now: datetime) -> Reply:
    """Revoke a key at once; repeating it gets the same reply."""
    async with db.write() as tx:
        found = await api_key(tx, key_id)
        if found is None:
            return refuse(ReplyCode.UNKNOWN_KEY, f"There is no API key {key_id[:40]}. See {cli_command('keys list')}.")
        key, _ = found
        if key.revoked_at is None:
            key.revoked_at, key.revoked_by = now, by.ref
            record(tx, now, by, key.actor, EventKind.API_KEY_REVOKED, reason=key.id)
    sentence = f"Key {key.id} of {key.actor} is revoked and no longer works."
    return Reply(True, ReplyCode.KEY_REVOKED, sentence, {"key_id": key.id})


async def listing(db: Database, now: datetime) -> Sequence[KeyView]:
    """List every key of every holder, without any secret."""
    async with db.read() as tx:
        return [
            KeyView(
                id=key.id,
                actor=key.actor,
                owner=behind.owner,
                scopes=tuple(key.scopes),
                state=_state(key, now),
                created_at=key.created_at,
                created_by=key.created_by,
                expires_at=key.expires_at,
                last_used_at=key.last_used_at,
            )
            for key, behind in await api_keys(tx)
        ]


def _state(key: ApiKey | KeyFacts, now: datetime) -> str:
    if key.revoked_at is not None:
        return "revoked"
    return "active" if key.expires_at > now else "expired"


async def authenticate(db: Database, labels: LabelKey, token: str, now: datetime) -> Principal | None:
    """Return the principal of a key; None if it is unknown, wrong, expired or revoked, without saying which."""
    shape = TOKEN.fullmatch(token)
    key_id, secret = (shape[1], shape[2]) if shape else ("", "")
    async with db.read() as tx:
        key = await key_facts(tx, key_id)
    same = hmac.compare_digest(_hashed(labels, secret), key.secret_hash if key else _NOBODY)
    if key is None or not same or _state(key, now) != "active":
        return None
    if key.last_used_at is None or now - key.last_used_at >= USE_NOTED:
        async with db.write() as tx:
            await touch_key(tx, key.id, now)
    return Principal(key.id, Actor.from_ref(key.actor), Actor.from_ref(key.owner), _known(key.scopes))


async def agent_of(db: Database, person: Actor, now: datetime) -> Principal:
    """Return the principal of a person's AI agent on the server, which needs no key and has a program's scopes."""
    agent = Actor(ActorKind.AGENT, person.id)
    async with db.write() as tx:
        await lock_consumer(tx, agent.ref, person.ref, person.ref, now)
    return Principal("", agent, person, frozenset(PLAIN))


def _known(names: Collection[str]) -> frozenset[Scope]:
    return frozenset(_SCOPES[name] for name in names if name in _SCOPES)


def combined_rights(actor: Actor, names: Collection[str] | None) -> Principal:
    """Return a principal with the scopes of all its working keys.

    On the server, where no key is needed, it has every scope.
    """
    return Principal("", actor, actor, frozenset(Scope) if names is None else _known(names))


async def works(db: Database, who: Principal, now: datetime) -> bool:
    """Whether the key behind a principal still works; long-running calls check it again."""
    if not who.key_id:
        return True
    async with db.read() as tx:
        found = await api_key(tx, who.key_id)
    return found is not None and _state(found[0], now) == "active"
