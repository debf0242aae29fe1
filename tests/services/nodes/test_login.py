"""Who may log in to a machine and when: every reason why not has a sentence of its own."""

from __future__ import annotations

import pytest

from bot.rules.instances.power import PowerAction
from bot.services.instances import power
from bot.services.nodes.login import login
from bot.services.runtime.commands import Switch
from ledger.core import amend
from ledger.kernel.actor import Actor
from ledger.models import Instance
from tests.support.wire import RealReach
from tests.support.world import ALICE, BOB, World, facts


async def said(w: World, who: Actor = ALICE) -> tuple[str, str]:
    """The code and the sentence for the newest session."""
    reply = await login(w.ctx, (await w.books()).sessions[-1].id, who)
    return reply.code, reply.sentence


@pytest.fixture
def keyed(w: World) -> World:
    """A world whose prober exchanges keys."""
    assert isinstance(w.ctx.reach, RealReach)
    w.ctx.reach.keys = True
    return w


async def test_the_owner_logs_in_from_ready_to_the_end_and_nobody_else(keyed: World) -> None:
    w = keyed
    w.tune(same_person=((ALICE.id, "operator:alice"),))
    request_id = await w.approved(candidates=("vast",))
    short = request_id[-6:]
    early = f"Session {short} isn't ready yet. To see how far it is: `gpu-shopper session {short}`."
    assert await said(w) == ("not_ready", early)
    await w.settle()
    await w.run(40, 20)
    (row,) = (await w.books()).instances
    reply = await login(w.ctx, row.session_id, ALICE)
    assert (reply.code, reply.data["view"].instance.host_key) == ("login", row.host_key)
    assert (await said(w, Actor.from_ref("operator:alice")))[0] == "login"
    whose = f"Session {short} is alice's. Only its owner and who shares it can log in."
    assert await said(w, BOB) == ("not_yours", whose)
    async with w.ctx.db.write() as tx:
        await amend(tx, Instance, row.id, host_key=None)
    code, sentence = await said(w)
    assert (code, "isn't known yet, so a login isn't safe" in sentence) == ("no_host_key", True)
    async with w.ctx.db.write() as tx:
        await amend(tx, Instance, row.id, host_key=row.host_key, ssh_host="-oProxyCommand=x")
    assert (await said(w))[0] == "not_ready"
    assert (await w.end(request_id)).ok
    assert await said(w) == ("already_ending", f"Session {short} is ending.")
    await w.run(150, 15)
    assert await said(w) == ("already_ending", f"Session {short} has ended.")


async def test_a_stopped_machine_and_a_cloud_without_ssh_are_named(w: World) -> None:
    request_id = await w.running(candidates=("runpod",))
    assert (await power.switch(w.ctx, Switch(request_id, facts(ALICE), PowerAction.STOP))).ok
    await w.run(60, 20)
    short = request_id[-6:]
    stopped = f"The machine of session {short} is stopped. To start it: `gpu-shopper start {short}`."
    assert await said(w) == ("not_ready", stopped)
    short = (await w.running(candidates=("kaggle",)))[-6:]
    assert await said(w) == ("no_ssh", f"Session {short} runs your command at kaggle, which has no SSH.")
