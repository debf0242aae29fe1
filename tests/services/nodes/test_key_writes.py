"""People's keys on running machines: shared, no longer shared, added, removed, undone by a restart, not writable."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal

import pytest

from bot.outbound.ssh_login import Ran, SshLogin
from bot.rules.nodes.authorized_keys import fingerprint
from bot.services.access import sharing, ssh_keys
from bot.services.access.sharing import ShareWith
from bot.services.nodes import key_writes
from ledger.core import amend
from ledger.kernel.actor import Actor
from ledger.kernel.event_kind import EventKind
from ledger.kernel.login_problem import LoginProblem
from ledger.kernel.people.key_problem import KeyProblem
from ledger.models import Instance, MachineKey
from ledger.queries.people.machine_keys import keys_on
from providers.sandbox.machines import SandboxMachine
from tests.services.access.test_sharing import key_of
from tests.support.wire import RealReach
from tests.support.world import ALICE, DAVE, World


class Broken(RealReach):
    """Lets in and runs nothing: each command ends with this."""

    ran = Ran(status=1)

    async def run(self, login: SshLogin, command: str, *, stdin: str = "", timeout_s: float) -> Ran:
        return self.ran


async def machine(w: World) -> tuple[Instance, SandboxMachine]:
    """The newest instance and the machine behind its port."""
    row = (await w.books()).instances[-1]
    assert isinstance(w.ctx.reach, RealReach)
    found = w.ctx.reach.ports.machine_at(row.ssh_port or 0)
    assert found is not None
    return row, found


@pytest.fixture(autouse=True)
def _real_logins(w: World) -> None:
    """Host keys are read and logins made over SSH: without a known host key nobody logs in."""
    assert isinstance(w.ctx.reach, RealReach)
    w.ctx.reach.keys = True


async def share(w: World, request_id: str, *, off: bool = False, by: Actor = ALICE, who: Actor = DAVE) -> str:
    reply = await sharing.change(w.ctx, ShareWith(request_id, by, who, off))
    await w.settle()
    return f"{reply.code}: {reply.sentence}"


async def keys(w: World, row: Instance) -> dict[str, MachineKey]:
    async with w.ctx.db.read() as tx:
        return {one.public_key: one for one in await keys_on(tx, [row.id])}


async def test_a_running_machine_is_shared_and_no_longer(w: World) -> None:
    own = await key_of(w, ALICE)
    request_id = await w.running(candidates=("runpod",))
    short = request_id[-6:]
    row, inside = await machine(w)
    assert (await keys(w, row))[own].at_launch
    assert await share(w, request_id, by=DAVE) == f"not_yours: Only the owner of {short} can share it."
    refused = await share(w, request_id)
    assert refused.startswith(f"no_key: {DAVE.ref} has no SSH key here yet")
    daves = await key_of(w, DAVE)
    added = await share(w, short)
    assert added == (
        f"shared: Session {short} is shared with {DAVE.ref}. Their SSH keys go onto its machine in about a minute."
    )
    assert (await keys(w, row))[daves].placed_at == w.clock.now()
    assert (inside.lets_in("root", daves), inside.lets_in("root", own)) == (True, True)
    said = [one.body["text"] for one in (await w.books()).notifications if one.destination == DAVE.id]
    assert f"`gpu-shopper ssh {short}`" in said[-1]
    assert await share(w, short) == f"shared: Session {short} is shared with {DAVE.ref} already."
    second = await key_of(w, DAVE)
    await w.settle()
    assert inside.lets_in("root", second)
    removed = await ssh_keys.remove(w.ctx, DAVE, fingerprint(second))
    assert "The running machine that you use will refuse it in about a minute." in removed.sentence
    await w.settle()
    assert (inside.lets_in("root", second), inside.lets_in("root", daves)) == (False, True)
    gone = await share(w, short, off=True)
    assert "Their SSH keys are removed from its machine in about a minute. Connections that are open stay open." in gone
    assert (inside.lets_in("root", daves), inside.lets_in("root", own)) == (False, True)
    said = [one.body["text"] for one in (await w.books()).notifications if one.destination == DAVE.id]
    assert f"no longer shares {short} with you." in said[-1]
    written = [one.reason for one in (await w.books()).events if one.kind == EventKind.INSTANCE_KEYS_WRITTEN]
    assert written == [f"Keys {how} of {DAVE.ref}." for how in ("added", "added", "removed", "removed")]
    assert await key_writes.key_writes_due(w.ctx) == 0


async def test_keys_of_the_create_call_are_removed_again_after_a_restart(w: World) -> None:
    w.tune(same_person=((DAVE.id, "operator:dave"),))
    daves = await key_of(w, DAVE)
    request_id = await w.running(candidates=("runpod",), share=(DAVE.ref,))
    row, inside = await machine(w)
    assert inside.lets_in("root", daves)
    await share(w, request_id, off=True, who=Actor.from_ref("operator:dave"))
    assert not inside.lets_in("root", daves)
    inside.files.clear()
    w.clock.advance(60)
    async with w.ctx.db.write() as tx:
        await amend(tx, Instance, row.id, reachable_at=w.clock.now())
    assert inside.lets_in("root", daves)
    assert await key_writes.key_writes_due(w.ctx) == 1
    assert not inside.lets_in("root", daves)


async def test_an_attempt_that_fails_is_repeated_and_the_owner_is_notified_once(w: World) -> None:
    await key_of(w, ALICE)
    daves = await key_of(w, DAVE)
    request_id = await w.running(candidates=("runpod",), hours=Decimal(8))
    row, inside = await machine(w)
    right = w.ctx.reach
    assert isinstance(right, RealReach)
    w.ctx.reach = broken = Broken(right.ports)
    await share(w, request_id)
    waiting = (await keys(w, row))[daves]
    assert (waiting.placed_at, waiting.problem) == (None, KeyProblem.UNREADABLE)
    assert await key_writes.key_writes_due(w.ctx) == 0
    broken.ran = Ran(problem=LoginProblem.REFUSED)
    for _ in range(8):
        w.clock.advance(300)
        await key_writes.key_writes_due(w.ctx)
    assert (await keys(w, row))[daves].problem is KeyProblem.REFUSED
    said = [one.body.get("text", "") for one in (await w.books()).notifications if one.destination == ALICE.id]
    late = [one for one in said if "can't change the SSH keys" in one]
    (sentence,) = late
    assert sentence == (
        f"GPU Shopper can't change the SSH keys on the machine of session {request_id[-6:]}: "
        "The machine refuses GPU Shopper's own key. It keeps trying."
    )
    w.ctx.reach = right
    w.clock.advance(timedelta(minutes=11).total_seconds())
    assert await key_writes.key_writes_due(w.ctx) == 1
    assert inside.lets_in("root", daves)
    assert (await keys(w, row))[daves].problem is None


async def test_a_machine_that_nobody_can_write_on_is_not_shared(w: World) -> None:
    w.tune(validate_login=False)
    for who in (ALICE, DAVE):
        await key_of(w, who)
    request_id = await w.running(candidates=("runpod",), share=(DAVE.ref,))
    assert (await share(w, request_id, who=Actor.from_ref("operator:eve"))).startswith(
        "launched: GPU Shopper can't log"
    )
    assert "Remove their keys from ~/.ssh/authorized_keys yourself." in await share(w, request_id, off=True)
    await w.end(request_id)
    assert (await share(w, request_id)).startswith("already_ending: ")
