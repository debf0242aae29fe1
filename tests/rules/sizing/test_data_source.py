"""Where data lie, and what sending them from there costs."""

from __future__ import annotations

from decimal import Decimal

import pytest

from bot.rules.sizing.data_source import STORES, DataSource


@pytest.mark.parametrize(
    ("source", "size_gb", "usd"),
    [
        (DataSource("s3", "us-east-1"), 200, "18"),
        (DataSource("s3", "us-east-1"), 10_340, "930.1"),
        (DataSource("s3", "ap-southeast-2"), 200, "22.8"),
        (DataSource("gcs"), 1_124, "133.88"),
        (DataSource("azure"), 100, "8.7"),
        (DataSource("r2"), 5_000, "0"),
        (DataSource("hub"), 5_000, "0"),
        (DataSource("runpod", "EU-RO-1"), 5_000, "0"),
    ],
)
def test_each_step_of_the_amount_has_its_own_charge(source: DataSource, size_gb: int, usd: str) -> None:
    assert source.leaving_usd(Decimal(size_gb)) == Decimal(usd)


def test_a_volume_costs_by_the_month() -> None:
    volume = DataSource("runpod", "EU-RO-1")
    assert volume.kept_usd_month(Decimal(1_200)) == 80
    assert DataSource("r2").kept_usd_month(Decimal(1_200)) == 0


def test_only_the_volumes_own_data_center_reads_it_in_place() -> None:
    volume = DataSource("runpod", "EU-RO-1")
    assert volume.beside("runpod", "EU-RO-1")
    assert volume.beside("runpod", "eu-ro-1")
    assert not volume.beside("runpod", "US-KS-2")
    assert not volume.beside("vast", "EU-RO-1")
    assert not DataSource("s3", "us-east-1").beside("s3", "us-east-1")


def test_places_have_names_for_people() -> None:
    assert DataSource("s3", "us-east-1").label == "S3 us-east-1"
    assert DataSource("r2").label == "R2"
    assert DataSource("runpod", "EU-RO-1").label == "a RunPod volume in EU-RO-1"


@pytest.mark.parametrize("name", STORES)
def test_every_charge_has_its_page_and_its_day(name: str) -> None:
    store = STORES[name]
    assert "https://" in store.source
    assert store.as_of.year == 2026
    for tiers in (store.tiers, *store.regions.values()):
        charges = [usd for _, usd in tiers]
        assert charges == sorted(charges, reverse=True)
        assert tiers[-1][0].is_infinite()
