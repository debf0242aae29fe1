"""What a create may meet, and what a reader may meet: doubt stays doubt, and no error says too much."""

from __future__ import annotations

import logging
from decimal import Decimal
from typing import Any

import pytest

from bot.rules.policy.timing import Timing
from bot.services.instances.unknown_outcome import quarantine
from ledger.kernel.network_guard import NetworkInTransaction, transaction_open
from providers.contract import InstanceStatus, NotSeen
from providers.errors import (
    AuthFailed,
    NotSent,
    OutcomeUnknown,
    ProviderError,
    RateLimited,
    Unavailable,
    UnexpectedResponse,
)
from providers.gpus.constraint import GpuConstraint
from providers.rate_limits import LocalPacer
from providers.registry import REGISTRY
from tests.contract.served import DISK_GB, ENV_SECRET, LABEL, NAME, OTHER, Bench, banner, fault_cases

pytestmark = pytest.mark.asyncio(loop_scope="module")

#: Longer than the latest landing of any fault.
LONG_S = 3600.0


def chain(error: BaseException) -> str:
    """Everything that a log of `error` could print: messages and reprs of it and of what caused it."""
    parts = []
    seen: BaseException | None = error
    while seen is not None:
        parts += [str(seen), repr(seen), repr(seen.args), repr(vars(seen))]
        seen = seen.__cause__ or seen.__context__
    return "\n".join(parts)


@pytest.mark.parametrize(("cloud_name", "fault", "expected"), fault_cases())
async def test_a_create_under_every_fault(
    bench: Bench, fault: str, expected: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    offer = await bench.offer()
    # What is read before a create is read again after trouble, so only lasting trouble keeps it from being sent.
    bench.arm(fault, None if expected == "NotSent" else 1)
    said = ""
    if expected == "ok":
        made = await bench.provider.create(bench.spec(offer), bench.grant())
        assert [t.ref for t in bench.truth()] == [made.ref]
    else:
        with pytest.raises(ProviderError) as caught:
            await bench.provider.create(bench.spec(offer), bench.grant())
        assert type(caught.value).__name__ == expected
        assert caught.value.cloud == bench.entry.name
        assert caught.value.definite_no is (expected != "OutcomeUnknown")
        said = chain(caught.value)
        if caught.value.definite_no:
            bench.step(LONG_S)
            assert bench.truth() == [], "a definite no leaves nothing behind, not even later"
    assert (bench.entry.name, fault) in bench.engine.faults.bitten
    sent = [] if expected == "NotSent" else [NAME]
    assert [call.name for call in bench.creates()] == sent, "one create call is one request"
    for secret in (bench.sandbox.API_KEY, ENV_SECRET, "sandbox-instance-key"):
        assert secret not in said
        assert secret not in "\n".join(r.getMessage() for r in caplog.records if r.name.startswith("providers"))


@pytest.mark.parametrize("fault", ["create_lost_reply", "create_503_after"])
async def test_an_instance_whose_reply_was_lost_is_found_by_its_name(bench: Bench, fault: str) -> None:
    bench.arm(fault)
    with pytest.raises(OutcomeUnknown):
        await bench.create()

    found = await bench.provider.find(LABEL)
    assert not isinstance(found, NotSeen)
    assert [i.ref for i in found] == [t.ref for t in bench.alive()]
    assert len(bench.alive()) == 1


async def test_an_instance_that_lands_late_is_found_when_it_lands(bench: Bench) -> None:
    bench.arm("create_lands_late", after_s=200)
    with pytest.raises(OutcomeUnknown):
        await bench.create()

    assert isinstance(await bench.provider.find(LABEL), NotSeen)
    assert bench.truth() == []
    bench.step(199)
    assert isinstance(await bench.provider.find(LABEL), NotSeen)
    bench.step(2)
    found = await bench.provider.find(LABEL)
    assert not isinstance(found, NotSeen)
    assert [i.ref for i in found] == [t.ref for t in bench.truth()]
    assert quarantine(bench.provider.capabilities, Timing()).total_seconds() > 200


async def test_a_fault_bites_the_armed_number_of_calls(bench: Bench) -> None:
    found = await bench.provider.offers(bench.one, disk_gb=DISK_GB, spot=False)
    usable = [o for o in found if bench.usable(o)]
    grant = bench.grant()
    bench.arm("create_429", 2, skip=1)
    first = await bench.provider.create(bench.spec(usable[0]), grant)
    spec = bench.spec(usable[-1], OTHER)
    for _ in range(2):
        with pytest.raises(RateLimited):
            await bench.provider.create(spec, grant)

    assert (await bench.provider.create(spec, grant)).ref != first.ref


async def test_a_lagging_listing_is_not_absence(bench: Bench) -> None:
    bench.arm("create_list_lag", after_s=60)
    made = await bench.create()

    assert made.ref not in {i.ref for i in (await bench.provider.list()).items}
    assert (await bench.seen(made.ref)).name == NAME
    bench.step(61)
    assert made.ref in {i.ref for i in (await bench.provider.list()).items}


@pytest.mark.needs(free=False)
async def test_a_higher_rate_than_quoted_is_readable(bench: Bench) -> None:
    bench.arm("price_higher_than_quoted", factor="2")
    offer = await bench.offer()
    made = await bench.provider.create(bench.spec(offer), bench.grant())
    bench.step()

    seen = await bench.seen(made.ref)
    assert seen.price_usd_h is not None
    assert offer.price_usd_h is not None
    assert seen.price_usd_h > offer.price_usd_h * Decimal("1.5")


@pytest.mark.needs(ssh=True)
async def test_running_is_not_reachable(bench: Bench) -> None:
    bench.arm("running_before_reachable", after_s=120)
    made = await bench.create()
    bench.step()
    early = await bench.seen(made.ref)
    assert early.status is InstanceStatus.RUNNING
    assert early.ssh is None or await banner(early.ssh.host, early.ssh.port) == b""

    bench.step(150)
    late = await bench.seen(made.ref)
    assert late.ssh is not None
    assert (await banner(late.ssh.host, late.ssh.port)).startswith(b"SSH-2.0-")


@pytest.mark.needs(terminate=True)
async def test_what_never_boots_is_never_reachable(bench: Bench) -> None:
    bench.arm("never_boots")
    made = await bench.create()
    bench.step(LONG_S)
    seen = await bench.seen(made.ref)

    assert seen.ssh is None or await banner(seen.ssh.host, seen.ssh.port) == b""
    await bench.provider.terminate(made.ref)
    assert bench.alive() == []


@pytest.mark.needs(terminate=True)
async def test_a_destroy_that_was_only_acknowledged_is_visible_and_can_be_repeated(bench: Bench) -> None:
    running = await bench.running()
    bench.arm("destroy_not_done")
    await bench.provider.terminate(running.ref)
    bench.step()
    assert (await bench.provider.list()).absence(running.ref, NAME) is None

    await bench.provider.terminate(running.ref)
    bench.step()
    assert (await bench.provider.list()).absence(running.ref, NAME) is not None


@pytest.mark.needs(terminate=True)
async def test_a_refused_destroy_is_an_error_and_not_a_success(bench: Bench) -> None:
    running = await bench.running()
    bench.arm("destroy_429", 1)
    with pytest.raises(RateLimited):
        await bench.provider.terminate(running.ref)

    assert len(bench.alive()) == 1
    await bench.provider.terminate(running.ref)
    assert bench.alive() == []


async def test_a_page_that_fails_fails_the_listing(bench: Bench) -> None:
    await bench.running()
    bench.arm("list_503", None)
    with pytest.raises((Unavailable, UnexpectedResponse)):
        await bench.provider.list()
    with pytest.raises((Unavailable, UnexpectedResponse)):
        await bench.provider.find(LABEL)


async def test_a_read_that_fails_is_not_absence(bench: Bench) -> None:
    running = await bench.running()
    bench.arm("get_503", None)
    with pytest.raises((Unavailable, UnexpectedResponse)):
        await bench.provider.get(running.ref)


async def calls(bench: Bench, provider: Any, ref: str) -> list[tuple[str, Any]]:
    """Every verb of the contract that this cloud has, as a thunk."""
    able, now = provider.capabilities, bench.clock.now()
    spec, grant = bench.spec(await bench.offer()), bench.grant()
    wide = GpuConstraint(count_max=8)
    has = {"stop": able.stop, "start": able.stop, "restart": able.restart}
    has |= {"balance": able.balance, "charges": able.charges}
    verbs = [
        ("offers", lambda: provider.offers(wide, disk_gb=DISK_GB, spot=False)),
        ("create", lambda: provider.create(spec, grant)),
        ("find", lambda: provider.find(LABEL)),
        ("get", lambda: provider.get(ref)),
        ("list", provider.list),
        ("stop", lambda: provider.stop(ref)),
        ("start", lambda: provider.start(ref)),
        ("restart", lambda: provider.restart(ref)),
        ("terminate", lambda: provider.terminate(ref)),
        ("balance", provider.balance),
        ("charges", lambda: provider.charges(now, now)),
    ]
    return [(verb, call) for verb, call in verbs if has.get(verb, True)]


async def test_a_wrong_key_is_an_auth_error_for_every_verb_and_never_absence(bench: Bench) -> None:
    running = await bench.running()
    own = {k: v for k, v in bench.environment.items() if k not in bench.entry.alternative}
    wrong = {k: v.replace(bench.sandbox.API_KEY, "wrong-key-hunter2") for k, v in own.items()}
    provider = REGISTRY[bench.entry.name].connect(wrong, bench.clock)
    try:
        for verb, call in await calls(bench, provider, running.ref):
            with pytest.raises(AuthFailed) as caught:
                await call()
            assert "hunter2" not in chain(caught.value), verb
        report = await provider.preflight()
    finally:
        await provider.close()
    assert not report.ok
    assert report.problem
    assert report.where.startswith("https://")
    assert "hunter2" not in repr(report)
    assert provider.account != bench.provider.account
    assert len(bench.alive()) == 1


async def test_no_port_is_used_while_a_ledger_transaction_is_open(bench: Bench) -> None:
    running = await bench.running()
    verbs = await calls(bench, bench.provider, running.ref)
    bench.engine.calls.clear()
    with transaction_open():
        for _, call in verbs:
            with pytest.raises(NetworkInTransaction):
                await call()

    assert list(bench.engine.calls) == []


async def test_nobody_at_the_other_end(bench: Bench) -> None:
    running = await bench.running()
    dead = {k: v.replace(bench.clouds.url, "http://127.0.0.1:9") for k, v in bench.environment.items()}
    provider = REGISTRY[bench.entry.name].connect(dead, bench.clock)
    try:
        for verb, call in await calls(bench, provider, running.ref):
            with pytest.raises(NotSent if verb == "create" else Unavailable) as caught:
                await call()
            assert bench.sandbox.API_KEY not in chain(caught.value), verb
        report = await provider.preflight()
    finally:
        await provider.close()
    assert not report.ok
    assert report.problem


async def test_preflight_says_that_all_is_well(bench: Bench) -> None:
    report = await bench.provider.preflight()

    assert report.ok
    assert (report.missing, report.problem) == ((), "")
    assert report.account == bench.provider.account
    if bench.provider.capabilities.balance:
        assert report.balance is not None
        assert report.balance.credit_usd > 0


async def test_preflight_names_what_is_not_set(bench: Bench) -> None:
    provider = REGISTRY[bench.entry.name].connect({}, bench.clock)
    bench.engine.calls.clear()
    report = await provider.preflight()
    await provider.close()

    assert not report.ok
    assert report.missing == bench.entry.env_vars
    assert report.where.startswith("https://")
    assert list(bench.engine.calls) == []


async def test_no_secret_in_any_repr(bench: Bench) -> None:
    config = bench.entry.config(bench.environment)
    made = await bench.create()
    bench.step()
    seen = await bench.seen(made.ref)
    texts = [repr(config), str(config), repr(bench.provider), repr(made), repr(seen), repr(await bench.provider.list())]
    texts.append(repr(await bench.provider.preflight()))

    for text in texts:
        for secret in (bench.sandbox.API_KEY, "sandbox-instance-key", "sandbox-jupyter", ENV_SECRET):
            assert secret not in text


@pytest.mark.needs(PACED=True)
async def test_calling_too_often_is_said_so_when_the_cloud_minds(bench: Bench) -> None:
    bench.timing(enforce_rate_limits=True)

    async def hurry() -> None:
        for _ in range(400):
            await bench.provider.get("1")

    with pytest.raises(RateLimited) as caught:
        await hurry()
    assert caught.value.retry_after_s is not None
    assert caught.value.retry_after_s > 0


@pytest.mark.needs(PACED=True)
async def test_replicas_that_share_their_turns_are_never_told_off(bench: Bench) -> None:
    bench.timing(enforce_rate_limits=True)
    bench.step(120)
    pacer = LocalPacer(bench.clock)
    one, other = bench.replica(pacer), bench.replica(pacer)
    try:
        offer = (await one.offers(bench.one, disk_gb=DISK_GB, spot=False))[0]
        for number in range(14):
            await one.list()
            await other.offers(bench.one, disk_gb=DISK_GB, spot=False)
            if number % 6 == 0:
                made = await other.create(bench.spec(offer, f"n{number}-{LABEL}"), bench.grant())
                offer = next(o for o in await one.offers(bench.one, disk_gb=DISK_GB, spot=False) if bench.usable(o))
                await one.get(made.ref)
    finally:
        await one.close()
        await other.close()


async def test_offers_are_read_again_after_trouble(bench: Bench) -> None:
    bench.arm("search_503", 1, status=503)

    assert await bench.provider.offers(bench.one, disk_gb=DISK_GB, spot=False)
