"""A machine whose agent reports another host key than its address shows: never ready, unless the keys come to agree."""

from __future__ import annotations

import asyncssh
import pytest

from ledger.core.writes import amend
from ledger.kernel.states import InstanceState
from ledger.models import Instance
from providers.sandbox.machines import Flaw
from tests.services.instances.test_gpu_checks import fails, the
from tests.support.agents import agent, listening
from tests.support.matrix import clouds_with
from tests.support.wire import RealReach
from tests.support.world import World


@pytest.fixture
def keyed(w: World) -> World:
    """A world whose prober exchanges keys."""
    assert isinstance(w.ctx.reach, RealReach)
    w.ctx.reach.keys = True
    return w


@pytest.mark.parametrize("cloud", clouds_with(ssh=True))
async def test_another_host_key_than_the_agent_s_fails_the_delivery_on_each_cloud(keyed: World, cloud: str) -> None:
    w = keyed
    await fails(w, Flaw.OTHER_HOST_KEY, cloud)


async def test_an_agent_that_reports_the_new_key_in_time_saves_its_machine(keyed: World) -> None:
    """A machine may replace the keys of its image while it boots."""
    w = keyed
    async with listening(w):
        request_id = await w.approved(candidates=("vast",))
        w.arm(Flaw.OTHER_HOST_KEY, "vast")
        await w.settle()
        await w.run(40, 20)
        _, row = await the(w, request_id)
        assert row.gpu_check is not None
        assert (row.reachable_at, row.gpu_check["verdict"]) == (None, "host_key_mismatch")
        agent(w).machine = {"host_key": row.host_key}
        await w.run(80, 20)
        view, after = await the(w, request_id)
        assert after.reachable_at is not None
        assert after.host_key == row.host_key
        assert len(view.instances) == 1


async def test_the_key_of_the_agent_s_kind_is_looked_for_and_pinned(keyed: World) -> None:
    """The server has a key of each kind, and the network's first look took another one than the agent names."""
    w = keyed
    async with listening(w):
        request_id = await w.approved(candidates=("vast",))
        w.arm(Flaw.NO_LOGIN, "vast")
        await w.settle()
        await w.run(40, 20)
        _, row = await the(w, request_id)
        agent(w).machine = {"host_key": row.host_key}
        ecdsa = asyncssh.generate_private_key("ecdsa-sha2-nistp256").export_public_key().decode()
        async with w.ctx.db.write() as tx:
            await amend(tx, Instance, row.id, host_key=" ".join(ecdsa.split()[:2]))
        await w.run(80, 20)
        assert (await the(w, request_id))[1].host_key == row.host_key
        # A key of a kind that the server lacks confirms nothing and hinders nothing.
        agent(w).machine = {"host_key": " ".join(ecdsa.split()[:2])}
        await w.run(80, 20)
        view, after = await the(w, request_id)
        assert after.gpu_check is not None
        assert (after.gpu_check["problem"], after.gpu_check["verdict"]) == ("refused", "")
        assert len(view.instances) == 1


async def test_without_a_login_a_machine_whose_agent_reports_another_key_is_not_ready(keyed: World) -> None:
    w = keyed
    w.tune(validate_login=False)
    async with listening(w):
        request_id = await w.approved(candidates=("vast",))
        w.arm(Flaw.OTHER_HOST_KEY, "vast")
        await w.settle()
        await w.run(60, 20)
        assert (await the(w, request_id))[1].reachable_at is None
        await w.run(w.ctx.timing.boot_deadline_s + 300, 50)
        row = (await the(w, request_id))[1]
        assert (row.state, row.outcome_code) == (InstanceState.GONE, "host_key_mismatch")
