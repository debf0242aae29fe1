"""`kill -9` of the real process at each step of the walk. It is started again later, on the same ledger.

Whatever the moment: the walk goes on or fails cleanly, nothing is rented twice or forgotten, what was acknowledged is
still there, and the books agree with the clouds' bills. A moment is reached by letting a call to the outside wait.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from bot.practice.reader import all_text
from ledger.kernel.states import (
    GrantState,
    InboxState,
    InstanceState,
    NotificationKind,
    NotificationState,
    RequestState,
    SessionState,
)
from ledger.queries.audit import Books
from tests.support.barriers import Held
from tests.support.stack import CALLS, DOWN_S, LONG_DOWN_S, Town, slack

pytestmark = pytest.mark.slow
#: As many messages as this are worked on at once; the next one waits in memory.
WORKERS = 4


async def crash(place: Town, *held: Held, down_s: float = DOWN_S) -> None:
    """The process dies, what waited at the gates is lost, and later another process starts.

    It dies when everything is shown that does not wait at a gate: that a post may be repeated has a test of its own.
    """
    posts_wait = any("chat." in one.which.path for one in held)
    await place.until(lambda books: not _unshown(books, replies_only=posts_wait))
    await place.kill()
    for one in held:
        one.drop()
    await place.restart(down_s)


def _unshown(books: Books, *, replies_only: bool) -> list[str]:
    late = [note for note in books.notifications if note.state is NotificationState.PENDING]
    return [note.id for note in late if not replies_only or note.kind is NotificationKind.REPLY]


def last_instance(books: Books) -> InstanceState | None:
    """The state of the newest instance row."""
    return books.instances[-1].state if books.instances else None


async def test_a_command_that_was_acknowledged_and_not_looked_at_yet_is_processed(place: Town) -> None:
    lookups = place.slack.hold(slack("users.info", "GET"))
    for _ in range(WORKERS):
        await place.acked(place.ws.as_("dave").command("/gpu terminate nothing-of-mine"))
    await lookups.caught(WORKERS)
    await place.ask()
    books = await place.books()
    assert (len(books.requests), {row.state for row in books.inbox}) == (0, {InboxState.NEW})
    await crash(place, lookups)
    await place.approve()
    answers = [m for m in place.ws.ephemerals("dave") if "nothing-of-mine" in all_text(m)]
    assert len(answers) == WORKERS
    await place.ready()
    await place.terminate()
    await place.gone()
    await place.comes_to_rest()


async def test_while_the_clouds_are_asked_for_offers(place: Town) -> None:
    search = place.cloud_gate.hold(CALLS[place.cloud]["search"])
    await place.ask()
    await search.caught()
    assert [row.state for row in (await place.books()).requests] == [RequestState.QUOTING]
    await crash(place, search)
    await place.approve()
    await place.finish()


async def test_with_offers_that_nobody_was_shown(sqlite_place: Town) -> None:
    place = sqlite_place
    posts = place.slack.hold(slack("chat.postMessage"))
    await place.ask()
    await posts.caught()
    assert [row.state for row in (await place.books()).requests] == [RequestState.PENDING]
    await crash(place, posts)
    await place.approve()
    await place.finish()


async def test_with_offers_whose_showing_was_not_confirmed(sqlite_place: Town) -> None:
    """Slack takes no key that would make a post idempotent, so the next process looks whether the message is there."""
    place = sqlite_place
    posts = place.slack.hold(slack("chat.postMessage"), answered=True)
    await place.ask()
    await posts.caught()
    await crash(place, posts)
    offers = await place.offers()
    await place.acked(place.ws.as_("bob").click(offers, "approve:1"))
    await place.acked(place.ws.as_("carol").click(offers, "approve:1"))
    await place.screens.told("carol", "already approved")
    await place.finish()


async def test_with_an_approval_that_was_acknowledged_and_not_judged_yet(empty_place: Town) -> None:
    place = empty_place
    # Its look-up of the approvers when it starts is lost, so that it asks again when one of them decides.
    first = place.slack.hold(slack("users.info", "GET"))
    await place.start()
    await first.caught()
    first.drop()
    await place.ask()
    offers = await place.offers()
    lookups = place.slack.hold(slack("users.info", "GET"))
    await place.acked(place.ws.as_("bob").click(offers, "approve:1"))
    await lookups.caught()
    assert (await place.books()).approvals == ()
    await crash(place, lookups)
    await place.finish()


async def test_with_an_intent_and_no_order_yet(place: Town) -> None:
    await place.ask()
    offers = await place.offers()
    reprice = place.cloud_gate.hold(CALLS[place.cloud]["search"])
    await place.acked(place.ws.as_("bob").click(offers, "approve:1"))
    await place.until(lambda books: last_instance(books) is InstanceState.READY)
    await reprice.caught()
    assert last_instance(await place.books()) is InstanceState.READY
    await crash(place, reprice)
    await place.finish()


async def test_with_an_order_that_never_reached_the_cloud(place: Town) -> None:
    """Nobody can know that it did not: it is searched for, given up, and asked again; never sent a second time."""
    await place.ask()
    offers = await place.offers()
    create = place.cloud_gate.hold(CALLS[place.cloud]["create"])
    await place.acked(place.ws.as_("bob").click(offers, "approve:1"))
    await create.caught()
    assert last_instance(await place.books()) is InstanceState.SENDING
    await crash(place, create, down_s=LONG_DOWN_S)
    await place.until(lambda books: last_instance(books) is InstanceState.TOMBSTONE)
    await place.screens.posted("Approve again?")
    await place.offers()
    assert place.creates == []
    assert [grant.state for grant in (await place.books()).grants] == [GrantState.VOID]
    await place.approve()
    await place.finish()


async def test_with_an_order_whose_answer_was_not_heard(place: Town) -> None:
    await place.ask()
    offers = await place.offers()
    create = place.cloud_gate.hold(CALLS[place.cloud]["create"], answered=True)
    await place.acked(place.ws.as_("bob").click(offers, "approve:1"))
    await create.caught()
    assert last_instance(await place.books()) is InstanceState.SENDING
    assert len(place.alive()) == 1
    await crash(place, create)
    await place.finish()


async def test_right_after_the_cloud_confirmed(place: Town) -> None:
    await place.ask()
    offers = await place.offers()
    looks = place.cloud_gate.hold(CALLS[place.cloud]["list"])
    await place.acked(place.ws.as_("bob").click(offers, "approve:1"))
    await place.until(lambda books: last_instance(books) is InstanceState.LIVE)
    await crash(place, looks)
    await place.finish()


async def test_while_it_boots(place: Town) -> None:
    place.timing = replace(place.timing, boot_s=300.0)
    await place.ask()
    await place.approve()
    await place.screens.posted("Booting")
    books = await place.books()
    assert last_instance(books) is InstanceState.LIVE
    assert books.instances[-1].reachable_at is None
    await crash(place, down_s=310.0)  # The boot ends meanwhile; the cloud says when.
    await place.finish()


async def test_ready_and_nobody_was_told(sqlite_place: Town) -> None:
    place = sqlite_place
    await place.ask()
    offers = await place.offers()
    posts = place.slack.hold(slack("chat.postMessage"))
    await place.acked(place.ws.as_("bob").click(offers, "approve:1"))
    await place.until(lambda books: bool(books.sessions) and books.sessions[-1].state is SessionState.RUNNING)
    await posts.caught()
    await crash(place, posts)
    await place.finish()


async def test_with_an_end_that_was_ordered_and_never_reached_the_cloud(place: Town) -> None:
    await place.ask()
    await place.approve()
    await place.ready()
    destroy = place.cloud_gate.hold(CALLS[place.cloud]["destroy"])
    await place.terminate()
    await destroy.caught()
    assert last_instance(await place.books()) is InstanceState.TERMINATING
    assert len(place.alive()) == 1
    await crash(place, destroy)
    await place.gone()
    await place.comes_to_rest()
    assert place.ws.duplicates() == []


async def test_with_an_end_that_the_cloud_took_and_nobody_heard_of(place: Town) -> None:
    await place.ask()
    await place.approve()
    await place.ready()
    destroy = place.cloud_gate.hold(CALLS[place.cloud]["destroy"], answered=True)
    await place.terminate()
    await destroy.caught()
    await crash(place, destroy)
    await place.gone()
    await place.comes_to_rest()
    assert place.ws.duplicates() == []


async def test_while_its_absence_is_being_proved(sqlite_place: Town) -> None:
    place = sqlite_place
    await place.ask()
    await place.approve()
    await place.ready()
    await place.terminate()
    await place.until(lambda books: bool(books.instances[-1].absent_at))
    looks = place.cloud_gate.hold(CALLS[place.cloud]["list"])
    await looks.caught()
    assert last_instance(await place.books()) is InstanceState.TERMINATING
    await crash(place, looks)
    await place.gone()
    await place.comes_to_rest()
    assert place.ws.duplicates() == []


async def test_gone_and_nobody_was_told(sqlite_place: Town) -> None:
    place = sqlite_place
    await place.ask()
    await place.approve()
    await place.ready()
    destroy = place.cloud_gate.hold(CALLS[place.cloud]["destroy"])
    await place.terminate()
    await place.until(lambda books: not _unshown(books, replies_only=False) and bool(destroy.count))
    posts = place.slack.hold(slack("chat.postMessage"))
    destroy.let_go()
    await place.until(lambda books: books.sessions[-1].state is SessionState.TERMINATED)
    await posts.caught()
    kinds = {note.kind for note in (await place.books()).notifications if note.state is NotificationState.PENDING}
    assert NotificationKind.SESSION_ENDED in kinds
    await crash(place, posts)
    await place.gone()
    await place.comes_to_rest()
    assert place.ws.duplicates() == []
