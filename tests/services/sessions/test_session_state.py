"""A session's state in words says since when nothing was seen of its machine."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from bot.api.views import session_out
from bot.cli.terminal.views import session_list
from bot.rules.access.sight import Sight
from bot.rules.policy.policy import Policy
from bot.services.sessions import service, session_state
from bot.slack.blocks import listing
from bot.slack.blocks.request import CardFacts
from bot.slack.blocks.session.status import status
from ledger.models import Node
from ledger.queries.session_costs import NOTHING
from tests.support.world import World


async def test_a_machine_whose_cloud_does_not_answer_is_running_as_of_the_last_sign_of_it(w: World) -> None:
    request_id = await w.ready(candidates=("vast",))
    await w.run(120, 15)
    view = (await service.status(w.ctx, request_id)).session
    assert view is not None
    assert view.listed_at is not None
    assert session_state.words(view, w.clock.now()) == "running"
    silent_at = w.clock.now()
    w.arm("list_503", "vast", None)
    await w.run(600, 30)
    found = await service.status(w.ctx, request_id)
    assert found.session is not None
    assert found.session.listed_at is not None
    assert silent_at - timedelta(minutes=4) <= found.session.listed_at <= silent_at
    words = f"running as of {found.session.listed_at:%H:%M} UTC"
    now = w.clock.now()
    in_slack = listing.team([found.session], {found.session.session.id: found.session.accrued_usd}, "/gpu", now)
    assert words in in_slack.text
    assert words in status(found, Policy(), CardFacts(), now, Sight.OWN, mine=True).text
    out = session_out(w.ctx, found.session, now, Sight.OWN)
    assert out.state_text == words
    assert words in str(session_list([out]).rows)
    tomorrow = session_state.words(found.session, now + timedelta(days=1))
    assert tomorrow == f"running as of {found.session.listed_at:%Y-%m-%d %H:%M} UTC"
    w.engine.faults.disarm()
    await w.run(60, 15)
    again = (await service.status(w.ctx, request_id)).session
    assert again is not None
    assert session_state.words(again, w.clock.now()) == "running"


async def test_a_listing_without_the_machine_is_no_sign_of_it(w: World) -> None:
    request_id = await w.ready(candidates=("vast",))
    await w.run(600, 30)
    view = (await service.status(w.ctx, request_id)).session
    assert view is not None
    assert view.instance is not None
    now, gone_at = w.clock.now(), w.clock.now() - timedelta(minutes=7)
    assert session_state.words(view, now) == "running"
    view.instance.absent_at = [gone_at.isoformat(), (gone_at + timedelta(minutes=1)).isoformat()]
    assert session_state.words(view, now) == f"running as of {gone_at:%H:%M} UTC"
    view.instance.absent_at = []
    # Of two machines, a report of the first one's agent says nothing about the other.
    silent = replace(view, listed_at=gone_at)
    reported = replace(silent, node=Node(at=now))
    assert session_state.words(reported, now) == "running"
    pair = replace(reported, others=((view.instance, NOTHING),))
    assert session_state.words(pair, now) == f"running as of {gone_at:%H:%M} UTC"
