"""The host key of a machine: kept from the first look, and another one in its place is told, never ended."""

from __future__ import annotations

import pytest

from bot.api.views import session_out
from bot.cli.terminal.views import session_details
from bot.rules.instances.power import PowerAction
from bot.services.instances import power
from bot.services.nodes import host_keys
from bot.services.nodes.connection import fingerprint, known_hosts
from bot.services.notifications.paging import OPERATORS
from bot.services.runtime.commands import Switch
from bot.slack.blocks.session import session_ready_and_ended, status
from ledger.kernel.event_kind import EventKind
from ledger.kernel.states import InstanceState
from ledger.models import Instance
from ledger.queries.journal import latest_events
from providers.profiles import model
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
    out = session_out(w.ctx, view, w.clock.now(), mine=True)
    assert out.ssh is not None
    assert (out.ssh.host_key, out.ssh.fingerprint, out.ssh.known_hosts) == (row.host_key, mark, line)
    assert f"For known_hosts: {line}" in session_details(out).sentences
    assert line in status.details(view, w.ctx.policy, w.clock.now(), mine=True).text
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
