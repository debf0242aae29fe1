"""Share a request's machine with other people: their keys go onto it, and they see the session."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from bot.rules.approvals.approvers import Deed, is_same, linked
from bot.rules.jobs.job import JobRequest
from bot.rules.nodes.authorized_keys import fingerprint
from bot.rules.nodes.authorized_keys import sentence as problem_sentence
from bot.rules.policy.job_bounds import MOST_SHARED
from bot.rules.policy.policy import Policy
from bot.rules.values.command_text import cli_command
from bot.rules.values.phrases import no_key
from bot.rules.values.reply_code import ReplyCode
from bot.rules.values.state_text import state_words
from bot.services.access import authorization, key_holders, machine_keys, ssh_keys
from bot.services.notifications.request_message import show_again
from bot.services.people import direct_messages, eligibility
from bot.services.runtime.commands import Reply, refuse
from bot.services.runtime.context import Context
from ledger.core import Tx, lock_family, record
from ledger.kernel.actor import Actor
from ledger.kernel.event_kind import EventKind
from ledger.kernel.ids import short_id
from ledger.kernel.states import ENDABLE_SESSION, UNDECIDED, InstanceState, RequestState
from ledger.models import Instance, Request, Session, Share
from ledger.queries.access import Whose, shared_with
from ledger.queries.lookups import open_instances_of_session, session_of
from ledger.queries.people.machine_keys import keys_on
from ledger.queries.people.shares import moving_with, shares_of
from ledger.queries.views import resolve, session_view

#: Before its create call an instance has no key of ours yet, and takes everybody's with that call.
_UNSENT = frozenset({InstanceState.READY})


async def refusal(ctx: Context, owner: Actor, job: JobRequest) -> Reply | None:
    """Return why a job can't be shared with the people that it names; None when it can. Asks Slack about them."""
    for ref in job.share:
        person = Actor.from_ref(ref)
        if any(is_same(person, one) for one in (owner, *linked(ctx.policy, owner))):
            return refuse(ReplyCode.BAD_SHARE, "The machine is yours already, so leave yourself out of share.")
        if not_them := await eligibility.ineligible_for(ctx, person, Deed.READ):
            return refuse(ReplyCode.BAD_SHARE, f"It can't be shared with {person.ref}. {not_them.sentence}")
    return None


async def share(tx: Tx, policy: Policy, request_id: str, people: Sequence[str], by: Actor, now: datetime) -> None:
    """Store with whom a new request is shared, and notify these people."""
    for ref in people:
        await _add(tx, policy, request_id, by, ref, now)


async def copy(tx: Tx, policy: Policy, source_request_id: str, request_id: str, by: Actor, now: datetime) -> None:
    """Share the target of a move with the people of its source, as they are now, and notify them."""
    for row in await shares_of(tx, source_request_id):
        await _add(tx, policy, request_id, by, row.person, now, shared_by=row.shared_by)


async def _add(
    tx: Tx,
    policy: Policy,
    request_id: str,
    by: Actor,
    ref: str,
    now: datetime,
    *,
    launched: bool = False,
    shared_by: str = "",
) -> None:
    _store(tx, request_id, by, ref, now, shared_by)
    short, has_key = short_id(request_id), await key_holders.keys_of(tx, policy, Actor.from_ref(ref))
    if launched:
        text = (
            f"{by.ref} shares session {short} with you. Your SSH keys go onto its machine, which takes about a "
            f"minute. Then connect: {cli_command(f'ssh {short}')}. Its address: {cli_command(f'session {short}')}."
        )
    else:
        needs = "" if has_key else f" {no_key('You have', ssh_keys.ADDS)}. Add one before it is launched."
        text = (
            f"{by.ref} shares request {short} with you. Your SSH keys go onto its machine. "
            f"To see how far it is: {cli_command(f'session {short}')}.{needs}"
        )
    # A person who is added again gets a new message, because an edit of the first one notifies nobody.
    subject = f"{request_id}/shared/{ref}{f'/{int(now.timestamp())}' if launched else ''}"
    await direct_messages.notify(tx, policy, now, ref, subject=subject, text=text)


def _store(tx: Tx, request_id: str, by: Actor, ref: str, now: datetime, shared_by: str = "") -> None:
    tx.add(Share(request_id=request_id, person=ref, shared_by=shared_by or by.ref, created_at=now))
    said = f"{by.ref} shares it with {ref}."
    record(tx, now, by, request_id, EventKind.REQUEST_SHARED, reason=said, data={"person": ref})


async def _forget(tx: Tx, request_id: str, by: Actor, ref: str, now: datetime) -> None:
    await tx.delete(await tx.get_one(Share, (request_id, ref)))
    await tx.flush()
    said = f"{by.ref} no longer shares it with {ref}."
    record(tx, now, by, request_id, EventKind.REQUEST_UNSHARED, reason=said, data={"person": ref})


async def _remove(
    ctx: Context, tx: Tx, request: Request, session: Session | None, by: Actor, ref: str, now: datetime
) -> None:
    await _forget(tx, request.id, by, ref, now)
    text = f"{by.ref} no longer shares {short_id(request.id)} with you."
    if session is not None:
        text += " Your SSH keys are removed from its machine."
        await machine_keys.follow_session(ctx, tx, session, now, [Actor.from_ref(ref)])
    subject = f"{request.id}/unshared/{ref}/{int(now.timestamp())}"
    await direct_messages.notify(tx, ctx.policy, now, ref, subject=subject, text=text)


@dataclass(frozen=True, slots=True)
class ShareWith:
    """Share what an id names with a person, or no longer (`off`). `admin`: the actor administers GPU Shopper."""

    request: str
    actor: Actor
    person: Actor
    off: bool = False
    admin: bool = False


async def change(ctx: Context, command: ShareWith) -> Reply:
    """Share a request or a session with one person more, or one less. For its owner or an administrator.

    Before the launch the keys go with the create call. On a running machine `nodes.key_writes` writes them. While a run
    moves, both of its machines have the same people.
    """
    now, ref = ctx.clock.now(), command.person.ref
    if not command.off and (not_them := await eligibility.ineligible_for(ctx, command.person, Deed.READ)):
        return refuse(ReplyCode.BAD_SHARE, f"It can't be shared with {ref}. {not_them.sentence}")
    try:
        async with ctx.db.write() as tx:
            await machine_keys.lock_person(tx, ctx.policy, command.person)
            found, _ = await resolve(tx, command.request)
            root = found.parent_id or found.id
            for one in sorted((root, *await moving_with(tx, root))):
                await lock_family(tx, Request, one)
            request = await tx.get_one(Request, root, populate_existing=True)
            session = await session_of(tx, request.id)
            if session is not None:
                await tx.refresh(session)
            reply = await _change(ctx, tx, request, session, command, now)
            if reply.ok:
                await show_again(tx, request, now)
                for other in await moving_with(tx, root):
                    await _same_on(ctx, tx, other, command, now)
    except LookupError as error:
        return refuse(ReplyCode.UNKNOWN_ID, f"{error}.")
    ctx.hints.outbox.set()
    return reply


async def _same_on(ctx: Context, tx: Tx, request_id: str, command: ShareWith, now: datetime) -> None:
    """Change the other side of an open move in the same way. Its people read one message, about the side they named."""
    await lock_family(tx, Request, request_id)
    request, session = await tx.get_one(Request, request_id), await session_of(tx, request_id)
    names = Whose.of([command.person, *linked(ctx.policy, command.person)])
    same = [row.person for row in await shares_of(tx, request_id) if row.person in names]
    if command.off:
        for ref in same:
            await _forget(tx, request_id, command.actor, ref, now)
    elif not same:
        _store(tx, request_id, command.actor, command.person.ref, now)
        await tx.flush()
    if session is not None:
        left = [Actor.from_ref(ref) for ref in same] if command.off else []
        await machine_keys.follow_session(ctx, tx, session, now, left)
    await show_again(tx, request, now)


async def _change(
    ctx: Context, tx: Tx, request: Request, session: Session | None, command: ShareWith, now: datetime
) -> Reply:
    row = next(iter(await open_instances_of_session(tx, session.id)), None) if session is not None else None
    if (wrong := await _refused(ctx, tx, request, session, command)) is not None:
        return wrong
    known = (await shared_with(tx, [request.id])).get(request.id, ())
    names = Whose.of([command.person, *linked(ctx.policy, command.person)])
    same = [one for one in known if one in names]
    ref, data = command.person.ref, {"request_id": request.id}
    what = f"Request {short_id(request.id)}" if session is None else f"Session {session.short_id}"
    if command.off:
        for one in same:
            await _remove(ctx, tx, request, session, command.actor, one, now)
        text = f"{what} is not shared with {ref}.{_gone(row, any_removed=bool(same))}"
        return Reply(True, ReplyCode.SHARED, text, data)
    if same:
        return Reply(True, ReplyCode.SHARED, f"{what} is shared with {ref} already.", data)
    if len(known) >= MOST_SHARED:
        return refuse(ReplyCode.BAD_SHARE, f"A machine is shared with {MOST_SHARED} people at most.", data)
    if session is not None and (wrong := await _no_login(ctx, tx, session, row, command)) is not None:
        return wrong
    await _add(tx, ctx.policy, request.id, command.actor, ref, now, launched=session is not None)
    await tx.flush()
    when = ""
    if session is not None:
        running = await machine_keys.follow_session(ctx, tx, session, now)
        when = " in about a minute" if running else ""
    text = f"{what} is shared with {ref}. Their SSH keys go onto its machine{when}."
    return Reply(True, ReplyCode.SHARED, text, data)


def _gone(row: Instance | None, *, any_removed: bool) -> str:
    """Say what becomes of the keys of somebody with whom a machine is no longer shared."""
    if row is None or not any_removed or row.state in _UNSENT:
        return ""
    if row.login_key is None:
        return " GPU Shopper can't log in to its machine. Remove their keys from ~/.ssh/authorized_keys yourself."
    when = " in about a minute" if machine_keys.writable(row) else " when it runs again"
    return f" Their SSH keys are removed from its machine{when}. Connections that are open stay open."


async def _refused(ctx: Context, tx: Tx, request: Request, session: Session | None, command: ShareWith) -> Reply | None:
    """Return why somebody may not share this now: it is another's, it is theirs, or it ended."""
    short, data = short_id(request.id), {"request_id": request.id}
    owner = Actor.from_ref(session.owner if session is not None else request.requester)
    if not command.admin and owner.ref not in await authorization.mine(tx, ctx.policy, command.actor):
        return refuse(ReplyCode.NOT_YOURS, f"Only the owner of {short} can share it.", data)
    if any(is_same(command.person, one) for one in (owner, *linked(ctx.policy, owner))):
        return refuse(ReplyCode.BAD_SHARE, "The machine is yours already.", data)
    if session is not None and session.state not in ENDABLE_SESSION:
        return refuse(ReplyCode.ALREADY_ENDING, f"Session {short} is {state_words(session.state)}.", data)
    if session is None and request.state not in (*UNDECIDED, RequestState.APPROVED):
        return refuse(ReplyCode.NOT_WAITING, f"Request {short} is {state_words(request.state)}.", data)
    return None


async def _no_login(ctx: Context, tx: Tx, session: Session, row: Instance | None, command: ShareWith) -> Reply | None:
    """Return why a person could not log in to a machine that was approved already; None when they could."""
    ref, data = command.person.ref, {"request_id": session.request_id}
    cloud = ctx.providers.get(row.cloud) if row is not None else None
    if row is not None and cloud is not None and not cloud.capabilities.ssh:
        sentence = f"Session {session.short_id} runs your command at {row.cloud}, which has no SSH."
        return refuse(ReplyCode.NO_SSH, sentence, data)
    if row is not None and row.state not in _UNSENT and row.login_key is None:
        sentence = (
            f"GPU Shopper can't log in to the machine of session {session.short_id}, so it can't add keys there. Add "
            f"the other person's public key yourself: {cli_command(f'ssh {session.short_id}')}, then edit "
            "~/.ssh/authorized_keys."
        )
        return refuse(ReplyCode.LAUNCHED, sentence, data)
    if not await key_holders.keys_of(tx, ctx.policy, command.person):
        sentence = f"{no_key(f'{ref} has', ssh_keys.ADDS)}. Share the session after that."
        return refuse(ReplyCode.NO_KEY, sentence, data)
    return None


@dataclass(frozen=True, slots=True)
class Sharer:
    """One person who may log in to a machine: how many keys of theirs belong there, and whether it has them all."""

    person: str
    is_owner: bool
    keys: int
    placed_at: datetime | None
    problem: str


async def people(ctx: Context, session_id: str) -> list[Sharer]:
    """Return the owner of a session and the people with whom it is shared, with the state of their keys."""
    async with ctx.db.read() as tx:
        view = await session_view(tx, session_id)
        belongs = await key_holders.for_sessions(tx, ctx.policy, [view.session])
        known = await keys_on(tx, [view.instance.id]) if view.instance is not None else []
    written = {one.fingerprint: one for one in known if one.wanted}
    found = []
    for ref in view.people:
        theirs = [fingerprint(one.public_key) for one in belongs[session_id] if one.person == ref]
        rows = [written[name] for name in theirs if name in written]
        times = [one.placed_at for one in rows if one.placed_at is not None]
        problem = next((one.problem for one in rows if one.placed_at is None and one.problem is not None), None)
        why = problem_sentence(problem) if problem else ""
        everything = max(times) if times and len(times) == len(theirs) else None
        found.append(Sharer(ref, ref == view.session.owner, len(theirs), everything, why))
    return found
