"""Say whose public SSH keys belong on which machine: those of the people who are on its session now."""

from __future__ import annotations

from collections.abc import Collection

from bot.rules.approvals.approvers import linked
from bot.rules.nodes.authorized_keys import PersonKey
from bot.rules.policy.policy import Policy
from ledger.core import Tx
from ledger.kernel.actor import Actor
from ledger.kernel.people.credential_kind import CredentialKind
from ledger.models import Request, Session, SshKey
from ledger.queries.access import Whose, shared_with
from ledger.queries.lookups import public_keys
from ledger.queries.people.credentials import credentials_of, own_key


async def keys_of(tx: Tx, policy: Policy, owner: Actor) -> list[SshKey]:
    """Return the keys of a person under all of their names, the oldest first."""
    return await public_keys(tx, Whose.of([owner, *linked(policy, owner)]))


async def has_key(tx: Tx, policy: Policy, request: Request) -> bool:
    """Whether the machines of a request would get a key of its requester."""
    brought = await credentials_of(tx, [request.id], CredentialKind.SSH_KEY)
    return bool(brought) or bool(await keys_of(tx, policy, Actor.from_ref(request.requester)))


async def for_instance(tx: Tx, policy: Policy, session: Session) -> tuple[str, ...]:
    """Return the keys that a session's instance gets: the one brought for it, or all of its owner's; and who shares."""
    found = await for_sessions(tx, policy, [session])
    return tuple(one.public_key for one in found[session.id])


async def all_belong(tx: Tx, policy: Policy, session_id: str, keys: Collection[str]) -> bool:
    """Whether each of these keys still belongs on a session's machine. Before a create: it can't be undone everywhere.

    A key that came meanwhile follows after the launch.
    """
    session = await tx.get_one(Session, session_id, populate_existing=True)
    return set(keys) <= set(await for_instance(tx, policy, session))


async def for_sessions(tx: Tx, policy: Policy, sessions: Collection[Session]) -> dict[str, tuple[PersonKey, ...]]:
    """Return for each session the keys that belong on its machine, each with its person."""
    requests = [session.request_id for session in sessions]
    shared = await shared_with(tx, requests)
    brought = await credentials_of(tx, requests, CredentialKind.SSH_KEY)
    refs = {ref for session in sessions for ref in (session.owner, *shared.get(session.request_id, ()))}
    names = {ref: (Actor.from_ref(ref), *linked(policy, Actor.from_ref(ref))) for ref in refs}
    known = await public_keys(tx, Whose.of([one for people in names.values() for one in people]))
    of = {ref: [one.public_key for one in known if one.owner in Whose.of(names[ref])] for ref in refs}
    found = {}
    for session in sessions:
        own_line = own_key(brought.get(session.request_id, ()))
        own = [own_line] if own_line is not None else of[session.owner]
        keys = {key: PersonKey(key, session.owner) for key in own}
        for ref in shared.get(session.request_id, ()):
            keys |= {key: PersonKey(key, ref) for key in of[ref] if key not in keys}
        found[session.id] = tuple(keys.values())
    return found
