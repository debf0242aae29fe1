"""The outbox: every version is shown at least once, failures are retried for ever, hopeless ones are kept and said."""

from __future__ import annotations

from datetime import timedelta

import pytest

from bot.services.outbox import dispatch
from bot.services.runtime.ports import SENDER_DIED, Delivered, DeliveryFailed
from ledger.core.events import announce
from ledger.kernel.states import NotificationKind, NotificationState
from ledger.models import Notification
from tests.support.world import World


class Scripted:
    """Answers deliveries from a list: an error is raised; afterwards everything succeeds."""

    def __init__(self, w: World, *errors: DeliveryFailed) -> None:
        self.w = w
        self.errors = list(errors)
        self.versions: list[int] = []
        self.during: NotificationKind | None = None

    async def deliver(self, notification: Notification) -> Delivered:
        self.versions.append(notification.version)
        if self.during is not None:
            self.during = None
            await say(self.w)
        if self.errors:
            raise self.errors.pop(0)
        return Delivered("C0GPU", "1.0")


async def say(w: World) -> None:
    async with w.ctx.db.write() as tx:
        await announce(
            tx,
            at=w.clock.now(),
            kind=NotificationKind.OPERATOR_PAGE,
            subject="test",
            destination="channel:operators",
            body={"text": "look"},
        )


async def row(w: World) -> Notification:
    (note,) = (await w.books()).notifications
    return note


async def test_failures_back_off_and_a_hint_is_obeyed(w: World) -> None:
    slow = DeliveryFailed("slow down", retry_after_s=30)
    board = Scripted(w, DeliveryFailed("down"), DeliveryFailed("down"), DeliveryFailed("down"), slow)
    await say(w)
    pauses = []
    while board.errors:
        assert await dispatch.deliver_due(w.ctx, board) == 1
        assert await dispatch.deliver_due(w.ctx, board) == 0
        note = await row(w)
        assert note.due_at is not None
        pauses.append((note.due_at - w.clock.now()).total_seconds())
        w.clock.advance(note.due_at - w.clock.now())
    assert pauses == [2, 4, 8, 30]
    assert (note.tries, note.error) == (4, "slow down")
    await dispatch.deliver_due(w.ctx, board)
    note = await row(w)
    assert (note.state, note.sent_version, note.tries, note.error) == (NotificationState.SENT, 1, 0, "")
    assert (note.channel, note.ts) == ("C0GPU", "1.0")


async def test_pauses_do_not_grow_for_ever(w: World) -> None:
    board = Scripted(w, *(DeliveryFailed("down") for _ in range(20)))
    await say(w)
    while board.errors:
        await dispatch.deliver_due(w.ctx, board)
        note = await row(w)
        assert note.due_at is not None
        assert note.due_at - w.clock.now() <= timedelta(seconds=w.ctx.timing.outbox_retry_max_s)
        w.clock.advance(w.ctx.timing.outbox_retry_max_s)


@pytest.mark.both_databases
async def test_a_version_that_is_announced_during_the_sending_is_sent_too(w: World) -> None:
    board = Scripted(w)
    board.during = NotificationKind.OPERATOR_PAGE
    await say(w)
    await dispatch.deliver_due(w.ctx, board)
    await dispatch.deliver_due(w.ctx, board)
    assert board.versions == [1, 2]
    assert (await row(w)).sent_version == 2


async def test_what_cannot_be_shown_is_kept_with_its_reason_until_there_is_a_newer_version(w: World) -> None:
    board = Scripted(w, DeliveryFailed("channel_not_found", permanent=True))
    await say(w)
    await dispatch.deliver_due(w.ctx, board)
    note = await row(w)
    assert (note.state, note.error) == (NotificationState.DEAD, "channel_not_found")
    w.clock.advance(3600)
    assert await dispatch.deliver_due(w.ctx, board) == 0
    await say(w)
    assert await dispatch.deliver_due(w.ctx, board) == 1
    assert (await row(w)).state is NotificationState.SENT


@pytest.mark.both_databases
async def test_a_sender_that_dies_is_followed_by_another(w: World) -> None:
    class Dying(Scripted):
        async def deliver(self, notification: Notification) -> Delivered:
            raise RuntimeError("out of memory")

    await say(w)
    await dispatch.deliver_due(w.ctx, Dying(w))
    note = await row(w)
    # Whether it is shown nobody knows, so the next attempt looks first.
    assert (note.state, note.tries, note.error) == (NotificationState.PENDING, 1, SENDER_DIED)
    w.clock.advance(w.ctx.timing.outbox_retry_s)
    board = Scripted(w)
    assert await dispatch.deliver_due(w.ctx, board) == 1
    assert board.versions == [1]


async def test_a_message_that_nobody_can_show_keeps_no_other_back(w: World) -> None:
    class Poisoned(Scripted):
        async def deliver(self, notification: Notification) -> Delivered:
            if notification.subject == "test":
                raise RuntimeError("nobody foresaw this")
            return await super().deliver(notification)

    await say(w)
    now = w.clock.now()
    async with w.ctx.db.write() as tx:
        for number in range(20):
            subject = f"other-{number}"
            await announce(
                tx, at=now, kind=NotificationKind.REPLY, subject=subject, destination="U", body={"text": "x"}
            )
    board = Poisoned(w)
    while await dispatch.deliver_due(w.ctx, board):
        pass
    assert len(board.versions) == 20
    states = [one.state for one in (await w.books()).notifications]
    assert (states.count(NotificationState.SENT), states.count(NotificationState.PENDING)) == (20, 1)
