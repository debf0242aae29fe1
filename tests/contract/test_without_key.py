"""An adapter without a key: the public offers of its cloud, and not one other call."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from datetime import timedelta

import pytest
import pytest_asyncio

from providers.capabilities import PriceSource
from providers.contract import Provider
from providers.errors import AuthFailed, InvalidSpec, ProviderError
from providers.gpus.constraint import GpuConstraint
from providers.leftovers import Leaves, Leftover
from providers.registry import REGISTRY
from tests.contract.served import DISK_GB, Bench, unpaced
from tests.providers.read_offers import every_offer

pytestmark = pytest.mark.asyncio(loop_scope="module")

SHOWN = {name: entry for name, entry in REGISTRY.items() if entry.without_key is not None}
EVERYTHING = GpuConstraint(count_max=8)


@pytest_asyncio.fixture(loop_scope="module")
async def keyless(bench: Bench) -> AsyncIterator[Provider]:
    """The adapter with the addresses of its sandbox, and no credential."""
    secret = {*bench.entry.required, *bench.entry.alternative}
    addresses = {name: value for name, value in bench.environment.items() if name not in secret}
    provider = bench.entry.connect(addresses, bench.clock, unpaced(bench.clock))
    yield provider
    await provider.close()


@pytest.mark.parametrize("cloud_name", SHOWN)
async def test_what_anybody_may_see_is_listed_and_marked(bench: Bench, keyless: Provider) -> None:
    found = await every_offer(keyless, EVERYTHING, disk_gb=DISK_GB, spot=False, calls=4)

    source = bench.entry.without_key
    assert found
    assert keyless.capabilities.source is source is not PriceSource.ACCOUNT
    assert {offer.source for offer in found} == {source}
    assert {offer.cloud for offer in found} == {bench.entry.name}
    assert any(offer.price_usd_h for offer in found)
    assert {offer.source for offer in await bench.provider.offers(EVERYTHING, disk_gb=DISK_GB, spot=False)} == {
        PriceSource.ACCOUNT
    }


@pytest.mark.parametrize("cloud_name", ["vast", "runpod", "tensordock"])
async def test_public_offers_have_the_prices_of_the_account(bench: Bench, keyless: Provider) -> None:
    with_key = await bench.provider.offers(bench.one, disk_gb=DISK_GB, spot=False)
    without = await keyless.offers(bench.one, disk_gb=DISK_GB, spot=False)

    assert {offer.price_usd_h for offer in without} == {offer.price_usd_h for offer in with_key}
    assert {offer.memory_gb for offer in without} == {offer.memory_gb for offer in with_key}


async def test_every_other_call_is_refused_before_it_leaves(bench: Bench, keyless: Provider) -> None:
    offer, now = await bench.offer(), bench.clock.now()
    spec, grant = bench.spec(offer), bench.grant()
    prepared = replace(spec, ready={"ssh_key_name": "mine", "ssh_secret": "mine", "owner": "mine"})
    calls: dict[str, Callable[[], Awaitable[object]]] = {
        "requote": lambda: keyless.requote(offer, disk_gb=DISK_GB),
        "prepare": lambda: keyless.prepare(spec, grant),
        "create": lambda: keyless.create(spec, grant),
        "create, prepared": lambda: keyless.create(prepared, grant),
        "find": lambda: keyless.find("ab12"),
        "get": lambda: keyless.get("12345"),
        "list": keyless.list,
        "stop": lambda: keyless.stop("12345"),
        "start": lambda: keyless.start("12345"),
        "restart": lambda: keyless.restart("12345"),
        "terminate": lambda: keyless.terminate("12345"),
        "balance": keyless.balance,
        "charges": lambda: keyless.charges(now - timedelta(days=1), now),
    }
    if isinstance(keyless, Leaves):
        calls["leftovers"] = keyless.leftovers
        calls["remove"] = lambda: keyless.remove(Leftover(bench.entry.name, "12345", NAME_OF_KEY, "SSH key"))
    bench.engine.calls.clear()
    bench.engine.creates.clear()

    for what, call in calls.items():
        with pytest.raises(ProviderError) as refused:
            await call()
        assert refused.value.definite_no, what
    checked = await keyless.preflight()

    assert (checked.ok, bool(checked.missing), bool(checked.where)) == (False, True, True)
    assert not bench.engine.calls
    assert not bench.engine.creates


NAME_OF_KEY = "gpu-shopper-12345"


async def test_its_account_is_never_an_empty_one(keyless: Provider) -> None:
    with pytest.raises(AuthFailed):
        await keyless.list()
    with pytest.raises(AuthFailed):
        await keyless.find("ab12")


@pytest.mark.parametrize("cloud_name", SHOWN)
async def test_an_offer_read_without_a_key_is_never_bought_with_one(bench: Bench, keyless: Provider) -> None:
    found = await keyless.offers(EVERYTHING, disk_gb=DISK_GB, spot=False)
    bench.engine.calls.clear()

    with pytest.raises(InvalidSpec, match="without a key"):
        await bench.provider.create(bench.spec(found[0]), bench.grant())
    assert not bench.engine.calls


@pytest.mark.parametrize("cloud_name", set(REGISTRY) - set(SHOWN))
async def test_a_cloud_that_shows_nothing_sends_nothing(bench: Bench, keyless: Provider) -> None:
    bench.engine.calls.clear()
    with pytest.raises(AuthFailed):
        await keyless.offers(bench.one, disk_gb=DISK_GB, spot=False)
    assert not bench.engine.calls


@pytest.mark.parametrize(
    ("cloud_name", "faults"), [("vast", ["search_auth"]), ("tensordock", ["public_auth", "search_auth"])]
)
async def test_a_public_listing_that_is_closed_says_what_to_set(
    bench: Bench, keyless: Provider, faults: list[str]
) -> None:
    for fault in faults:
        bench.arm(fault, None)
    with pytest.raises(AuthFailed, match=f"only with a key; set {bench.entry.env_vars[0]}"):
        await keyless.offers(bench.one, disk_gb=DISK_GB, spot=False)
