"""Every message ends with what it is about: one line in the past tense, no buttons, and one message for one fact."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import timedelta
from decimal import Decimal

from bot.practice.model import ChatMessage
from bot.practice.reader import all_text, buttons
from bot.services.checkpoints.hold import ASKED
from bot.services.notifications import end_of_session
from bot.services.outbox import dispatch
from bot.services.sessions.transfer import OfferSession, offer
from ledger.core import announce
from ledger.engine.db import Database
from ledger.kernel.actor import Actor, ActorKind
from ledger.kernel.states import NotificationKind, SessionState
from ledger.models import Notification, Session
from tests.slack.conftest import Stage, answers, staged
from tests.slack.test_commands import running
from tests.support.clock import SteppedClock

_N = NotificationKind

#: Words that say that something lies ahead or goes on. A message about an end that is past has none of them.
AHEAD = re.compile(r"\b(ends|will|expires|is running|is ready|is ending|are ending|unless|waits for|Needs \d)\b")
#: Kinds that only warn of an end, so that nothing of them but a word is left after it.
_WARNINGS = (_N.SESSION_ENDING, _N.SESSION_FINAL_WARNING, _N.SESSION_IDLE, _N.SESSION_CHECKPOINT_HOLD)
#: Kinds that are about no session or request, so that nothing ends them.
OF_NO_SESSION = frozenset({_N.BUDGET_THRESHOLD, _N.ORPHAN_FOUND, _N.OPERATOR_PAGE, _N.DIGEST, _N.REPLY})


async def shown(stage: Stage) -> dict[str, tuple[NotificationKind, ChatMessage]]:
    """Every message that stands anywhere, by the id of its notification."""
    kinds = {row.id: row.kind for row in (await stage.w.books()).notifications}
    return {
        one.metadata["event_payload"]["id"]: (kinds[one.metadata["event_payload"]["id"]], stage.ws.now(one))
        for one in stage.ws.all_messages()
        if one.metadata is not None and not one.deleted
    }


async def told_of(stage: Stage, session: Session) -> None:
    """Bring up every further message that a session can have: warnings, an early end, a hold, a failure."""
    books = await stage.w.books()
    (row,) = books.instances
    now = stage.w.clock.now()
    offered = OfferSession(session.id, Actor.from_ref(session.owner), Actor.from_ref("slack:U0DAVE"))
    assert (await offer(stage.ctx, offered)).ok
    async with stage.ctx.db.write() as tx:
        early = await tx.get_one(Session, session.id)
        early.early_end_at, early.early_end_reason = now + timedelta(minutes=5), "Its GPU is idle."
        subjects = {
            _N.SESSION_ENDING: end_of_session.subject_of(session),
            _N.SESSION_FINAL_WARNING: end_of_session.subject_of(session),
            _N.SESSION_IDLE: end_of_session.early_end_subject(session.id, now + timedelta(minutes=5)),
            _N.SESSION_CHECKPOINT_HOLD: f"{session.id}/{row.id}/{ASKED}",
            _N.SESSION_INTERRUPTED: f"{session.id}/{row.id}",
        }
        for kind, subject in subjects.items():
            for destination in ("U0ALICE", "C0GPU"):
                await announce(tx, now, kind, subject, destination=destination)
        result = f"{session.request_id}/{SessionState.RUNNING}"
        await announce(tx, now, _N.REQUEST_RESULT, result, destination="C0GPU")
    await stage.settle()


def of(found: dict[str, tuple[NotificationKind, ChatMessage]]) -> Iterator[tuple[NotificationKind, ChatMessage]]:
    return iter(found.values())


async def test_every_kind_of_message_ends_with_its_session(stage: Stage) -> None:
    card = await stage.ask()
    await stage.w.run(900, 900)  # A reminder.
    await stage.click("bob", card, stage.approve_button(card))
    await stage.w.run(120)
    (session,) = (await stage.w.books()).sessions
    assert session.state is SessionState.RUNNING
    await told_of(stage, session)
    before = await shown(stage)
    assert [all_text(message) for _, message in of(before) if "∗" in all_text(message)] == []
    assert {kind for kind, _ in of(before)} | OF_NO_SESSION | {_N.SESSION_ENDED} == set(NotificationKind)
    assert sum(len(buttons(message)) for _, message in of(before)) > 5
    ready = next(message for kind, message in of(before) if kind is _N.SESSION_READY)
    await stage.click("alice", ready, "End it now")
    async with stage.ctx.db.write() as tx:
        early = await tx.get_one(Session, session.id)
        early.early_end_at = early.early_end_reason = None
    await stage.w.run(60)
    (session,) = (await stage.w.books()).sessions
    assert session.state is SessionState.TERMINATED
    after = await shown(stage)
    for kind, message in of(after):
        if kind in OF_NO_SESSION or kind is _N.REQUEST_DETAILS:
            continue
        text = re.sub(r"<!date[^>]*>", "", all_text(message))
        assert buttons(message) == [], (kind, text)
        assert "∗" not in text, (kind, text)  # Our own emphasis, shown as a sign because it went through `safe`.
        assert not AHEAD.search(text), (kind, text)
    left = {kind: {message.text for of_kind, message in of(after) if of_kind is kind} for kind in _WARNINGS}
    assert left == {kind: {"The *1× RTX4090* of <@U0ALICE> has ended."} for kind in _WARNINGS} | {
        _N.SESSION_FINAL_WARNING: {"It has ended."}
    }
    direct = [stage.ws.now(one).text for one in stage.ws.dm_messages("alice")]
    assert "Your *1× RTX4090* ran 3 min." in direct
    # One sum in one place: the owner reads it in the end message, the channel on the card.
    assert len([text for text in direct if "$" in text]) == 1
    sums = {kind for kind, message in of(after) if "$" in all_text(message)}
    assert sums - {_N.REQUEST_DETAILS} == {_N.REQUEST_MESSAGE, _N.SESSION_ENDED}
    # One message for one fact: the end is said once in each place, beside the card that is edited.
    others = {*_WARNINGS, _N.SESSION_INTERRUPTED}
    ended = [kind for kind, message in of(after) if "ended." in message.text and kind not in others]
    assert sorted(ended) == [_N.SESSION_ENDED]
    assert stage.ws.duplicates() == [] or all(len(group) == 2 for group in stage.ws.duplicates())
    assert await stage.w.violations() == []


async def test_without_a_person_in_slack_the_total_is_on_the_card_and_not_in_its_thread(stage: Stage) -> None:
    ada = Actor(ActorKind.OPERATOR, "ada")
    request_id = str((await stage.w.ask(ada)).data["request_id"])
    await stage.settle()
    (card,) = stage.ws.channel_messages()
    await stage.click("bob", card, stage.approve_button(card))
    await stage.w.run(120)
    assert (await stage.w.end(request_id, ada)).ok
    await stage.w.run(120)
    said = [one.text for one in answers(stage, card)]
    assert [text for text in said if "ended. " in text] != []
    assert not any("$" in text for text in said)
    assert "Total: $" in all_text(stage.ws.now(card))


async def test_a_message_that_nobody_saw_before_the_end_is_not_shown_after_it(stage: Stage) -> None:
    await running(stage)
    (session,) = (await stage.w.books()).sessions
    said = len(stage.ws.dm_messages("alice"))
    await stage.command("alice", f"/gpu terminate {session.id} now")
    await stage.w.run(300)
    async with stage.ctx.db.write() as tx:
        now = stage.w.clock.now()
        row = Notification(
            id="ntf_late", kind=_N.SESSION_READY, subject=session.id, destination="C0GPU", body={}, version=1,
            sent_version=0, tries=0, error="", created_at=now, due_at=now, state="pending",
        )  # fmt: skip
        tx.add(row)
    await dispatch.deliver_due(stage.ctx, stage.door.messenger)
    texts = [message.text for message in stage.ws.dm_messages("alice")]
    assert len(texts) == said + 1  # Its end, and nothing else.
    assert not any("is ready" in message.text for message in stage.ws.channel_messages())


async def test_a_request_that_expired_has_no_reminder_any_more(stage: Stage) -> None:
    card = await stage.ask()
    await stage.w.run(900, 900)
    reminded = [one for one in stage.ws.thread(card) if ":bell:" in one.text]
    assert len(reminded) == 1
    stage.fault("chat.postMessage", "http_500", times=1)
    stage.w.clock.advance(stage.ctx.policy.request_ttl_s)
    await stage.settle()
    await stage.w.run(60)
    bells = [one.text for one in stage.ws.thread(card) if ":bell:" in one.text]
    assert bells == [":bell: <@U0ALICE> waited for approval; the request expired."]


async def test_break_glass_is_said_once_in_each_place(sqlite_db: Database, clock: SteppedClock) -> None:
    async with staged(sqlite_db, clock, approvals_channel="C0GPU") as stage:
        await stage.replaced(break_glass=("U0ALICE",), break_glass_usd=Decimal(25))
        card = await stage.ask()
        (request,) = (await stage.w.books()).requests
        await stage.command("alice", f'/gpu break-glass {request.id[-6:]} for="the demo is down"')
        await stage.w.run(30)
        pages = [one for one in stage.ws.channel_messages() if one.ts != card.ts]
        assert ["the demo is down" in one.text for one in pages] == [True]
