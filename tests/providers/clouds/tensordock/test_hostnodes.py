"""TensorDock's public list of hosts, as it is read without a token."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from providers.capabilities import PriceSource
from providers.clouds.tensordock import hostnodes, offers
from providers.clouds.tensordock.adapter import TensorDockConfig, TensorDockProvider
from providers.contract import Offer
from providers.errors import ProviderError, UnexpectedResponse
from providers.gpus.constraint import GpuConstraint
from tests.contract.served import unpaced
from tests.providers.scripted import answer, playing
from tests.support.clock import SteppedClock

SLUG = "geforcertx4090-pcie-24gb"
ONE = GpuConstraint(("RTX4090",))
LOCATION = {
    "id": "place-1", "city": "Joplin", "stateprovince": "Missouri", "country": "United States",
    "gpus": [
        {
            "v0Name": SLUG, "max_count": 2, "price_per_hr": 0.4, "resources": {},
            "pricing": {"per_vcpu_hr": 0.003, "per_gb_ram_hr": 0.002, "per_gb_storage_hr": 0.00005},
        }
    ],
}  # fmt: skip


def host(**status: Any) -> dict[str, Any]:
    return {
        "location": {"id": "place-1", "city": "Joplin", "region": "Missouri", "country": "United States"},
        "specs": {
            "cpu": {"amount": 24, "type": "EPYC", "price": 0.003},
            "ram": {"amount": 96, "price": 0.002},
            "storage": {"amount": 1000, "price": 0.00005},
            "gpu": {SLUG: {"amount": 2, "price": 0.4, "vram": 24}},
        },
        "status": {"online": True, "listed": True, "reserved": False, **status},
    }


def read(body: Any) -> tuple[Offer, ...]:
    return offers.offers(hostnodes.locations(body), ONE, disk_gb=100, at=SteppedClock().now())


async def asked(*script: bytes) -> tuple[tuple[Offer, ...], list[bytes]]:
    """What an adapter without a token reads of these answers, and the heads of its requests."""
    async with playing(*script) as server:
        url = f"http://127.0.0.1:{server.port}"
        clock = SteppedClock()
        provider = TensorDockProvider(TensorDockConfig(base_url=url, v0_url=url), clock, unpaced(clock))
        try:
            return (await provider.offers(ONE, disk_gb=100, spot=False)).items, server.requests
        finally:
            await provider.close()


def test_a_host_is_an_offer_with_all_its_parts() -> None:
    (offer,) = read({"hostnodes": {"host-1": host()}})
    assert (offer.key, offer.gpu, offer.region) == (f"host-1/{SLUG}x1", "RTX4090", "Joplin, Missouri, US")
    assert offer.price_usd_h == Decimal("0.4") + 8 * Decimal("0.003") + 32 * Decimal("0.002") + Decimal("0.005")


@pytest.mark.parametrize("status", [{"online": False}, {"listed": False}, {"reserved": True}])
def test_a_host_that_is_not_for_sale_is_left_out(status: dict[str, bool]) -> None:
    assert read({"hostnodes": {"host-1": host(**status)}}) == ()


@pytest.mark.parametrize("body", [None, [], {}, {"hostnodes": []}])
def test_an_answer_without_hosts_is_no_empty_market(body: Any) -> None:
    with pytest.raises(UnexpectedResponse, match="no map of hosts"):
        read(body)


def test_rows_that_cannot_be_read_are_left_out() -> None:
    assert read({"hostnodes": {"host-1": None, "host-2": {**host(), "specs": {"gpu": {SLUG: None}}}}}) == ()


async def test_where_the_older_list_is_gone_the_newer_one_is_read_and_no_token_is_sent() -> None:
    found, requests = await asked(answer({}, 404), answer({"data": {"locations": [LOCATION]}}))
    assert {offer.source for offer in found} == {PriceSource.PUBLIC}
    assert [head.split()[1] for head in requests] == [hostnodes.PATH.encode(), b"/locations"]
    assert not any(b"authorization" in head.lower() for head in requests)


async def test_where_both_are_closed_the_first_refusal_is_said() -> None:
    with pytest.raises(ProviderError, match="only with a key; set TENSORDOCK_API_TOKEN"):
        await asked(answer({"error": "Unauthorized"}, 401))
