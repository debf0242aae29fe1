"""The rate of requests: how many one person or program may make in an hour, whatever became of them."""

from __future__ import annotations

from collections import Counter

from ledger.kernel.states import NotificationKind
from tests.support.world import World

CARD = NotificationKind.REQUEST_MESSAGE


async def test_pairs_of_request_and_cancel_are_refused_and_leave_a_handful_of_messages(w: World) -> None:
    replies = []
    for number in range(125):
        reply = await w.ask()
        replies.append(reply)
        w.clock.advance(0.06)
        if number % 8 == 0:
            await w.tick()
        if reply.ok:
            await w.cancel(str(reply.data["request_id"]))
        w.clock.advance(0.06)
    await w.settle()
    books = await w.books()
    codes = Counter(str(reply.code) for reply in replies)
    kinds = Counter(str(row.kind) for row in books.notifications)
    print("SEEN", codes, kinds, sum(kinds.values()))
    assert codes == {"submitted": 60, "too_many_requests": 65}
    assert kinds[CARD] == 1
    assert sum(kinds.values()) < 15
