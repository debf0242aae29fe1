"""SSH keys that launches left at a cloud: gone with their instance, and nobody else's ever."""

from __future__ import annotations

from bot.services.instances import cleanup
from bot.services.notifications.paging import OPERATORS
from ledger.kernel.event_kind import EventKind
from ledger.kernel.ids import new_id
from providers.sandbox.lambda_cloud.sandbox import LambdaSandbox
from tests.services.runtime.test_recovery_mode import rowless
from tests.support.world import World

LINE = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ3c0ntr4ctSu1teKeyAAAAAAAAAAAAAAAAAAAAA"


def cloud(w: World) -> LambdaSandbox:
    there = w.clouds["lambda"]
    assert isinstance(there, LambdaSandbox)
    return there


def keys(w: World) -> list[str]:
    return [key["name"] for key in cloud(w).account.ssh_keys]


async def condemned(w: World) -> list[str]:
    return [event.subject for event in (await w.books()).events if event.kind == EventKind.LEFTOVER_CONDEMNED]


async def test_a_key_goes_with_its_instance_and_nobody_elses_ever_does(w: World) -> None:
    over = await w.running(candidates=("lambda",), public_key=LINE)
    w.clock.advance(60)
    await w.running(candidates=("lambda",), public_key=LINE)
    dead, alive = (await w.books()).instances
    hint = w.ctx.hints.leftovers
    assert (dead.request_id, hint.is_set()) == (over, False)
    forged = f"gpu-shopper-{dead.label[:-1]}{'a' if dead.label[-1] != 'a' else 'b'}"
    unknown = f"gpu-shopper-{w.ctx.labels.mint(new_id('req', w.clock.now()), 1)}"
    for name in (forged, unknown):
        cloud(w).account.add_key(name, f"ssh-ed25519 AAAA{name}")
    others = ["laptop", forged, unknown]
    doomed, stays = f"gpu-shopper-{dead.label}", f"gpu-shopper-{alive.label}"
    assert sorted(keys(w)) == sorted([*others, doomed, stays])
    assert await cleanup.leftovers_due(w.ctx) == 0  # Both run.
    await w.end(over)
    await w.run(120, 30)
    assert hint.is_set()  # The proof of its end calls for the look.
    stray = await rowless(w)
    assert (await cleanup.leftovers_due(w.ctx), await condemned(w)) == (0, [])  # In a recovery nothing is removed.
    w.clouds["vast"].disturb(stray.ref, "vanish")
    await w.run(180, 60)
    for skip in (0, 1):  # The keys cannot be listed; then they are, and the removal is refused.
        w.engine.faults.arm("lambda", "keys_inactive", skip=skip)
        assert (await cleanup.leftovers_due(w.ctx), doomed in keys(w)) == (0, True)
    assert await cleanup.leftovers_due(w.ctx) == 1
    assert sorted(keys(w)) == sorted([*others, stays])
    assert await condemned(w) == [dead.id]
    # A crash between the note and the removal: the key is still there, and the note is not made twice.
    cloud(w).account.add_key(doomed, LINE)
    assert (await cleanup.leftovers_due(w.ctx), await condemned(w)) == (1, [dead.id])
    assert sorted(keys(w)) == sorted([*others, stays])
    said = [n for n in (await w.books()).notifications if n.subject.startswith("lambda/leftovers")]
    assert [n.destination for n in said] == [OPERATORS]  # However often it was looked that day.
    assert "1 SSH key with a forged label, and 1 of instances" in said[0].body["text"]
