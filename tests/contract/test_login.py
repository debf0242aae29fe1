"""GPU Shopper's own key at every cloud with SSH: it opens the machine, and takes nobody's place."""

from __future__ import annotations

from dataclasses import replace

import pytest

from providers.sandbox.machines import Flaw
from tests.contract.served import PUBLIC_KEY, Bench

pytestmark = pytest.mark.asyncio(loop_scope="module")

OURS = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGpUb1dlTmV2ZXJVc2VUaGlzS2V5Rm9yQW55dGhp"


@pytest.mark.needs(ssh=True)
@pytest.mark.parametrize("brings", [True, False], ids=["beside a person's key", "beside the account's key"])
async def test_the_login_key_opens_the_machine(bench: Bench, brings: bool) -> None:
    spec = replace(bench.spec(await bench.offer()), login_key=OURS)
    made = await bench.provider.create(spec if brings else replace(spec, public_keys=()), bench.grant())
    bench.step()
    seen = await bench.seen(made.ref)
    assert seen.ssh is not None
    machine = bench.engine.ssh_ports.machine_at(seen.ssh.port)
    assert machine is not None
    assert machine.lets_in(seen.ssh.user, OURS)
    assert machine.lets_in(seen.ssh.user, PUBLIC_KEY) is brings
    assert not machine.lets_in("somebody-else", OURS)
    assert (machine.gpu, machine.gpu_count) == (bench.sandbox.STAPLE, bench.sandbox.STAPLE_COUNT)


@pytest.mark.needs(ssh=True)
async def test_flaws_are_the_next_machines_alone(bench: Bench) -> None:
    for flaw in Flaw:
        bench.arm(flaw)
    running = await bench.running()
    assert running.ssh is not None
    machine = bench.engine.ssh_ports.machine_at(running.ssh.port)
    assert machine is not None
    assert machine.flaws == set(Flaw)
    # The cloud itself says nothing of it.
    assert (running.gpu, running.gpu_count) == (bench.sandbox.STAPLE, bench.sandbox.STAPLE_COUNT)
    other = await bench.running("gpu-shopper-other-machine")
    assert other.ssh is not None
    assert bench.engine.ssh_ports.machine_at(other.ssh.port) == replace(machine, flaws=frozenset())
