"""The walk of an instance: made, found, running, stopped, started, gone; and what may be repeated."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal

import pytest

from ledger.kernel.proof import AbsenceRule, ProofOfEnd
from providers.contract import InstanceStatus, Listing, NotSeen
from providers.errors import OutcomeUnknown, ProviderError, Unsupported
from providers.leftovers import Leaves
from providers.rate_limits import LocalPacer
from tests.contract.served import DISK_GB, LABEL, NAME, OTHER, PROGRAM_S, Bench, banner

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_a_created_instance_is_found_by_name_by_id_and_in_the_list(bench: Bench) -> None:
    made = await bench.create()

    assert made.name == NAME
    assert made.cloud == bench.entry.name
    assert (await bench.seen(made.ref)).name == NAME
    found = await bench.provider.find(LABEL)
    assert not isinstance(found, NotSeen)
    assert [(i.ref, i.name) for i in found] == [(made.ref, NAME)]
    listing = await bench.provider.list()
    assert [(i.ref, i.name) for i in listing.items] == [(made.ref, NAME)]
    assert listing.account == bench.provider.account
    assert listing.at == bench.clock.now()


async def test_what_a_create_makes_besides_its_instance_is_told_by_its_label_and_removed(bench: Bench) -> None:
    before = bench.besides()
    made = await bench.running()
    leaves = bench.provider if isinstance(bench.provider, Leaves) else None
    told = await leaves.leftovers() if leaves else ()
    ours = [item for item in told if item.name.endswith(LABEL)]

    assert bool(ours) is (bench.besides() != before)
    for item in ours * 2:
        assert leaves is not None
        await leaves.remove(item)
    assert bench.besides() == before
    assert (await bench.seen(made.ref)).status is InstanceStatus.RUNNING


async def test_after_its_preparation_a_create_is_one_call_that_waits_for_nobody(bench: Bench) -> None:
    offer = await bench.offer()
    paced = bench.replica(LocalPacer(bench.clock))
    try:
        await paced.prepare(bench.spec(offer, OTHER), bench.grant(OTHER))
        ready = await paced.prepare(bench.spec(offer), bench.grant())
        at, calls = bench.clock.monotonic(), len(bench.engine.calls)
        made = await paced.create(ready, bench.grant())
    finally:
        await paced.close()

    assert bench.clock.monotonic() == at
    assert len(bench.engine.calls) == calls + 1
    assert [(one.ref, one.name) for one in bench.truth()] == [(made.ref, NAME)]


async def test_it_is_what_was_asked(bench: Bench) -> None:
    offer = await bench.offer()
    made = await bench.provider.create(bench.spec(offer), bench.grant())
    bench.step()
    seen = await bench.seen(made.ref)

    assert (seen.gpu, seen.gpu_count, seen.spot) == (bench.sandbox.STAPLE, bench.sandbox.STAPLE_COUNT, False)
    assert seen.price_usd_h is not None
    assert offer.price_usd_h is not None
    assert abs(seen.price_usd_h - offer.price_usd_h) <= offer.price_usd_h / 1000
    # Where the answer about one instance does not tell the time, the listing does.
    created_at = seen.created_at or (await bench.provider.list()).items[0].created_at
    assert created_at is not None
    assert abs(created_at - bench.clock.now()) < timedelta(minutes=2)
    true = bench.truth()
    assert [(t.ref, t.name, t.gpu_count) for t in true] == [(made.ref, NAME, bench.sandbox.STAPLE_COUNT)]


async def test_it_is_not_running_before_it_has_booted(bench: Bench) -> None:
    bench.timing(boot_s=600.0)
    made = await bench.create()
    bench.step(60)
    early = await bench.seen(made.ref)
    bench.step(600)
    late = await bench.seen(made.ref)

    # RUNNING is a cloud's word and promises nothing; where it comes early, SSH must not answer yet.
    if early.status is InstanceStatus.RUNNING:
        assert early.ssh is None or await banner(early.ssh.host, early.ssh.port) == b""
    assert late.status is InstanceStatus.RUNNING


@pytest.mark.needs(ssh=True)
async def test_ssh_answers_while_it_is_reachable_and_not_after(bench: Bench) -> None:
    running = await bench.running()
    assert running.ssh is not None

    assert (await banner(running.ssh.host, running.ssh.port)).startswith(b"SSH-2.0-")
    await bench.provider.terminate(running.ref)
    bench.step()
    assert isinstance(await bench.provider.get(running.ref), NotSeen)
    assert await banner(running.ssh.host, running.ssh.port) == b""


async def test_what_a_cloud_cannot_do_is_refused_without_a_call(bench: Bench) -> None:
    able, now = bench.provider.capabilities, bench.clock.now()
    cannot = [
        *(verb for verb in (bench.provider.stop, bench.provider.start) if not able.stop),
        *(verb for verb in (bench.provider.restart,) if not able.restart),
    ]
    bench.engine.calls.clear()
    for verb in cannot:
        with pytest.raises(Unsupported):
            await verb("1")
    if not able.balance:
        with pytest.raises(Unsupported):
            await bench.provider.balance()
    if not able.charges:
        with pytest.raises(Unsupported):
            await bench.provider.charges(now, now)

    assert list(bench.engine.calls) == []


async def test_stop_and_start(bench: Bench) -> None:
    if not bench.provider.capabilities.stop:
        return
    running = await bench.running()
    await bench.provider.stop(running.ref)
    await bench.provider.stop(running.ref)
    bench.step()
    stopped = await bench.seen(running.ref)
    assert stopped.status is InstanceStatus.STOPPED
    assert stopped.ssh is None
    paid = bench.truth()[0].gpu_usd
    bench.step(3600)
    kept = bench.provider.capabilities.billing.gpu_while_stopped
    assert (bench.truth()[0].gpu_usd > paid) is kept, "a stopped GPU is billed only where the capabilities say so"

    await bench.provider.start(running.ref)
    bench.step()
    again = await bench.seen(running.ref)
    assert again.status is InstanceStatus.RUNNING
    assert again.ssh is not None
    assert (await banner(again.ssh.host, again.ssh.port)).startswith(b"SSH-2.0-")


async def test_a_start_is_harmless_when_it_runs(bench: Bench) -> None:
    if not bench.provider.capabilities.stop:
        return
    running = await bench.running()
    await bench.provider.start(running.ref)
    bench.step()

    assert (await bench.seen(running.ref)).status is InstanceStatus.RUNNING


async def test_a_restart_comes_back(bench: Bench) -> None:
    if not bench.provider.capabilities.restart:
        return
    running = await bench.running()
    await bench.provider.restart(running.ref)
    bench.step()

    again = await bench.seen(running.ref)
    assert again.status is InstanceStatus.RUNNING
    assert again.ssh is not None
    assert (await banner(again.ssh.host, again.ssh.port)).startswith(b"SSH-2.0-")


@pytest.mark.needs(terminate=True)
async def test_terminate_ends_the_bill_and_may_be_repeated(bench: Bench) -> None:
    running = await bench.running()
    assert await bench.provider.terminate(running.ref)
    await bench.provider.terminate(running.ref)
    bench.step()
    await bench.provider.terminate(running.ref)

    assert bench.alive() == []
    total = bench.truth()[0].total_usd
    bench.step(3600)
    assert bench.truth()[0].total_usd == total
    assert not await bench.provider.terminate(running.ref)


async def test_a_stopped_instance_can_be_terminated(bench: Bench) -> None:
    if not bench.provider.capabilities.stop:
        return
    running = await bench.running()
    await bench.provider.stop(running.ref)
    bench.step()
    await bench.provider.terminate(running.ref)
    bench.step()

    assert bench.alive() == []
    assert isinstance(await bench.provider.get(running.ref), NotSeen)


@pytest.mark.needs(terminate=True)
async def test_three_complete_lists_prove_the_end(bench: Bench) -> None:
    running = await bench.running()
    rule = AbsenceRule()
    assert (await bench.provider.list()).absence(running.ref, NAME) is None
    await bench.provider.terminate(running.ref)
    bench.step()
    absences = []
    for _ in range(rule.count):
        absence = (await bench.provider.list()).absence(running.ref, NAME)
        assert absence is not None
        absences.append(absence)
        bench.step(30)

    proof = ProofOfEnd.from_absences(absences, rule, last_heartbeat_at=None)
    assert proof is not None
    assert proof.account == bench.provider.account


@pytest.mark.needs(terminate=True)
async def test_what_is_gone_or_never_was_is_not_seen(bench: Bench) -> None:
    running = await bench.running()
    await bench.provider.terminate(running.ref)
    bench.step()

    gone = await bench.provider.get(running.ref)
    assert isinstance(gone, NotSeen)
    assert gone.at == bench.clock.now()
    assert isinstance(await bench.provider.find(LABEL), NotSeen)
    assert isinstance(await bench.provider.get("999999999"), NotSeen)
    await bench.provider.terminate("999999999")


@pytest.mark.needs(terminate=False)
async def test_what_no_call_can_end_is_refused_until_it_is_over_by_itself(bench: Bench) -> None:
    running = await bench.running()
    with pytest.raises(Unsupported):
        await bench.provider.terminate(running.ref)
    assert [t.ref for t in bench.alive()] == [running.ref]
    bench.step(PROGRAM_S)

    assert bench.alive() == []
    await bench.provider.terminate(running.ref)


@pytest.mark.needs(batch=True)
async def test_a_run_is_over_by_its_own_status_and_by_no_listing(bench: Bench) -> None:
    running = await bench.running()
    assert (running.succeeded, bench.able.run_max_s > 0) == (None, True)
    bench.step(PROGRAM_S)
    listing = await bench.provider.list()

    assert [(i.ref, i.status, i.succeeded) for i in listing.items] == [(running.ref, InstanceStatus.TERMINATED, True)]
    assert not listing.proves_absence
    assert listing.absence("something/else/1", "something-else") is None


@pytest.mark.needs(batch=True)
async def test_a_program_is_bounded_by_its_grant_and_never_sent_twice(bench: Bench) -> None:
    bench.arm("runs_over")
    made = await bench.create()
    with pytest.raises(OutcomeUnknown):
        await bench.create()
    assert len(bench.creates()) == 1
    bench.step(4 * 3600 - 60)
    assert (await bench.seen(made.ref)).status is InstanceStatus.RUNNING
    bench.step(120)

    over = await bench.seen(made.ref)
    assert (over.status, over.succeeded) == (InstanceStatus.TERMINATED, False)


@pytest.mark.needs(free=True)
async def test_a_free_offer_is_what_is_left_of_the_hours(bench: Bench) -> None:
    before = (await bench.offer()).available_for_s
    assert bench.sandbox.withdraw("*") == 1

    assert before
    assert (await bench.provider.offers(bench.one, disk_gb=DISK_GB, spot=False)).items == ()


@pytest.mark.parametrize("hostile", ["../users/current", "1/../../asks/2", "1?x=1", "", "1#", "%2e%2e"])
async def test_an_id_never_becomes_another_path(bench: Bench, hostile: str) -> None:
    bench.engine.calls.clear()
    try:
        seen = await bench.provider.get(hostile)
    except ProviderError:
        pass
    else:
        assert isinstance(seen, NotSeen)
    paths = [call.path for call in bench.engine.calls]
    assert not any("/users" in path or "/asks" in path or "?" in path for path in paths)


async def test_a_name_of_full_length_comes_back_unchanged(bench: Bench) -> None:
    name = ("m" * (bench.provider.capabilities.name_max - len(LABEL) - 1)) + "-" + LABEL
    made = await bench.create(name)

    assert (await bench.seen(made.ref)).name == name
    found = await bench.provider.find(LABEL)
    assert not isinstance(found, NotSeen)
    assert [i.name for i in found] == [name]


async def test_names_that_only_resemble_ours_are_not_found(bench: Bench) -> None:
    await bench.create(f"contract-{LABEL}x")

    assert isinstance(await bench.provider.find(LABEL), NotSeen)


@pytest.mark.needs(batch=False)
async def test_two_instances_of_one_name_are_both_found_oldest_first(bench: Bench) -> None:
    first = await bench.create()
    bench.step(5)
    second = await bench.create()

    found = await bench.provider.find(LABEL)
    assert not isinstance(found, NotSeen)
    assert [i.ref for i in found] == [first.ref, second.ref]


async def test_the_listing_is_complete_over_all_pages(bench: Bench) -> None:
    # A page holds 25 at Vast.ai; other sandboxes cut their pages small on request, so that a few instances fill three.
    small = "small_pages" in bench.sandbox.FAULTS
    made = set()
    for n in range(7 if small else 28):
        made.add((await bench.create(f"contract-{n}-{LABEL}")).ref)
        if bench.able.batch:
            bench.step(PROGRAM_S)  # Only few programs run at once.
    if small:
        bench.arm("small_pages", None, rows=3)
    bench.engine.calls.clear()
    listing = await bench.provider.list()

    assert isinstance(listing, Listing)
    assert {i.ref for i in listing.items} == made
    assert len(bench.engine.calls) > 1 or not bench.sandbox.PAGED


async def test_the_market_gives_back_what_is_destroyed(bench: Bench) -> None:
    running = await bench.running()
    await bench.end(running.ref)
    bench.step()

    again = await bench.create(OTHER)
    assert again.ref != running.ref
    assert len(bench.alive()) == 1


async def test_the_bill_of_the_cloud_is_the_truth(bench: Bench) -> None:
    if not bench.provider.capabilities.charges:
        return
    start = bench.clock.now() - timedelta(hours=1)
    running = await bench.running()
    bench.step(2 * 3600)
    await bench.end(running.ref)
    bench.step(0 if bench.able.free else 86_400)

    lines = await bench.provider.charges(start, bench.clock.now())
    rule = bench.able.billing
    assert {(line.quantum_s, line.minimum_s) for line in lines} == {(rule.quantum_s, rule.minimum_s)}
    assert all(line.start < line.end for line in lines)
    assert await bench.provider.charges(start - timedelta(days=400), start - timedelta(days=399)) == ()
    if bench.able.free:
        assert [(line.component, line.amount_usd, line.ref) for line in lines] == [("quota", Decimal(0), "")]
        assert (lines[0].used_s or 0) > 0
        return
    total = bench.truth()[0].total_usd
    assert total > 0
    assert {line.ref for line in lines} == {running.ref}
    assert len({line.line_id for line in lines}) == len(lines)
    assert abs(sum(line.amount_usd for line in lines) - total) <= total / 100
    again = await bench.provider.charges(start, bench.clock.now())
    assert {(x.line_id, x.amount_usd) for x in again} == {(x.line_id, x.amount_usd) for x in lines}


async def test_the_balance_falls_with_the_bill(bench: Bench) -> None:
    if not bench.provider.capabilities.balance:
        return
    before = (await bench.provider.balance()).credit_usd
    await bench.running()
    bench.step(3600)
    after = (await bench.provider.balance()).credit_usd

    spent = bench.truth()[0].total_usd
    assert spent > 0
    assert abs((before - after) - spent) <= spent / 100
