"""After a loss every surface says the same: the machine is gone, why, and what follows."""

from __future__ import annotations

import pytest

from bot.api.views import session_out
from bot.cli.terminal.views import session_details, session_list
from bot.rules.access.sight import Sight
from bot.rules.policy.policy import Policy
from bot.services.sessions import service
from bot.slack.blocks.request import CardFacts
from bot.slack.blocks.session.status import status
from ledger.kernel.states import RequestState, SessionState
from tests.support.world import World

ASKS = "New offers need an approval before anything is bought."


@pytest.mark.parametrize("replacements", [0, 1])
@pytest.mark.slow
async def test_nobody_is_invited_to_log_in_to_a_lost_machine(w: World, replacements: int) -> None:
    w.tune(replacements=replacements)
    request_id = await w.ready(candidates=("vast",))
    view = (await service.status(w.ctx, request_id)).session
    assert view is not None
    before = session_out(w.ctx, view, w.clock.now(), Sight.OWN)
    assert before.ssh is not None
    assert before.lost_machine == ""
    assert view.instance is not None
    w.clouds["vast"].disturb(str(view.instance.ref), "vanish")
    if replacements:
        w.arm("create_stale_offer", times=None)  # Nothing replaces it either.
    await w.run(300, 15)
    found = await service.status(w.ctx, request_id)
    assert found.session is not None
    assert (found.session.session.state, found.request.request.state) == (SessionState.QUEUED, RequestState.PENDING)
    out = session_out(w.ctx, found.session, w.clock.now(), Sight.OWN)
    assert out.ssh is None
    details = session_details(out)
    in_a_terminal = " ".join((details.lead, *details.sentences))
    in_slack = status(found, Policy(), CardFacts(), w.clock.now(), Sight.OWN, mine=True).text
    for said in (in_a_terminal, in_slack):
        assert "waiting for a new machine" in said
        assert "launching soon" not in said
        assert "ssh" not in said.lower()
        assert "/h" not in said.replace("https://", "")
    if not replacements:
        for said in (in_a_terminal, in_slack):
            assert f"The cloud no longer has the instance, and GPU Shopper didn't terminate it. {ASKS}" in said
    assert "waiting for a new machine" in str(session_list([out]).rows)
