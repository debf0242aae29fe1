"""The audit of volumes: silent on good ones, and loud about each wrong that it knows."""

from __future__ import annotations

from typing import Any

import pytest

from bot.services.audit.invariants import volume_approvals
from ledger.kernel.request_kind import RequestKind
from ledger.kernel.states import NotificationKind
from ledger.queries.audit import Books
from tests.services.audit.test_waiting_invariants import changed
from tests.services.sessions.volumes.scene import ready, session, there
from tests.services.sessions.volumes.test_mounting import running
from tests.support.world import World


@pytest.fixture
async def books(w: World) -> Books:
    """A volume that was deleted at its end, after a machine used it."""
    await ready(w, regions=("US-KS-2",))
    await w.end(await running(w))
    await w.run(200, 20)
    one = (await w.books()).sessions[0]
    assert one.deadline is not None
    w.clock.advance(one.deadline - w.clock.now())
    await w.run(300, 20)
    assert there(w) != []  # A notice that comes late leaves an hour.
    await w.run(3900, 300)
    found = await w.books()
    assert volume_approvals.check(found) == []
    return found


def rules(rows: Books) -> set[str]:
    return {one.rule for one in volume_approvals.check(rows)}


@pytest.mark.slow
async def test_each_broken_rule_is_found(books: Books) -> None:
    note = next(n for n, one in enumerate(books.notifications) if one.kind == NotificationKind.SESSION_ENDING)
    wrong: tuple[tuple[str, int, dict[str, Any], str], ...] = (
        ("requests", 0, {"kind": RequestKind.PROVISION}, volume_approvals.OWN_KIND),
        ("instances", 0, {"cloud": "runpod"}, volume_approvals.OWN_KIND),
        (
            "instances",
            1,
            {"session_id": books.instances[0].session_id, "cloud": "runpod-volumes"},
            volume_approvals.NOT_REPLACED,
        ),
        ("notifications", note, {"kind": NotificationKind.SESSION_READY}, volume_approvals.ANNOUNCED),
        ("instances", 1, {"offer": {**books.instances[1].offer, "region": "EU-RO-1"}}, volume_approvals.BESIDE),
    )
    for table, place, values, rule in wrong:
        assert rule in rules(changed(books, table, place, **values)), (table, values)


async def test_a_volume_that_a_person_deletes_needs_no_warning(w: World) -> None:
    await ready(w)
    await w.end((await session(w)).id)
    await w.run(200, 20)
    assert volume_approvals.check(await w.books()) == []
