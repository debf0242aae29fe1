"""The TensorDock adapter against its sandbox: slow and hidden answers, odd listings, stops that save nothing."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from decimal import Decimal

import pytest

from ledger.kernel.ports import Port
from providers.contract import InstanceStatus, NotSeen, ObservedInstance
from providers.errors import (
    AuthFailed,
    InsufficientFunds,
    InvalidSpec,
    NoCapacity,
    NotSent,
    OutcomeUnknown,
    ProviderError,
    RateLimited,
    Unavailable,
    UnexpectedResponse,
    Unsupported,
)
from tests.contract.served import LABEL, NAME, PUBLIC_KEY, banner
from tests.providers.clouds.tensordock.served import cloud, clouds
from tests.providers.served import Served

__all__ = ["cloud", "clouds"]

pytestmark = pytest.mark.asyncio(loop_scope="module")


# ── create ───────────────────────────────────────────────────────────────────────────────────────


async def test_a_create_that_takes_more_than_a_minute_is_waited_for(cloud: Served) -> None:
    spec, before = cloud.spec(await cloud.offer()), cloud.clock.now()
    cloud.arm("create_slow", after_s=70)
    made = await cloud.provider.create(spec, cloud.grant())

    assert cloud.clock.now() - before >= timedelta(seconds=70)
    assert [item.ref for item in cloud.truth()] == [made.ref]


@pytest.mark.parametrize("status", ["queued", "creating"])
async def test_what_the_answer_says_is_no_promise(cloud: Served, status: str) -> None:
    cloud.arm("create_says_creating", status=status)

    assert (await cloud.create()).status is InstanceStatus.PENDING


async def test_an_error_that_names_an_instance_is_not_a_refusal(cloud: Served) -> None:
    cloud.arm("create_half_made")
    with pytest.raises(OutcomeUnknown):
        await cloud.create()

    found = await cloud.provider.find(LABEL)
    assert not isinstance(found, NotSeen)
    assert [item.ref for item in found] == [item.ref for item in cloud.truth()]


async def test_the_machine_gets_its_shape_its_image_and_its_key(cloud: Served) -> None:
    made = await cloud.create()
    machine = cloud.account.instances[made.ref]

    assert (machine.name, machine.image) == (NAME, "ubuntu2404_nvidia_570")
    assert (machine.gpu_count, machine.vcpus, machine.ram_gb, machine.disk_gb) == (1, 8, 32, 100)
    material = " ".join(PUBLIC_KEY.split()[:2])
    assert any(material in command for command in machine.cloud_init["runcmd"])


async def test_the_accounts_secret_is_used_without_a_key_to_bring(cloud: Served) -> None:
    bare = replace(cloud.spec(await cloud.offer()), public_keys=())
    await cloud.provider.create(bare, cloud.grant())
    assert len(cloud.alive()) == 1

    cloud.account.secrets.clear()
    with pytest.raises(InvalidSpec, match="needs an SSH key"):
        await cloud.provider.create(bare, cloud.grant())
    assert len(cloud.creates()) == 1


@pytest.mark.parametrize(
    ("fault", "expected"), [("secrets_503", NotSent), ("secrets_auth", AuthFailed), ("secrets_429", RateLimited)]
)
async def test_trouble_with_the_secret_is_a_definite_no(
    cloud: Served, fault: str, expected: type[ProviderError]
) -> None:
    bare = replace(cloud.spec(await cloud.offer()), public_keys=())
    cloud.arm(fault, None)
    with pytest.raises(expected) as caught:
        await cloud.provider.create(bare, cloud.grant())

    assert caught.value.definite_no
    assert cloud.creates() == []


async def test_stock_that_was_just_listed_may_be_gone(cloud: Served) -> None:
    offer = await cloud.offer()
    assert cloud.sandbox.withdraw(offer.key) == 1
    with pytest.raises(NoCapacity):
        await cloud.provider.create(cloud.spec(offer), cloud.grant())


# ── refusals at random ───────────────────────────────────────────────────────────────────────────


async def test_a_read_that_is_refused_once_is_tried_again(cloud: Served) -> None:
    running = await cloud.running()
    for fault, call in (
        ("list_auth", cloud.provider.list),
        ("get_auth", lambda: cloud.provider.get(running.ref)),
        ("search_auth", cloud.offer),
        ("stop_auth", lambda: cloud.provider.stop(running.ref)),
        ("destroy_auth", lambda: cloud.provider.terminate(running.ref)),
    ):
        cloud.arm(fault)
        await call()
        assert ("tensordock", fault) in cloud.engine.faults.bitten
    assert cloud.alive() == []


async def test_a_token_that_is_refused_twice_is_bad(cloud: Served) -> None:
    cloud.arm("list_auth", 2)
    with pytest.raises(AuthFailed):
        await cloud.provider.list()


async def test_a_refused_create_is_never_sent_again(cloud: Served) -> None:
    spec = cloud.spec(await cloud.offer())
    cloud.arm("create_auth")
    with pytest.raises(AuthFailed):
        await cloud.provider.create(spec, cloud.grant())

    assert len(cloud.creates()) == 1


# ── listings ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("shape", ["list_documented", "list_attributes", "list_bare"])
async def test_every_shape_of_a_listing_tells_the_same(cloud: Served, shape: str) -> None:
    running = await cloud.running()
    usual = await cloud.provider.list()
    cloud.arm(shape)
    other = await cloud.provider.list()

    told = [(i.ref, i.name, i.status, i.gpu, i.gpu_count, i.price_usd_h, i.ssh) for i in (*usual.items, *other.items)]
    assert told[0] == told[1]
    assert told[0][:3] == (running.ref, NAME, InstanceStatus.RUNNING)
    assert usual.items[0].ssh == running.ssh


@pytest.mark.parametrize("fault", ["list_error_inside", "list_unknown_shape", "list_garbage"])
async def test_an_answer_that_is_no_listing_is_never_an_empty_account(cloud: Served, fault: str) -> None:
    await cloud.running()
    cloud.arm(fault)
    with pytest.raises((UnexpectedResponse, Unavailable)):
        await cloud.provider.list()


async def test_a_port_is_asked_for_once_and_again_after_a_start(cloud: Served) -> None:
    running = await cloud.running()
    cloud.engine.calls.clear()
    for _ in range(3):
        await cloud.provider.list()
    reads = [call.path for call in cloud.engine.calls if running.ref in call.path]
    assert len(reads) == 1

    await cloud.provider.stop(running.ref)
    cloud.step()
    assert (await cloud.provider.list()).items[0].ssh is None
    await cloud.provider.start(running.ref)
    cloud.step()
    assert (await cloud.provider.list()).items[0].ssh == (await cloud.seen(running.ref)).ssh


@pytest.mark.parametrize("fault", ["get_503", "get_missing"])
async def test_a_second_read_that_fails_takes_nothing_from_the_listing(cloud: Served, fault: str) -> None:
    running = await cloud.running()
    cloud.arm(fault, None)

    (item,) = (await cloud.provider.list()).items
    assert (item.ref, item.name, item.status, item.ssh) == (running.ref, NAME, InstanceStatus.RUNNING, None)


async def test_a_read_by_id_in_each_form(cloud: Served) -> None:
    running = await cloud.running()
    cloud.arm("get_wrapped")
    assert await cloud.seen(running.ref) == running
    cloud.arm("get_missing_inside")
    assert isinstance(await cloud.provider.get(running.ref), NotSeen)


async def test_a_ghost_is_not_proved_gone_by_one_read(cloud: Served) -> None:
    running = await cloud.running()
    cloud.sandbox.disturb(running.ref, "ghost")
    assert isinstance(await cloud.provider.get(running.ref), NotSeen)
    assert (await cloud.provider.list()).items == ()
    assert len(cloud.alive()) == 1

    cloud.sandbox.disturb(running.ref, "ghost_over")
    assert isinstance(await cloud.provider.get(running.ref), ObservedInstance)


async def test_the_address_comes_later_than_the_word(cloud: Served) -> None:
    cloud.timing(boot_s=100.0)
    cloud.arm("late_address", after_s=60)
    made = await cloud.create()
    said = []
    for _ in range(4):
        seen = await cloud.seen(made.ref)
        said.append((seen.status, seen.ssh is not None))
        cloud.step(55)

    assert said[0] == (InstanceStatus.PENDING, False)
    assert said[1] == said[2] == (InstanceStatus.RUNNING, False)
    assert said[3] == (InstanceStatus.RUNNING, True)


async def test_a_location_that_ignores_forwards_is_never_reachable(cloud: Served) -> None:
    cloud.arm("ports_ignored")
    made = await cloud.create()
    cloud.step(600)
    seen = await cloud.seen(made.ref)

    assert seen.ssh is not None
    assert (seen.ssh.port, cloud.sandbox.reachable()) == (22, [])


async def test_ports_are_forwarded_where_a_machine_has_no_address_of_its_own(cloud: Served) -> None:
    found = await cloud.provider.offers(cloud.one, disk_gb=100, spot=False)
    offer = next(one for one in found if one.ticket.get("own_ip") != "yes")
    made = await cloud.provider.create(replace(cloud.spec(offer), ports=(Port(8888), Port(6006))), cloud.grant())
    cloud.step(600)
    listed = next(one for one in (await cloud.provider.list()).items if one.ref == made.ref)
    for seen in (await cloud.seen(made.ref), listed):
        assert [(one.number, one.address.split(":")[0]) for one in seen.ports] == [
            (8888, "127.0.0.1"),
            (6006, "127.0.0.1"),
        ]


# ── stop and start ───────────────────────────────────────────────────────────────────────────────


async def rates(cloud: Served, ref: str) -> tuple[Decimal, Decimal]:
    """What the machine costs now, GPU and storage, in dollars per hour."""
    meter = cloud.account.instances[ref].meter
    return tuple(meter.rate_usd_h(part, cloud.sandbox.now) for part in ("gpu", "storage"))


async def test_a_stopped_machine_costs_what_it_did(cloud: Served) -> None:
    running = await cloud.running()
    before = await rates(cloud, running.ref)
    await cloud.provider.stop(running.ref)
    cloud.step()

    seen = await cloud.seen(running.ref)
    assert (seen.status, seen.status_text, seen.ssh) == (InstanceStatus.STOPPED, "stopped", None)
    assert await rates(cloud, running.ref) == before


async def test_a_stop_may_give_the_gpu_back(cloud: Served) -> None:
    running = await cloud.running()
    cloud.arm("stop_releases")
    await cloud.provider.stop(running.ref)
    cloud.step()

    seen = await cloud.seen(running.ref)
    assert (seen.status_text, seen.holds_gpu) == ("stoppeddisassociated", False)
    gpu, storage = await rates(cloud, running.ref)
    assert (gpu, storage > 0) == (Decimal(0), True)
    await cloud.provider.start(running.ref)
    cloud.step()
    assert (await cloud.seen(running.ref)).status is InstanceStatus.RUNNING


async def test_a_gpu_that_was_given_back_may_be_taken(cloud: Served) -> None:
    running = await cloud.running()
    cloud.sandbox.disturb(running.ref, "released")
    cloud.sandbox.disturb(running.ref, "gpu_taken")
    cloud.step()
    with pytest.raises(NoCapacity):
        await cloud.provider.start(running.ref)

    assert (await cloud.seen(running.ref)).status is InstanceStatus.STOPPED
    assert (await rates(cloud, running.ref))[0] == 0


async def test_orders_on_what_is_gone(cloud: Served) -> None:
    await cloud.provider.stop("nothing")
    await cloud.provider.terminate("nothing")
    with pytest.raises(NoCapacity, match="no longer exists"):
        await cloud.provider.start("nothing")
    with pytest.raises(Unsupported):
        await cloud.provider.restart("nothing")


async def test_a_start_that_is_refused_for_another_reason_is_an_error(cloud: Served) -> None:
    running = await cloud.running()
    await cloud.provider.stop(running.ref)
    cloud.step()
    cloud.arm("start_no_nodes")
    with pytest.raises(NoCapacity):
        await cloud.provider.start(running.ref)
    cloud.arm("start_503", None)
    with pytest.raises(Unavailable):
        await cloud.provider.start(running.ref)


# ── ends ─────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("fault", ["destroy_lost_reply", "destroy_503_after"])
async def test_a_delete_may_be_repeated_whatever_happened(cloud: Served, fault: str) -> None:
    running = await cloud.running()
    cloud.arm(fault)
    await cloud.provider.terminate(running.ref)
    await cloud.provider.terminate(running.ref)

    assert cloud.alive() == []


async def test_an_error_inside_a_200_is_no_delete(cloud: Served) -> None:
    running = await cloud.running()
    cloud.arm("destroy_error_inside")
    with pytest.raises(Unavailable):
        await cloud.provider.terminate(running.ref)

    assert len(cloud.alive()) == 1


@pytest.mark.parametrize(("what", "status"), [("error", InstanceStatus.ERROR), ("relocating", InstanceStatus.OFFLINE)])
async def test_what_happens_to_a_machine_is_seen(cloud: Served, what: str, status: InstanceStatus) -> None:
    running = await cloud.running()
    assert running.ssh is not None
    cloud.sandbox.disturb(running.ref, what)

    assert (await cloud.seen(running.ref)).status is status
    assert await banner(running.ssh.host, running.ssh.port) == b""
    with pytest.raises(KeyError):
        cloud.sandbox.disturb(running.ref, "eaten by a bear")


async def test_below_zero_machines_stop_and_are_deleted_four_days_later(cloud: Served) -> None:
    running = await cloud.running()
    cloud.sandbox.disturb(running.ref, "credit_gone")
    cloud.step()
    assert (await cloud.seen(running.ref)).status is InstanceStatus.STOPPED
    with pytest.raises(InsufficientFunds):
        await cloud.create()
    report = await cloud.provider.preflight()
    assert (report.ok, "below the $1" in report.problem) == (False, True)

    cloud.step(97 * 3600)
    assert (await cloud.provider.list()).items[0].status is InstanceStatus.OFFLINE
    cloud.step()
    assert isinstance(await cloud.provider.get(running.ref), NotSeen)
    assert cloud.alive() == []
