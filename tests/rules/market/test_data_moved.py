"""Where the data of a run lie decides what moving them to an offer costs and takes."""

from __future__ import annotations

from decimal import Decimal

import pytest

from bot.rules.market.estimate import Estimate, estimate
from bot.rules.market.parts import COMPONENTS
from bot.rules.market.ranking import rank
from providers.contract import Offer
from tests.providers.read_offers import WHOLE
from tests.rules.builders import CLOUDS
from tests.rules.market.test_run_cost_properties import POLICY, WORDS, h100, run, wanted

DATA = ("dataset=200GB",)
CLOSE, FAR = "EU-RO-1", "US-KS-2"


def made(sold: Offer, *words: str) -> Estimate:
    time = run(*WORDS, *words).at(sold.cloud, sold.region)
    return estimate(sold, wanted(*WORDS, *words), POLICY, CLOUDS[sold.cloud], time)


def part(found: Estimate, name: str) -> tuple[Decimal, Decimal]:
    (one,) = (one for one in found.components[: len(COMPONENTS)] if one.name == name)
    return one.expected_usd, one.worst_usd


def test_the_stores_charge_the_offers_own_and_the_time_are_one_line() -> None:
    """200 GB leave S3 for $0.09 each, this host takes $0.005 each, and 900 Mbit/s move them in 0.494 h."""
    sold = h100(ingress_usd_gb=Decimal("0.005"), download_mbps=Decimal(900))
    found, without = made(sold, *DATA, "data=s3:us-east-1"), made(sold, *DATA)
    assert found.data == "Data: 200 GB from S3 us-east-1, $19.00 and 30 min."
    assert without.data == ""
    expected, most = (a - b for a, b in zip(part(found, "transfer"), part(without, "transfer"), strict=True))
    assert expected == 18
    assert most == 36
    assert found.expected_usd - without.expected_usd == 18
    assert found.outlook is not None
    assert without.outlook is not None
    assert float(found.outlook.usd_low - without.outlook.usd_low) == pytest.approx(18, abs=1e-3)


def test_a_store_without_a_charge_costs_only_the_time() -> None:
    sold = h100(download_mbps=Decimal(900))
    found = made(sold, *DATA, "data=r2")
    assert found.data == "Data: 200 GB from R2, $0.00 and 30 min."
    assert found.expected_usd == made(sold, *DATA).expected_usd


@pytest.mark.parametrize("words", [("data=r2",), ()])
def test_without_their_size_moving_them_is_not_counted(words: tuple[str, ...]) -> None:
    assert made(h100(), *words).data == ""
    assert made(h100(), *words).expected_usd == made(h100()).expected_usd


def test_a_volume_is_read_in_place_only_in_its_data_center() -> None:
    volume = (*DATA, "data=runpod:EU-RO-1")
    close, far = (h100(cloud="runpod", region=region, download_mbps=Decimal(900)) for region in (CLOSE, FAR))
    here, there, elsewhere = made(close, *volume), made(far, *volume), made(h100(region=CLOSE), *volume)
    kept = "Keeping them there costs $14.00 a month."
    assert here.data == f"Data: 200 GB from a RunPod volume in EU-RO-1, read in place. {kept}"
    assert there.data == f"Data: 200 GB from a RunPod volume in EU-RO-1, $0.00 and 30 min. {kept}"
    assert "read in place" not in elsewhere.data
    assert here.expected_usd == made(close).expected_usd < there.expected_usd
    # The volume may be out of reach after all, so an approval covers the copy.
    assert part(here, "start-up")[1] == part(there, "start-up")[1] > part(made(close), "start-up")[1]


def test_the_offer_beside_the_data_ranks_first_and_says_why() -> None:
    volume = (*WORDS, *DATA, "data=runpod:EU-RO-1")
    sold = [
        h100(key, cloud="runpod", region=region, price_usd_h=Decimal(price), download_mbps=Decimal(900))
        for key, region, price in (("a", FAR, "16"), ("b", CLOSE, "16.2"))
    ]
    found = rank(sold, wanted(*volume), POLICY, CLOUDS, top=2, proof=WHOLE)
    assert [one.offer.key for one in found.options] == ["b", "a"]
    assert "read in place." in found.options[0].why
    assert found.options[1].why.endswith("$0.00 and 30 min. Keeping them there costs $14.00 a month.")


def test_evaluation_takes_hours_and_goodput() -> None:
    plain, half = made(h100()), made(h100(), "evaluation=50%")
    hours = run(*WORDS, "evaluation=50%").hours.expected
    assert float(hours) == pytest.approx(2 * float(run().hours.expected), abs=2e-6)
    assert plain.outlook is not None
    assert half.outlook is not None
    assert float(half.outlook.goodput) == pytest.approx(float(plain.outlook.goodput) / 2, rel=0.05)
    assert half.outlook.utilisation is not None
    assert plain.outlook.utilisation is not None
    assert half.outlook.utilisation < plain.outlook.utilisation
