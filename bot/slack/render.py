"""Render notifications: read the state, choose the builder, and return where the message belongs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from bot.rules.approvals.approvers import ANYBODY
from bot.rules.instances.health import given_up_at
from bot.rules.policy.policy import Policy
from bot.services.access.key_holders import has_key
from bot.services.billing import true_up
from bot.services.billing.metering import cost_now
from bot.services.grants import approvers
from bot.services.people.direct_messages import slack_user
from bot.services.reports.digest_types import DigestDocument
from bot.services.runtime.context import Context
from bot.services.sessions import expiration, extension
from bot.services.sessions.transfer import remaining
from bot.slack.blocks import digest, operators
from bot.slack.blocks.elements import TEXT_MAX, Message, safe
from bot.slack.blocks.offer_terms import shown_option
from bot.slack.blocks.private_answer import mentioned
from bot.slack.blocks.progress import request_result
from bot.slack.blocks.request import CardFacts, request_message
from bot.slack.blocks.request_details import reminder, reopened_reply, request_details
from bot.slack.blocks.session import checkpoint_hold, instance_failed, session_ready_and_ended
from bot.slack.blocks.session import session_ending as ending_message
from bot.slack.blocks.session.transfer import transfer_message
from bot.slack.settings import SlackSettings
from ledger.core import Tx, notifications_of
from ledger.core.moves import direct_to
from ledger.core.outbox import message_of
from ledger.kernel.actor import Actor, ActorKind
from ledger.kernel.request_kind import MACHINE, RequestKind
from ledger.kernel.states import NotificationKind, NotificationState, RequestState, SessionState
from ledger.models import Instance, Notification, Orphan, Request, Session, Transfer
from ledger.queries.journal import moves_of
from ledger.queries.lookups import session_of, waiting_extensions
from ledger.queries.people.request_cards import shown_before, shown_in
from ledger.queries.runs.graces import newest_grace
from ledger.queries.views import RequestView, SessionView, request_view, session_view
from providers.capabilities import Capabilities


@dataclass(frozen=True, slots=True)
class Shown:
    """A rendered notification.

    `channel` and `thread_ts` say where it goes; `edits` whether a message that is there already is changed (a reply is
    posted anew, because an edit notifies nobody); `fallback` is the user who gets it when the channel cannot.
    """

    message: Message
    channel: str
    edits: bool = False
    thread_ts: str | None = None
    fallback: str = ""
    only_for: str = ""


#: The note on a message that could not be rendered, so that replies to it stop waiting for it.
UNRENDERED: Final = "it could not be rendered"


class NotYet(Exception):
    """The message that this one replies to is not shown yet."""


Renderer = Callable[[Context, SlackSettings, Notification], Awaitable[Shown]]


async def render(ctx: Context, settings: SlackSettings, row: Notification) -> Shown:
    """Render one notification. Raises LookupError when its subject does not exist, `NotYet` when it must wait."""
    return await RENDERERS[row.kind](ctx, settings, row)


def channel_of(settings: SlackSettings, destination: str) -> str:
    """Return the channel of a destination; empty when none is set up for it."""
    if destination == "channel:operators":
        return settings.operators_channel or settings.approvals_channel or ""
    if destination in ("", "channel:approvals"):
        return settings.approvals_channel or ""
    return destination


async def card_facts(ctx: Context, view: RequestView, now: datetime) -> CardFacts:
    """Read what the card of a request shows beside it, as things are now."""
    request = view.request
    mandate, not_them, keyless = ANYBODY, [Actor.from_ref(request.requester)], False
    async with ctx.db.read() as tx:
        session = await session_view(tx, view.session.id) if view.session else None
        longer = await session_of(tx, view.parent.id) if view.parent and request.kind is RequestKind.EXTEND else None
        extends = await session_view(tx, longer.id) if longer else None
        rows = [view.session.id, *(one.id for one in view.instances)] if view.session else []
        moves, replaced = await moves_of(tx, rows) if rows else [], await shown_before(tx, request)
        if request.state in (RequestState.PENDING, RequestState.WAITING):
            mandate = await approvers.approver_group(tx, ctx.policy, request, now)
            not_them = await approvers.barred(tx, ctx.policy, view)
            keyless = request.kind in MACHINE and await _is_keyless(tx, ctx.policy, request)
    option = shown_option(view)
    provider = ctx.providers.get(option.cloud) if option is not None else None
    cost_usd = cost_now(ctx, session, now) if session else None
    boot_s = provider.capabilities.boot_expected_s if provider else None
    return CardFacts(
        mandate, tuple(not_them), keyless, boot_s, session, cost_usd,
        extends=extends, now=now, moves=moves, replaced=replaced,
    )  # fmt: skip


async def _request(ctx: Context, row: Notification) -> RequestView:
    async with ctx.db.read() as tx:
        return await request_view(tx, row.subject.partition("/")[0])


async def _requester(ctx: Context, view: RequestView) -> str:
    """Return the Slack user who answers for a request, empty where nobody does."""
    async with ctx.db.read() as tx:
        return await slack_user(tx, ctx.policy, view.request.requester) or ""


async def _person(ctx: Context, destination: str) -> str:
    """Return the Slack user of a direct message. LookupError where its owner, a program or an operator, has none."""
    if ":" not in destination:
        return destination
    async with ctx.db.read() as tx:
        found = await slack_user(tx, ctx.policy, destination)
    if found is None:
        raise LookupError(f"{destination} has no Slack account; same_person in the policy can name it")
    return found


async def _is_keyless(tx: Tx, policy: Policy, request: Request) -> bool:
    """Whether a requester who would log in has no key that could be put on an instance."""
    owner = Actor.from_ref(request.requester)
    return owner.kind is ActorKind.SLACK and not await has_key(tx, policy, request)


async def _request_message(ctx: Context, settings: SlackSettings, row: Notification) -> Shown:
    async with ctx.db.read() as tx:
        view = await request_view(tx, await shown_in(tx, row.subject))
    message = request_message(view, ctx.policy, await card_facts(ctx, view, ctx.clock.now()))
    return Shown(message, channel_of(settings, row.destination), edits=True, fallback=await _requester(ctx, view))


async def _request_details(ctx: Context, settings: SlackSettings, row: Notification) -> Shown:
    request_id, _, version = row.subject.partition("/")
    # First, because in a burst most details are due before their request's message is shown.
    parent = await _parent(ctx, row, request_id)
    view = await _request(ctx, row)
    if view.request.state is RequestState.CANCELLED and not row.sent_version:
        raise LookupError(f"{view.request.id} was cancelled before its details were shown")
    if str(view.request.quote_version) != version:
        raise LookupError(f"{row.subject} is not the current quote any more")
    return await _under(ctx, settings, row, view, request_details(view, ctx.policy), parent)


async def _in_thread(
    ctx: Context, settings: SlackSettings, row: Notification, view: RequestView, what: Message
) -> Shown:
    """Reply under the request's message, wherever that is shown."""
    return await _under(ctx, settings, row, view, what, await _parent(ctx, row, view.request.id))


async def _parent(ctx: Context, row: Notification, request_id: str) -> Notification | None:
    """Return the request's message; raise `NotYet` while it is not shown. None where it never will be."""
    async with ctx.db.read() as tx:
        parent = await message_of(tx, request_id, row.destination)
    waits = parent is not None and parent.ts is None and parent.state is NotificationState.PENDING
    if waits and parent is not None and not parent.error.startswith(UNRENDERED):
        raise NotYet(f"the message of {request_id} is not shown yet")
    return parent


async def _under(
    ctx: Context,
    settings: SlackSettings,
    row: Notification,
    view: RequestView,
    what: Message,
    parent: Notification | None,
) -> Shown:
    if parent is None or parent.ts is None or parent.channel is None:
        return Shown(what, channel_of(settings, row.destination), fallback=await _requester(ctx, view))
    return Shown(what, parent.channel, thread_ts=parent.ts, fallback=await _requester(ctx, view))


async def _request_result(ctx: Context, settings: SlackSettings, row: Notification) -> Shown:
    view = await _request(ctx, row)
    reached = row.subject.partition("/")[2]
    program = Actor.from_ref(view.request.requester).kind is not ActorKind.SLACK
    if program and reached in set(SessionState) and await _requester(ctx, view):
        raise LookupError("the person behind this request reads it in a direct message")
    shown = await _in_thread(ctx, settings, row, view, request_result(view, reached))
    return replace(shown, edits=True)


async def _request_reminder(ctx: Context, settings: SlackSettings, row: Notification) -> Shown:
    view = await _request(ctx, row)
    now = ctx.clock.now()
    open_states = (RequestState.PENDING, RequestState.WAITING)
    waits = view.request.state in open_states and now < view.request.expires_at
    if not waits and not row.sent_version:
        raise LookupError(f"{view.request.id} does not wait for a decision any more")
    facts = await card_facts(ctx, view, now)
    if waits and row.subject.rpartition(".")[2] == "0":
        return await _in_thread(ctx, settings, row, view, reopened_reply(view, ctx.policy, facts))
    shown = await _in_thread(ctx, settings, row, view, reminder(view, ctx.policy, now, facts))
    return replace(shown, edits=True)


async def _session(ctx: Context, row: Notification) -> SessionView:
    async with ctx.db.read() as tx:
        return await session_view(tx, row.subject.partition("/")[0])


def _able(ctx: Context, view: SessionView) -> Capabilities | None:
    """Return what the session's cloud can do; None without an instance or when its cloud is not set up any more."""
    provider = ctx.providers.get(view.instance.cloud) if view.instance else None
    return provider.capabilities if provider else None


async def _session_ready(ctx: Context, settings: SlackSettings, row: Notification) -> Shown:
    view = await _session(ctx, row)
    shared = row.destination in map(direct_to, view.shared_with)
    if session_ready_and_ended.is_over(view.session):
        if not row.sent_version:
            raise LookupError(f"{view.session.id} has ended before this could be shown")
        if shared:
            over = session_ready_and_ended.warning_after_end(view.session)
        else:
            over = session_ready_and_ended.ready_after_end(view.session, again="/" in row.subject)
        return Shown(over, row.destination, edits=True)
    if view.session.state is SessionState.STOPPED and not shared:
        stopped = session_ready_and_ended.ready_while_stopped(view.session, settings.command)
        return Shown(stopped, await _person(ctx, row.destination), edits=True)
    if shared:
        message = session_ready_and_ended.ready_for_others(view, _able(ctx, view))
        return Shown(message, await _person(ctx, row.destination), edits=True)
    if "/" in row.subject and view.instance is not None:
        again = session_ready_and_ended.ready_again(view, changed=bool(row.body.get("changed")))
        return Shown(again, await _person(ctx, row.destination), edits=True)
    async with ctx.db.read() as tx:
        keyless = await _is_keyless(tx, ctx.policy, view.request)
    message = session_ready_and_ended.ready(view, settings.command, _able(ctx, view), keyless=keyless)
    return Shown(message, await _person(ctx, row.destination), edits=True)


async def _ending(ctx: Context, row: Notification) -> ending_message.Ending:
    session_id, _, end_s = row.subject.partition("/")
    async with ctx.db.read() as tx:
        view = await session_view(tx, session_id)
        able = _able(ctx, view)
        return ending_message.Ending(
            view,
            # An older release stored it under the session alone, so it is about the present end.
            int(end_s or (view.session.deadline.timestamp() if view.session.deadline else 0)),
            cost_now(ctx, view, ctx.clock.now()),
            view.cap_usd,
            (await expiration.why_it_ends(ctx, tx, view.session, ahead=True))[1] if view.instance else "",
            await extension.is_inside(ctx, tx, view.session, session_ready_and_ended.KEEP_HOURS),
            bool(await waiting_extensions(tx, view.request.id)),
            able is None or able.terminate,
        )


async def _session_ending(ctx: Context, settings: SlackSettings, row: Notification) -> Shown:
    message = ending_message.ending(await _ending(ctx, row), settings.command, ctx.clock.now())
    return Shown(message, channel_of(settings, row.destination), edits=True)


async def _session_final_warning(ctx: Context, settings: SlackSettings, row: Notification) -> Shown:
    message = ending_message.final_warning(await _ending(ctx, row), ctx.clock.now())
    return Shown(message, channel_of(settings, row.destination), edits=True)


async def _session_idle(ctx: Context, settings: SlackSettings, row: Notification) -> Shown:
    view, now = await _session(ctx, row), ctx.clock.now()
    end_s = int(row.subject.partition("/")[2])
    shown = ending_message.IdleWarningFacts(view, end_s, cost_now(ctx, view, now), view.cap_usd)
    return Shown(ending_message.idle_warning(shown, now), channel_of(settings, row.destination), edits=True)


async def _session_checkpoint_hold(ctx: Context, settings: SlackSettings, row: Notification) -> Shown:
    session_id, instance_id, step = row.subject.split("/")
    now = ctx.clock.now()
    async with ctx.db.read() as tx:
        view = await session_view(tx, session_id)
        instance = await tx.get_one(Instance, instance_id)
        waiting = bool(await waiting_extensions(tx, view.request.id))
    shown = checkpoint_hold.CheckpointHoldFacts(view, instance, step, cost_now(ctx, view, now), view.cap_usd, waiting)
    message = checkpoint_hold.checkpoint_hold_message(shown, settings.command, now)
    return Shown(message, channel_of(settings, row.destination), edits=True)


async def _session_ended(ctx: Context, _settings: SlackSettings, row: Notification) -> Shown:
    view = await _session(ctx, row)
    between, cost_usd = await true_up.range_of(ctx, view.session.id), cost_now(ctx, view, ctx.clock.now())
    end = true_up.unsure_end(ctx, view.instance)
    message = session_ready_and_ended.ended(view, cost_usd, _able(ctx, view), between, end)
    return Shown(message, await _person(ctx, row.destination))


async def _session_interrupted(ctx: Context, settings: SlackSettings, row: Notification) -> Shown:
    session_id, instance_id, orphan_id = [*row.subject.split("/"), ""][:3]
    async with ctx.db.read() as tx:
        session, instance = await tx.get(Session, session_id), await tx.get(Instance, instance_id)
        if session is None or instance is None:
            raise LookupError(f"there is no instance {row.subject}")
        view = await request_view(tx, session.request_id)
        orphan = await tx.get(Orphan, orphan_id) if orphan_id else None
        last = await newest_grace(tx, instance_id)
        own = row.destination == await slack_user(tx, ctx.policy, session.owner)
    if orphan is not None:
        message = instance_failed.found(session, instance, orphan, own=own)
    else:
        given_up = given_up_at(instance.trouble_at, ctx.timing.broken_grace_s) if instance.trouble_at else None
        newest = view.instances[-1] if view.instances else None
        grace = last if last is not None and last.ended_at is None else None
        message = instance_failed.interrupted(
            view.request, session, instance, newest, given_up, own=own, grace=grace, now=ctx.clock.now()
        )
    shown = Shown(message, row.destination) if own else await _in_thread(ctx, settings, row, view, message)
    # What became of a machine in grace edits the message that asked about it.
    return replace(shown, edits=last is not None or session_ready_and_ended.is_over(session))


async def _orphan_found(ctx: Context, settings: SlackSettings, row: Notification) -> Shown:
    async with ctx.db.read() as tx:
        orphan = await tx.get(Orphan, row.subject)
    if orphan is None:
        raise LookupError(f"there is no orphan {row.subject}")
    return Shown(operators.orphan_found(orphan), channel_of(settings, row.destination), edits=True)


async def _session_transfer(ctx: Context, settings: SlackSettings, row: Notification) -> Shown:
    session_id, _, transfer_id = row.subject.partition("/")
    async with ctx.db.read() as tx:
        view, found = await session_view(tx, session_id), await tx.get_one(Transfer, transfer_id)
    message = transfer_message(found, view, remaining(ctx, view, ctx.clock.now())[0], settings.command)
    return Shown(message, await _person(ctx, row.destination), edits=True)


async def _budget_threshold(_ctx: Context, settings: SlackSettings, row: Notification) -> Shown:
    text = f":bank: {safe(str(row.body.get('text') or row.subject), 1_000)}"
    return Shown(Message.of(text), channel_of(settings, row.destination))


async def _digest(_ctx: Context, settings: SlackSettings, row: Notification) -> Shown:
    found = DigestDocument.model_validate(row.body)
    channel = channel_of(settings, row.destination) or channel_of(settings, "channel:operators")
    return Shown(digest.digest(found, settings.command), channel)


async def _operator_page(ctx: Context, settings: SlackSettings, row: Notification) -> Shown:
    message, channel = operators.page(str(row.body.get("text") or row.subject)), channel_of(settings, row.destination)
    if channel != row.destination:
        async with ctx.db.read() as tx:
            others = await notifications_of(tx, row.kind, row.subject)
        if any(one.destination == channel for one in others):
            raise LookupError(f"{channel} has this page under its own name")
    return Shown(message, channel, edits=True)


async def _reply(_ctx: Context, settings: SlackSettings, row: Notification) -> Shown:
    message = Message(str(row.body.get("text") or "…"), tuple(row.body.get("blocks") or ()))
    if "blocks" not in row.body:
        # A service's sentence may hold words of a cloud or a person, so none of it may act as Slack's markup.
        message = Message(mentioned(safe(message.text, TEXT_MAX)))
    channel, slash, user = row.destination.partition("/")
    if not slash:
        return Shown(message, channel_of(settings, channel))
    return Shown(message, channel, fallback=user, only_for=user)


RENDERERS: Final[Mapping[NotificationKind, Renderer]] = {
    NotificationKind.REQUEST_MESSAGE: _request_message,
    NotificationKind.REQUEST_DETAILS: _request_details,
    NotificationKind.REQUEST_RESULT: _request_result,
    NotificationKind.REQUEST_REMINDER: _request_reminder,
    NotificationKind.SESSION_READY: _session_ready,
    NotificationKind.SESSION_ENDING: _session_ending,
    NotificationKind.SESSION_FINAL_WARNING: _session_final_warning,
    NotificationKind.SESSION_IDLE: _session_idle,
    NotificationKind.SESSION_CHECKPOINT_HOLD: _session_checkpoint_hold,
    NotificationKind.SESSION_ENDED: _session_ended,
    NotificationKind.SESSION_TRANSFER: _session_transfer,
    NotificationKind.BUDGET_THRESHOLD: _budget_threshold,
    NotificationKind.SESSION_INTERRUPTED: _session_interrupted,
    NotificationKind.ORPHAN_FOUND: _orphan_found,
    NotificationKind.OPERATOR_PAGE: _operator_page,
    NotificationKind.DIGEST: _digest,
    NotificationKind.REPLY: _reply,
}
