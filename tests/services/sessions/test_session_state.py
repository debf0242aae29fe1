"""A session's state in words says since when nothing was seen of its machine."""

from __future__ import annotations

from datetime import timedelta

from bot.api.views import session_out
from bot.cli.terminal.views import session_list
from bot.rules.access.sight import Sight
from bot.rules.policy.policy import Policy
from bot.services.sessions import service, session_state
from bot.slack.blocks import listing
from bot.slack.blocks.request import CardFacts
from bot.slack.blocks.session.status import status
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
