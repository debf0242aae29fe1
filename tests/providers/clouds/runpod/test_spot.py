"""RunPod's interruptible pods: offered and rented where the setting is on and the call exists, and nowhere else."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest

from ledger.kernel.ports import Port, PortProtocol
from providers.clouds.runpod import spot
from providers.clouds.runpod.adapter import RunPodConfig
from providers.contract import InstanceSpec, InstanceStatus, Offer, Provider
from providers.errors import (
    AuthFailed,
    InsufficientFunds,
    InvalidSpec,
    NoCapacity,
    OutcomeUnknown,
    ProviderError,
    QuotaExceeded,
    UnexpectedResponse,
    Unsupported,
)
from providers.gpus.constraint import GpuConstraint
from providers.http import HttpReply
from providers.rate_limits import LocalPacer
from providers.registry import REGISTRY
from providers.sandbox.clock import SandboxTiming
from tests.providers.clouds.runpod.served import Served, grant, running
from tests.providers.read_offers import every_offer
from tests.support.clock import SteppedClock

H100 = GpuConstraint(("H100-SXM",), 1, 2)


@pytest.fixture
async def quick() -> AsyncIterator[Served]:
    async with running(SandboxTiming.quick()) as served:
        yield served


@pytest.fixture
async def on(quick: Served) -> AsyncIterator[Provider]:
    """An adapter with the setting on, for the same account."""
    clock = SteppedClock()
    settings = {**quick.cloud.environment(str(quick.http.base_url).rstrip("/")), "RUNPOD_SPOT": "true"}
    provider = REGISTRY["runpod"].connect(settings, clock, LocalPacer(clock, 0))
    yield provider
    await provider.close()


async def secure(provider: Provider, constraint: GpuConstraint = H100) -> Offer:
    found = await every_offer(provider, constraint, disk_gb=50, spot=True, calls=2)
    return next(one for one in found if one.key.startswith("secure/") and one.gpu_count == constraint.count_max)


def order(offer: Offer, **changes: Any) -> InstanceSpec:
    base = InstanceSpec(
        "gpu-shopper-7f3c", offer, "runpod/pytorch:1.0.2-cu1281-torch280-ubuntu2404", 50,
        ("ssh-ed25519 AAAA a",), env={"A": 'b"c'}, onstart="echo hello", bid_usd_h=offer.min_bid_usd_h,
        min_cuda=Decimal("12.8"), ports=(Port(8888, PortProtocol.HTTP),),
    )  # fmt: skip
    return replace(base, **changes)


async def test_it_is_off_unless_somebody_turns_it_on(quick: Served) -> None:
    assert not quick.provider.capabilities.spot
    assert (await quick.provider.offers(H100, disk_gb=50, spot=True)).items == ()
    both = await quick.provider.offers(H100, disk_gb=50, spot=None)
    assert both
    assert not any(one.spot for one in both)
    offer = replace(both[0], spot=True, min_bid_usd_h=Decimal(1))
    with pytest.raises(InvalidSpec, match="switched off"):
        await quick.provider.create(order(offer), grant("7f3c"))
    assert quick.engine.creates == []


async def test_an_interruptible_pod_is_rented_at_its_bid_and_ends_when_somebody_pays_more(
    quick: Served, on: Provider
) -> None:
    assert on.capabilities.spot
    offer = await secure(on)
    # Half of the secure price of 3.29, for two GPUs, and the disk.
    assert (offer.spot, offer.gpu_usd_h, offer.min_bid_usd_h) == (True, Decimal("3.290"), Decimal("3.290"))
    assert offer.price_usd_h == Decimal("3.290") + offer.storage_usd_h
    assert await on.requote(offer, disk_gb=50) == offer

    made = await on.create(order(offer), grant("7f3c"))
    pod = quick.cloud.account.instances[made.ref]
    assert (made.spot, made.status, made.gpu, made.gpu_count) == (True, InstanceStatus.PENDING, "H100-SXM", 2)
    assert (pod.name, pod.rate_usd_h) == ("gpu-shopper-7f3c", Decimal("3.290"))
    assert pod.order.env == {"A": 'b"c', "PUBLIC_KEY": "ssh-ed25519 AAAA a"}
    assert set(pod.order.ports) == {"22/tcp", "8888/http"}
    assert (pod.order.disk_gb, pod.order.volume_gb, pod.order.volume_path) == (20, 50, "/workspace")
    assert Decimal(pod.host_cuda) >= Decimal("12.8")
    assert "base64 -d > /tmp/onstart.sh" in pod.order.args
    (seen,) = (await on.list()).items
    assert (seen.ref, seen.name) == (made.ref, "gpu-shopper-7f3c")

    quick.cloud.happen(made.ref, "outbid")
    (seen,) = (await on.list()).items
    assert (seen.status, seen.storage_usd_h) == (InstanceStatus.STOPPED, offer.storage_stopped_usd_h)
    assert await on.terminate(made.ref)


async def test_both_kinds_are_compared_and_a_tier_that_is_off_has_neither(quick: Served, on: Provider) -> None:
    found = await on.offers(H100, disk_gb=50, spot=None)
    assert {one.spot for one in found} == {True, False}
    assert len({one.id for one in found}) == len(found)
    cheapest = {kind: min(one.price_usd_h or 0 for one in found if one.spot is kind) for kind in (True, False)}
    assert cheapest[True] < cheapest[False]
    gone = replace(await secure(on), ticket={"gpu_id": "x", "cloud": "OTHER"})
    assert await on.requote(gone, disk_gb=50) is None
    new = await on.offers(replace(H100, cuda_min=Decimal("12.4")), disk_gb=50, spot=True)
    assert {one.cuda_max for one in new} == {Decimal("12.4")}
    assert (await on.offers(replace(H100, cuda_min=Decimal("13.9")), disk_gb=50, spot=True)).items == ()


async def test_where_the_call_is_gone_nothing_is_offered_and_doctor_says_why(quick: Served, on: Provider) -> None:
    quick.arm("spot_withdrawn", None)
    report = await on.preflight()
    assert (report.ok, report.problem) == (True, f"{spot.WITHDRAWN}.")
    assert report.balance is not None
    assert (await on.offers(H100, disk_gb=50, spot=True)).items == ()
    assert await on.offers(H100, disk_gb=50, spot=None)
    assert (on.capabilities.spot, on.capabilities.spot_gone) == (False, f"{spot.WITHDRAWN}.")
    assert (await on.preflight()).problem == f"{spot.WITHDRAWN}."
    assert quick.engine.creates == []


async def test_a_call_that_is_withdrawn_between_search_and_create_is_a_definite_no(quick: Served, on: Provider) -> None:
    offer = await secure(on)
    quick.arm("spot_withdrawn", None)
    with pytest.raises(Unsupported, match="any more") as raised:
        await on.create(order(offer), grant("7f3c"))
    assert raised.value.definite_no
    assert (await on.list()).items == ()


async def test_a_bid_below_the_lowest_is_no_capacity_and_a_broken_answer_is_an_unknown_outcome(
    quick: Served, on: Provider
) -> None:
    offer = await secure(on)
    with pytest.raises(NoCapacity):
        await on.create(order(offer, bid_usd_h=Decimal(3)), grant("7f3c"))
    with pytest.raises(InvalidSpec, match="a bid in dollars"):
        await on.create(order(offer, bid_usd_h=None), grant("7f3c"))
    quick.arm("lost_reply")
    with pytest.raises(OutcomeUnknown):
        await on.create(order(offer), grant("7f3c"))
    assert [one.name for one in (await on.list()).items] == ["gpu-shopper-7f3c"]


async def test_a_failing_older_api_hides_spot_offers_only(quick: Served, on: Provider) -> None:
    quick.arm("server_error", None)
    with pytest.raises(ProviderError):
        await on.offers(H100, disk_gb=50, spot=True)
    assert "Spot unknown" not in (await quick.provider.preflight()).problem


def reply(body: Any, status: int = 200) -> HttpReply:
    return HttpReply(status, {}, "", body)


def refused(message: str, code: str = "RUNPOD") -> dict[str, Any]:
    return {"data": {spot.CALL: None}, "errors": [{"message": message, "extensions": {"code": code}}]}


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (reply(refused("There are no instances available with the request specifications.")), NoCapacity),
        (reply(refused("nothing", "SUPPLY_CONSTRAINT")), NoCapacity),
        (reply(refused("This exceeds your spend limit")), QuotaExceeded),
        (reply(refused("x", "INSUFFICIENT_BALANCE")), InsufficientFunds),
        (reply(refused("x", "FORBIDDEN")), AuthFailed),
        (reply(refused("Something went wrong", "INTERNAL_SERVER_ERROR")), OutcomeUnknown),
        (reply(refused("a sentence that nobody has seen")), OutcomeUnknown),
        (reply({"data": {spot.CALL: None}}), OutcomeUnknown),
        (reply(None), OutcomeUnknown),
        (reply(None, 502), OutcomeUnknown),
        (reply({"title": "x", "detail": "invalid bearer token"}, 401), AuthFailed),
        (reply(refused("Field bidPerGpu is not a number", "GRAPHQL_VALIDATION_FAILED"), 400), InvalidSpec),
        (reply({"errors": [{"message": "odd"}]}, 400), OutcomeUnknown),
    ],
)
def test_only_an_answer_that_proves_it_is_a_definite_no(answer: HttpReply, error: type[ProviderError]) -> None:
    offer = Offer("runpod", "k", "H100-SXM", 1, Decimal(80), "any", True, Decimal(1), SteppedClock().now())
    offer = replace(offer, ticket={"gpu_id": "NVIDIA H100 80GB HBM3", "cloud": "SECURE"})
    with pytest.raises(error) as raised:
        spot.rented(answer, order(offer), [])
    assert raised.value.definite_no is (error is not OutcomeUnknown)


def test_a_bid_is_rounded_down_and_an_answer_to_the_probe_that_says_nothing_is_an_error() -> None:
    offer = Offer("runpod", "k", "H100-SXM", 3, Decimal(80), "any", True, Decimal(1), SteppedClock().now())
    offer = replace(offer, ticket={"gpu_id": "NVIDIA H100 80GB HBM3", "cloud": "SECURE"})
    given = spot.rent_body(order(offer, bid_usd_h=Decimal(1), min_cuda=None), 20)["variables"]["input"]
    assert given["bidPerGpu"] == 0.3333
    assert "allowedCudaVersions" not in given
    assert spot.is_known(reply(None, 410)) is False
    bodies: tuple[Any, ...] = (None, {"errors": []}, {"data": {spot.CALL: {"id": "x"}}})
    for body in bodies:
        with pytest.raises(UnexpectedResponse):
            spot.is_known(reply(body, 502))
    assert RunPodConfig().spot is False
