"""The host key of a machine: kept from the first look, and another one in its place is told, never ended."""

from __future__ import annotations

import asyncssh
import pytest

from bot.api.views import login_out, session_out
from bot.cli.terminal.views import session_details
from bot.rules.access.sight import Sight
from bot.rules.instances.power import PowerAction
from bot.rules.nodes.authorized_keys import fingerprint
from bot.services.instances import power
from bot.services.nodes import host_keys
from bot.services.nodes.connection import known_hosts
from bot.services.notifications.paging import OPERATORS
from bot.services.runtime.commands import Switch
from bot.slack.blocks.session import session_ready_and_ended, status
from ledger.core.writes import amend
from ledger.kernel.event_kind import EventKind
from ledger.kernel.states import InstanceState
from ledger.models import Instance
from ledger.queries.journal import latest_events
from providers.profiles import model
from tests.support.agents import agent, listening, pass_time
from tests.support.wire import RealReach
from tests.support.world import ALICE, World, facts


async def the(w: World) -> Instance:
    return (await w.books()).instances[0]


def wipe(w: World, row: Instance) -> None:
    """The machine shows another host key from now on."""
    w.engine.ssh_ports.new_key(f"{row.cloud}/{row.ref}")


async def look(w: World, after_s: float = 900) -> None:
    """The pass over the host keys, so much later."""
    await w.run(after_s, 300)
    await host_keys.keys_due(w.ctx)
    await w.settle()


def alarms(w: World, row: Instance) -> set[str]:
    return {place for _, subject, place, _ in w.board.shown if subject == f"{row.id}/host_key"}


@pytest.fixture
def keyed(w: World) -> World:
    """A world whose prober exchanges keys."""
    assert isinstance(w.ctx.reach, RealReach)
    w.ctx.reach.keys = True
    return w


async def test_the_first_key_is_shown_and_another_one_is_told_once_and_ends_nothing(keyed: World) -> None:
    w = keyed
    await w.running(candidates=("vast",))
    row = await the(w)
    assert row.host_key is not None
    assert row.host_key.startswith("ssh-ed25519 AAAA")
    mark, line = fingerprint(row.host_key), f"[127.0.0.1]:{row.ssh_port} {row.host_key}"
    assert known_hosts(row) == line
    view = await w.session(row.session_id)
    out = session_out(w.ctx, view, w.clock.now(), Sight.OWN)
    assert out.ssh is not None
    assert (out.ssh.host_key, out.ssh.fingerprint, out.ssh.known_hosts) == (row.host_key, mark, line)
    assert f"For known_hosts: {line}" in session_details(out).sentences
    assert line in status.details(view, w.ctx.policy, w.clock.now(), Sight.OWN).text
    assert line not in session_ready_and_ended.ready(view, "/gpu").text
    wipe(w, row)
    await look(w, 300)
    assert alarms(w, row) == set()  # Nobody looked yet.
    for _ in range(2):
        await look(w)
    assert alarms(w, row) == {ALICE.id, OPERATORS}
    async with w.ctx.db.read() as tx:
        (event,) = await latest_events(tx, row.id, EventKind.INSTANCE_HOST_KEY_CHANGED, 2)
    assert event.data["before"] == mark
    assert event.data["after"].startswith("SHA256:")
    assert event.data["after"] != mark
    after = await the(w)
    assert (after.state, after.host_key) == (InstanceState.LIVE, row.host_key)


def host_key(kind: str = "ssh-ed25519") -> str:
    """A key of nobody's."""
    return " ".join(asyncssh.generate_private_key(kind).export_public_key().decode().split()[:2])


def pages(w: World, row: Instance) -> int:
    """How often the operators were notified of its host key."""
    return sum(subject == f"{row.id}/host_key" and place == OPERATORS for _, subject, place, _ in w.board.shown)


async def test_an_agent_that_reports_the_same_key_confirms_it(keyed: World) -> None:
    w = keyed
    async with listening(w):
        await w.running(candidates=("vast",))
        row = await the(w)
        view = await w.session(row.session_id)
        assert "not confirmed by an agent" in status.details(view, w.ctx.policy, w.clock.now(), Sight.OWN).text
        before = session_out(w.ctx, view, w.clock.now(), Sight.OWN)
        assert any(said.endswith("Its agent did not confirm it.") for said in session_details(before).sentences)
        agent(w).machine = {"host_key": row.host_key}
        await pass_time(w, 70)
        view = await w.session(row.session_id)
        assert "confirmed by its agent" in status.details(view, w.ctx.policy, w.clock.now(), Sight.OWN).text
        out = session_out(w.ctx, view, w.clock.now(), Sight.OWN)
        assert out.ssh is not None
        assert out.ssh.host_key_confirmed
        assert any(said.endswith("as the machine's agent reports it.") for said in session_details(out).sentences)
        assert alarms(w, row) == set()


@pytest.mark.both_databases
@pytest.mark.slow
async def test_an_agent_that_reports_another_key_later_is_told_at_once_and_ends_nothing(keyed: World) -> None:
    w, hidden = keyed, host_key()
    async with listening(w):
        await w.running(candidates=("vast",))
        row = await the(w)
        agent(w).machine = {"host_key": hidden}
        await pass_time(w, 70)
        assert alarms(w, row) == {ALICE.id, OPERATORS}
        async with w.ctx.db.read() as tx:
            (event,) = await latest_events(tx, row.id, EventKind.INSTANCE_HOST_KEY_CHANGED, 2)
        assert row.host_key is not None
        assert event.data == {"before": fingerprint(row.host_key), "after": fingerprint(hidden)}
        # The agent's key is pinned, so `gpu-shopper ssh` meets that machine or nothing.
        after = await the(w)
        assert (after.state, after.host_key) == (InstanceState.LIVE, hidden)
        found = login_out(await w.session(row.session_id))
        assert found.known_hosts == f"[127.0.0.1]:{row.ssh_port} {hidden}"
        for _ in range(2):
            await pass_time(w, 700)
            await look(w, 0)
        assert pages(w, row) == 1
        assert (await the(w)).host_key == hidden


async def test_an_agent_that_names_another_key_each_minute_is_told_once_in_a_while(keyed: World) -> None:
    w = keyed
    async with listening(w):
        await w.running(candidates=("vast",))
        row = await the(w)
        for _ in range(8):
            agent(w).machine = {"host_key": host_key()}
            await pass_time(w, 61)
        assert pages(w, row) == 1
        agent(w).machine = {"host_key": host_key()}
        await pass_time(w, 600)
        assert pages(w, row) == 2


async def test_a_key_that_the_network_showed_first_is_one_message(keyed: World) -> None:
    """Somebody made a new key on the machine; the network is looked at before its agent reports it."""
    w = keyed
    async with listening(w):
        await w.running(candidates=("vast",))
        row = await the(w)
        agent(w).machine = {"host_key": row.host_key}
        wipe(w, row)
        await pass_time(w, 700)
        await look(w, 0)
        assert pages(w, row) == 1
        assert row.ssh_port is not None
        new = await w.ctx.reach.host_key("127.0.0.1", row.ssh_port)
        agent(w).machine = {"host_key": new}
        await pass_time(w, 61)
        assert (await the(w)).host_key == row.host_key
        await pass_time(w, 660)
        await look(w, 0)
        assert (await the(w)).host_key == new
        assert pages(w, row) == 1


async def test_a_key_that_both_name_replaces_the_first_one_without_an_alarm(keyed: World) -> None:
    """Somebody made a new key on the machine, and its agent reports it before the network is looked at again."""
    w = keyed
    async with listening(w):
        await w.running(candidates=("vast",))
        row = await the(w)
        agent(w).machine = {"host_key": row.host_key}
        async with w.ctx.db.write() as tx:
            await amend(tx, Instance, row.id, host_key=None)
        await pass_time(w, 700)
        await look(w, 0)
        assert (await the(w)).host_key == row.host_key
        async with w.ctx.db.write() as tx:
            await amend(tx, Instance, row.id, host_key=host_key("ecdsa-sha2-nistp256"))
        await pass_time(w, 700)
        await look(w, 0)
        assert (await the(w)).host_key == row.host_key
        assert alarms(w, row) == set()


async def test_a_key_of_another_kind_is_no_mismatch(keyed: World) -> None:
    w = keyed
    async with listening(w):
        await w.running(candidates=("vast",))
        row = await the(w)
        agent(w).machine = {"host_key": host_key("ecdsa-sha2-nistp256")}
        await pass_time(w, 700)
        await look(w, 0)
        assert alarms(w, row) == set()
        assert (await the(w)).host_key == row.host_key
        view = await w.session(row.session_id)
        assert "reports a key of another kind" in status.details(view, w.ctx.policy, w.clock.now(), Sight.OWN).text


async def test_a_report_from_before_the_last_look_is_not_compared(keyed: World) -> None:
    """The disk may have been wiped since, and the machine has another key then."""
    w = keyed
    async with listening(w):
        await w.running(candidates=("vast",))
        row = await the(w)
        agent(w).machine = {"host_key": host_key()}
        async with w.ctx.db.write() as tx:
            await amend(tx, Instance, row.id, host_key=None)
        await pass_time(w, 70)
        agent(w).silent = True
        async with w.ctx.db.write() as tx:
            await amend(tx, Instance, row.id, host_key_at=w.clock.now())
        w.clock.advance(700)
        await look(w, 0)
        assert (await the(w)).host_key == row.host_key
        assert alarms(w, row) == set()


async def test_a_restart_that_wipes_the_disk_makes_a_new_key_and_no_alarm(keyed: World) -> None:
    w = keyed
    cloud = next(name for name, one in w.ctx.providers.items() if one.capabilities.restart and wiped(name))
    request_id = await w.running(candidates=(cloud,))
    row = await the(w)
    assert (await power.switch(w.ctx, Switch(request_id, facts(ALICE), PowerAction.RESTART))).ok
    await w.settle()
    assert (await the(w)).host_key is None
    wipe(w, row)
    await look(w)
    after = await the(w)
    assert after.host_key not in (None, row.host_key)
    assert alarms(w, row) == set()


def wiped(cloud: str) -> bool:
    return bool(model.load(cloud).restarted)


@pytest.mark.parametrize(
    ("host", "port", "line"),
    [("h.example", 22, "h.example ssh-ed25519 QQ=="), ("-oProxyCommand=x", 22, None), ("a b", 2, None), ("", 22, None)],
)
def test_no_host_becomes_an_option_or_a_second_word(host: str, port: int, line: str | None) -> None:
    assert known_hosts(Instance(ssh_host=host, ssh_port=port, host_key="ssh-ed25519 QQ==")) == line
