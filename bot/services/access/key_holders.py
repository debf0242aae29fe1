"""Say whose public SSH keys belong on which machine."""

from __future__ import annotations

from collections.abc import Collection

from bot.rules.approvals.approvers import linked
from bot.rules.nodes.authorized_keys import PersonKey
from bot.rules.policy.policy import Policy
from ledger.core import Tx
from ledger.kernel.actor import Actor
from ledger.kernel.job import JobRequest
from ledger.models import Session, SshKey
from ledger.queries.access import Whose, shared_with
from ledger.queries.lookups import public_keys
from ledger.queries.people.machine_keys import transferred


async def keys_of(tx: Tx, policy: Policy, owner: Actor) -> list[SshKey]:
    """Return the keys of a person under all of their names, the oldest first."""
    return await public_keys(tx, Whose.of([owner, *linked(policy, owner)]))


async def for_instance(tx: Tx, policy: Policy, session: Session, job: JobRequest) -> tuple[str, ...]:
    """Return the keys that a session's instance gets: the job's own, or else all of its owner's; and of who shares."""
    found = await for_sessions(tx, policy, [(session, job)])
    return tuple(one.public_key for one in found[session.id])


async def for_sessions(
    tx: Tx, policy: Policy, sessions: Collection[tuple[Session, JobRequest]]
) -> dict[str, tuple[PersonKey, ...]]:
    """Return for each session the keys that belong on its machine, each with its person.

    The key that a request brought is its requester's, so it does not count once the session has another owner.
    """
    shared = await shared_with(tx, [session.request_id for session, _ in sessions])
    moved = await transferred(tx, [session.id for session, _ in sessions])
    refs = {ref for session, _ in sessions for ref in (session.owner, *shared.get(session.request_id, ()))}
    names = {ref: (Actor.from_ref(ref), *linked(policy, Actor.from_ref(ref))) for ref in refs}
    known = await public_keys(tx, Whose.of([one for people in names.values() for one in people]))
    of = {ref: [one.public_key for one in known if one.owner in Whose.of(names[ref])] for ref in refs}
    found = {}
    for session, job in sessions:
        own = [job.public_key] if job.public_key and session.id not in moved else of[session.owner]
        keys = {key: PersonKey(key, session.owner) for key in own}
        for ref in shared.get(session.request_id, ()):
            keys |= {key: PersonKey(key, ref) for key in of[ref] if key not in keys}
        found[session.id] = tuple(keys.values())
    return found
