"""Transfer a running session to another owner: offer it, accept or decline the offer, and let it expire.

From the acceptance on everything about the session is the new owner's: costs, warnings, buttons, keys. Costs that were
booked until then stay with the earlier owner.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal

from bot.rules.approvals.approvers import DeciderFacts, Deed, is_same, linked
from bot.rules.jobs.stored import job_of
from bot.rules.pricing import hours_cap
from bot.rules.sessions import transfer as rules
from bot.rules.values.command_text import cli_command
from bot.rules.values.phrases import deny, no_key, usd
from bot.rules.values.reply_code import ReplyCode
from bot.rules.values.state_text import state_words
from bot.services.access import authorization, key_holders, machine_keys, ssh_keys
from bot.services.billing.metering import cost_now
from bot.services.billing.within_hours import accrue_owner_change
from bot.services.budgets import enforcement
from bot.services.budgets.enforcement import PlannedSpend, Room
from bot.services.grants import approvers, authority
from bot.services.notifications import request_message
from bot.services.people import direct_messages, eligibility
from bot.services.runtime.clock_guard import clock_problem
from bot.services.runtime.commands import Reply, refuse
from bot.services.runtime.context import Context
from bot.services.sessions import retained_disks
from ledger.core import Tx, announce, lock_family, record
from ledger.core.moves import direct_to
from ledger.kernel.actor import SYSTEM, Actor
from ledger.kernel.checkpoint_step import WAITS
from ledger.kernel.event_kind import EventKind
from ledger.kernel.ids import new_id, short_id
from ledger.kernel.people.transfer_state import TransferState
from ledger.kernel.states import NotificationKind, SessionState
from ledger.kernel.steps.relocation_step import OVER
from ledger.kernel.volume_name import volume_of
from ledger.models import Session, Transfer
from ledger.queries.access import Whose, shared_with
from ledger.queries.lookups import open_instances_of_session
from ledger.queries.people import transfers
from ledger.queries.retained_disks import open_disks
from ledger.queries.runs.volumes_by_name import is_taken
from ledger.queries.views import SessionView, resolve, session_view

#: Seconds between two checks for offers that expired.
LOOK_S = 30.0
AT_ONCE = 50
#: Only a session that has a machine is transferred.
_TRANSFERABLE = frozenset({SessionState.RUNNING, SessionState.STOPPED})


@dataclass(frozen=True, slots=True)
class OfferSession:
    """Offer what an id names to a person. `admin`: the actor administers GPU Shopper."""

    session: str
    actor: Actor
    person: Actor
    admin: bool = False


@dataclass(frozen=True, slots=True)
class AnswerOffer:
    """Accept the offer of a session, or decline it; its owner, or an administrator, declines to withdraw it.

    `offer` is the one whose button was clicked; empty: the open one.
    """

    session: str
    actor: Actor
    accept: bool
    admin: bool = False
    offer: str = ""


async def offer(ctx: Context, command: OfferSession) -> Reply:
    """Offer a session to somebody, who has until the time that the answer names."""
    if not_them := await eligibility.ineligible_for(ctx, command.person, Deed.REQUEST):
        return refuse(ReplyCode.BAD_TRANSFER, f"It can't be transferred to {command.person.ref}. {not_them.sentence}")

    async def act(tx: Tx, view: SessionView, votes: Sequence[DeciderFacts], now: datetime) -> Reply:
        return await _offer(ctx, tx, view, votes, command, now)

    return await _changed(ctx, command.session, act)


async def answer(ctx: Context, command: AnswerOffer) -> Reply:
    """Accept or decline the offer of a session. An offer is answered once, however often somebody clicks."""
    if command.accept and (not_them := await eligibility.ineligible_for(ctx, command.actor, Deed.REQUEST)):
        return refuse(not_them.code, not_them.sentence)

    async def act(tx: Tx, view: SessionView, votes: Sequence[DeciderFacts], now: datetime) -> Reply:
        names = Whose.of([command.actor, *linked(ctx.policy, command.actor)])
        found = await transfers.offer_of(tx, view.session.id)
        if command.actor.is_program:
            return _no_offer(view.session)
        if found is None or found.expires_at <= now or command.offer not in ("", found.id):
            return _closed(view.session, await transfers.last_offer_of(tx, view.session.id), names)
        if command.accept:
            if found.to_person not in names:
                return _no_offer(view.session)
            return await _accept(ctx, tx, view, found, votes, command, now)
        return await _decline(ctx, tx, view, found, command, now)

    return await _changed(ctx, command.session, act, lock=command.actor)


async def _changed(
    ctx: Context,
    text: str,
    act: Callable[[Tx, SessionView, Sequence[DeciderFacts], datetime], Awaitable[Reply]],
    lock: Actor | None = None,
) -> Reply:
    """Run `act` on the session that `text` names, with what Slack says now of those who approved its spend."""
    try:
        async with ctx.db.read() as tx:
            request, session = await resolve(tx, text)
            root = request.parent_id or request.id
            voters = {one.on_behalf_of or one.approver for one in await transfers.votes_of(tx, root)}
        if session is None:
            return refuse(ReplyCode.NO_SESSION, "That request has no session to transfer.")
        votes = [await eligibility.facts_of(ctx, Actor.from_ref(ref)) for ref in sorted(voters)]
        now = ctx.clock.now()
        async with ctx.db.write() as tx:
            if lock is not None:
                await machine_keys.lock_person(tx, ctx.policy, lock)
            await lock_family(tx, Session, session.id)
            reply = await act(tx, await session_view(tx, session.id), votes, now)
    except LookupError as error:
        return refuse(ReplyCode.UNKNOWN_ID, f"{error}.")
    ctx.hints.outbox.set()
    return replace(reply, data={**reply.data, "session_id": session.id})


async def _offer(
    ctx: Context, tx: Tx, view: SessionView, votes: Sequence[DeciderFacts], command: OfferSession, now: datetime
) -> Reply:
    session, to = view.session, command.person
    if not command.admin and session.owner not in await authorization.mine(tx, ctx.policy, command.actor):
        return refuse(ReplyCode.NOT_YOURS, f"Only the owner of {session.short_id} can transfer it.")
    known = await transfers.offer_of(tx, session.id)
    if known is not None and known.expires_at > now:
        if known.to_person in Whose.of([to, *linked(ctx.policy, to)]):
            return _offered(session, known)
        again = cli_command(f"transfer decline {session.short_id}")
        sentence = f"Session {session.short_id} is offered to {known.to_person} already. To withdraw that: {again}."
        return refuse(ReplyCode.BAD_TRANSFER, sentence)
    if known is not None:
        await _close(ctx, tx, session, known, TransferState.EXPIRED, SYSTEM, now)
    room = await _room(ctx, tx, view, to, votes, now)
    if not room.verdict.allowed:
        return refuse(room.verdict.code, room.verdict.sentence)
    made = Transfer(
        id=new_id("trf", now),
        session_id=session.id,
        from_owner=session.owner,
        to_person=to.ref,
        offered_by=command.actor.ref,
        state=TransferState.OFFERED,
        created_at=now,
        expires_at=rules.expires(now, session.deadline),
    )
    tx.add(made)
    await tx.flush()
    said = f"{command.actor.ref} offers the session of {session.owner} to {to.ref}."
    people = {"from": session.owner, "to": to.ref}
    record(tx, now, command.actor, session.id, EventKind.SESSION_OFFERED, reason=said, data=people)
    await _show(ctx, tx, made, now)
    return _offered(session, made)


def _offered(session: Session, made: Transfer) -> Reply:
    sentence = (
        f"Session {session.short_id} is offered to {made.to_person}. The offer expires "
        f"{made.expires_at:%Y-%m-%d %H:%M} UTC. Until it is accepted the session and its costs stay yours."
    )
    return Reply(True, ReplyCode.OFFERED, sentence)


def remaining(ctx: Context, view: SessionView, now: datetime) -> tuple[Decimal, Decimal]:
    """Return what a session may still spend under its approvals, and its most per hour, in dollars."""
    rate_usd_h = view.grant.price_cap_usd_h if view.grant is not None else Decimal(0)
    return max(view.cap_usd - cost_now(ctx, view, now), Decimal(0)), rate_usd_h


async def _book_until_now(ctx: Context, tx: Tx, session_id: str, now: datetime) -> SessionView:
    """Book the running hours of a session's machines and disks, so that its new owner pays from now on only."""
    for row in await open_instances_of_session(tx, session_id):
        await accrue_owner_change(ctx, tx, row.id, now)
    for disk in await open_disks(tx, [session_id]):
        await retained_disks.change_owner(ctx, tx, disk, now)
    return await session_view(tx, session_id)


async def _room(
    ctx: Context, tx: Tx, view: SessionView, to: Actor, votes: Sequence[DeciderFacts], now: datetime
) -> Room:
    """Return whether a person may become the owner of a session now, and the budgets that it would count against."""
    session, short = view.session, view.session.short_id
    owner = Actor.from_ref(session.owner)
    problem = ""
    if session.state not in _TRANSFERABLE or view.instance is None:
        problem = f"Session {short} is {state_words(session.state)}, so it can't be transferred."
    elif any(is_same(to, one) for one in (owner, *linked(ctx.policy, owner))):
        problem = f"Session {short} is {to.ref}'s already."
    elif view.migration is not None and view.migration.step not in OVER:
        problem = f"Session {short} is being moved to another machine."
    elif session.early_end_at is not None or view.instance.checkpoint_step in WAITS:
        problem = f"Session {short} is about to end early. Answer the message about that first."
    elif waiting := await transfers.undecided_of(tx, session.request_id):
        problem = f"Request {short_id(waiting[0].id)} about session {short} waits for approval. Cancel it first."
    elif (name := volume_of(session.gpu)) and await is_taken(
        tx, await authorization.mine(tx, ctx.policy, to), name, but=session.id
    ):  # A request names its volume, so two of one name would be mistaken for each other.
        problem = f"Volume {name} can't be transferred: {to.ref} already has a volume of that name."
    if problem or view.instance is None:
        return Room(deny(ReplyCode.BAD_TRANSFER, problem))
    in_all = await authority.in_all(tx, view.request, now)
    job, whole = replace(job_of(view.request.job), hours=in_all.session.hours, already_hours=Decimal(0)), in_all.session
    needed, mandate = await approvers.planned(
        tx, ctx.policy, to.ref, job, whole, view.instance.offer, in_all, is_figure=True
    )
    above = hours_cap.is_above(ctx.policy, job.counted(in_all.whole.hours))
    if wrong := rules.approved_for(ctx.policy, to, votes, needed, mandate, above_cap=above):
        return Room(wrong)
    total_usd, rate_usd_h = remaining(ctx, view, now)  # What it cost until now stays with the earlier owner.
    spend = PlannedSpend(to.ref, session.label or ctx.policy.project, total_usd, rate_usd_h, total_usd)
    return await enforcement.check_transfer(ctx, tx, spend, session.owner, now)


async def _accept(
    ctx: Context,
    tx: Tx,
    view: SessionView,
    found: Transfer,
    votes: Sequence[DeciderFacts],
    command: AnswerOffer,
    now: datetime,
) -> Reply:
    session, to = view.session, Actor.from_ref(found.to_person)
    before, short = session.owner, session.short_id
    if doubt := clock_problem(ctx.clock):  # It books what the session has cost until now.
        sentence = f"Nothing can be transferred while the clock is wrong: {doubt}. Try again later."
        return refuse(ReplyCode.CLOCK_WRONG, sentence)
    room = await _room(ctx, tx, view, to, votes, now)
    if not room.verdict.allowed:
        return refuse(room.verdict.code, room.verdict.sentence)
    cloud = ctx.providers.get(view.instance.cloud) if view.instance is not None else None
    if cloud is not None and cloud.capabilities.ssh and not await key_holders.keys_of(tx, ctx.policy, to):
        return refuse(ReplyCode.NO_KEY, f"{no_key('You have', ssh_keys.ADDS)}. Accept it after that.")
    if not await transfers.close_offer(tx, found.id, TransferState.ACCEPTED, now):
        return _no_offer(session)
    view = await _book_until_now(ctx, tx, session.id, now)
    names = Whose.of([to, *linked(ctx.policy, to)])
    shared = (await shared_with(tx, [session.request_id])).get(session.request_id, ())
    await transfers.change_owner(tx, session, to.ref, [one for one in shared if one in names], now)
    total_usd, rate_usd_h = remaining(ctx, view, now)
    spend = PlannedSpend(to.ref, session.label or ctx.policy.project, total_usd, rate_usd_h, total_usd)
    await enforcement.reserved(ctx, tx, spend, room, now)
    await machine_keys.follow_session(ctx, tx, session, now, [Actor.from_ref(before)])
    said = f"The owner changed from {before} to {to.ref}. Booked until now, for {before}: {usd(view.accrued_usd)}."
    data = {"from": before, "to": to.ref, "booked_usd": str(view.accrued_usd)}
    record(tx, now, command.actor, session.id, EventKind.SESSION_TRANSFERRED, reason=said, data=data)
    await tx.refresh(view.request)
    await request_message.show_again(tx, view.request, now)
    await _show(ctx, tx, found, now)
    volume = volume_of(session.gpu)
    keys = "" if volume else " Your SSH keys are removed from its machine. Connections that you have open stay open."
    text = (
        f"Session {short} is now {to.ref}'s. Its costs so far, {usd(view.accrued_usd)}, stay yours; later ones are "
        f"theirs.{keys}"
    )
    await direct_messages.notify(tx, ctx.policy, now, before, subject=f"{session.id}/left/{found.id}", text=text)
    if session.state is SessionState.RUNNING and await direct_messages.slack_user(tx, ctx.policy, to.ref) is not None:
        await announce(tx, now, NotificationKind.SESSION_READY, session.id, destination=direct_to(to.ref))
    use = f"Connect in about a minute: {cli_command(f'ssh {short}')}"
    if volume:
        use = f"To mount it on a machine, add volume={volume} to a request."
    sentence = f"Session {short} is yours now. It may still spend {usd(total_usd)} under its approval. {use}"
    return Reply(True, ReplyCode.TRANSFERRED, sentence)


async def _decline(
    ctx: Context, tx: Tx, view: SessionView, found: Transfer, command: AnswerOffer, now: datetime
) -> Reply:
    session = view.session
    names = await authorization.mine(tx, ctx.policy, command.actor)
    declines = found.to_person in names
    if not declines and not command.admin and session.owner not in names:
        return _no_offer(session)
    state = TransferState.DECLINED if declines else TransferState.WITHDRAWN
    await _close(ctx, tx, session, found, state, command.actor, now)
    how = "declined" if declines else "withdrawn"
    return Reply(
        True, ReplyCode.DECLINED, f"The offer of session {session.short_id} is {how}. Its owner stays the same."
    )


async def _close(
    ctx: Context, tx: Tx, session: Session, found: Transfer, state: TransferState, by: Actor, now: datetime
) -> bool:
    """Close an offer that nobody accepted, and notify both people; False when it is closed already."""
    if not await transfers.close_offer(tx, found.id, state, now):
        return False
    said = f"The offer to {found.to_person} is {state}; the session stays {session.owner}'s."
    people = {"from": found.from_owner, "to": found.to_person}
    record(tx, now, by, session.id, EventKind.SESSION_NOT_TRANSFERRED, reason=said, data=people)
    await _show(ctx, tx, found, now)
    why = {
        TransferState.DECLINED: f"{found.to_person} declined session {session.short_id}. It stays yours.",
        TransferState.EXPIRED: f"{found.to_person} did not accept session {session.short_id} in time. It stays yours.",
    }.get(state)
    if why is not None:
        subject = f"{session.id}/transfer/{found.id}"
        await direct_messages.notify(tx, ctx.policy, now, session.owner, subject=subject, text=why)
    return True


async def _show(ctx: Context, tx: Tx, found: Transfer, now: datetime) -> None:
    """Show an offer to the person whom it is for, or what became of it."""
    to = await direct_messages.slack_user(tx, ctx.policy, found.to_person)
    if to is not None:
        subject = f"{found.session_id}/{found.id}"
        await announce(tx, now, NotificationKind.SESSION_TRANSFER, subject, destination=to)


def _no_offer(session: Session) -> Reply:
    return refuse(ReplyCode.NO_TRANSFER, f"Session {session.short_id} is not offered to you.")


def _closed(session: Session, last: Transfer | None, names: Whose) -> Reply:
    """Answer to an offer that is not open: accepted by the same person before, or expired, declined or withdrawn."""
    if last is None or last.to_person not in names:
        return _no_offer(session)
    if last.state is TransferState.ACCEPTED and session.owner in names:
        return Reply(True, ReplyCode.TRANSFERRED, f"Session {session.short_id} is yours already.")
    how = TransferState.EXPIRED if last.state is TransferState.OFFERED else last.state
    sentence = f"The offer of session {session.short_id} is no longer open ({how}). Ask for a new one."
    return refuse(ReplyCode.NO_TRANSFER, sentence)


async def transfers_due(ctx: Context) -> int:
    """Close the offers that expired, and those whose session is ending; return how many."""
    now, closed = ctx.clock.now(), 0
    async with ctx.db.read() as tx:
        found = await transfers.offers_to_close(tx, now, AT_ONCE)
    for one in found:
        async with ctx.db.write() as tx:
            await lock_family(tx, Session, one.session_id)
            session = await tx.get_one(Session, one.session_id, populate_existing=True)
            state = TransferState.EXPIRED if one.expires_at <= now else TransferState.OVERTAKEN
            closed += await _close(ctx, tx, session, one, state, SYSTEM, now)
    if closed:
        ctx.hints.outbox.set()
    return closed
