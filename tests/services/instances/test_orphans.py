"""The end of a duplicate: its instance keeps running, and the instance's own agent can report."""

from __future__ import annotations

from dataclasses import replace

from bot.rules.values.reply_code import ReplyCode
from bot.services.nodes.checkins import Checkins
from bot.services.runtime.commands import Reply
from bot.wire import variables
from bot.wire.checkin import Checkin, CheckinAnswer
from ledger.kernel.states import InstanceState, OrphanState
from providers.sandbox.vast.sandbox import VastSandbox
from tests.support.agents import agent
from tests.support.world import World


async def test_the_own_agent_exchanges_its_token_once_a_duplicate_that_checked_in_is_gone(w: World) -> None:
    w.ctx = replace(w.ctx, node_url="http://127.0.0.1:9")
    await w.running(candidates=("vast",))
    (row,) = (await w.books()).instances
    boot, vast, checkins = agent(w).env[variables.TOKEN], w.clouds["vast"], Checkins(w.ctx)
    assert isinstance(vast, VastSandbox)
    # Both were made by one create, so both have its boot token, and the duplicate's agent is the quicker one.
    vast.account.rent(next(vast.account.market.slices()), {"label": row.name, "image": "x", "disk": 50})
    assert isinstance(await checkins.take(boot, Checkin(seq=1, nonce="d" * 32)), CheckinAnswer)
    refused = await checkins.take(boot, Checkin(seq=2, nonce="o" * 32))
    assert isinstance(refused, Reply)
    assert refused.code is ReplyCode.UNAUTHENTICATED
    await w.run(180, 15)
    books = await w.books()
    assert [orphan.state for orphan in books.orphans] == [OrphanState.GONE]
    assert [one.state for one in books.instances] == [InstanceState.LIVE]
    exchanged = await checkins.take(boot, Checkin(seq=3, nonce="o" * 32))
    assert isinstance(exchanged, CheckinAnswer)
    assert exchanged.token.startswith("gpuc_")
    assert isinstance(await checkins.take(exchanged.token, Checkin(seq=4)), CheckinAnswer)
