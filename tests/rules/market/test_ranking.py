"""Ranking: what is left out and why, in which order the rest stands, and which two options are marked."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.rules.jobs.facets.limits import SpotPolicy
from bot.rules.jobs.job import JobRequest
from bot.rules.market import ranking
from bot.rules.market.estimate import estimate
from bot.rules.market.filters import EXCLUSIONS, in_region
from bot.rules.market.ranking import ASSUMED_STABILITY, BEST_COST, BEST_STABILITY, FIRST_CLOUD, FREE, Ranked, rank
from bot.rules.market.relaxation import relax
from bot.rules.policy.policy import Policy
from providers.contract import Offer, Stock
from providers.gpus.constraint import GpuConstraint
from tests.providers.read_offers import WHOLE
from tests.rules.builders import CLOUDS, OFFERS, job, offer

POLICY = Policy()
ANY = GpuConstraint(count_min=1, count_max=8)


def ranked(*offers: Offer, wanted: JobRequest | None = None, policy: Policy = POLICY, **options: Any) -> Ranked:
    return rank(offers, wanted or job(), policy, CLOUDS, **options, proof=WHOLE)


def keys(found: Ranked) -> list[str]:
    return [option.offer.key for option in found.options]


# ── what is left out ─────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("code", "change", "wanted"),
    [
        ("price_missing", {"price_usd_h": None}, job()),
        ("price_missing", {"price_usd_h": Decimal(0)}, job()),
        ("price_missing", {"price_usd_h": Decimal(-1)}, job()),
        ("price_missing", {"price_usd_h": Decimal("NaN")}, job()),
        ("price_missing", {"price_usd_h": Decimal("1E+22")}, job()),
        ("price_missing", {"storage_usd_h": Decimal("NaN")}, job()),
        ("price_missing", {"egress_usd_gb": Decimal("1E+22")}, job()),
        ("cloud_unknown", {"cloud": "elsewhere"}, job()),
        ("cloud", {}, job(candidates=("runpod", "lambda"))),
        ("offer", {}, job(offer_id="vast:2")),
        ("gpu", {"gpu": "RTX5090"}, job()),
        ("count", {"gpu_count": 2}, job()),
        ("count", {"gpu_count": 1}, job(gpu=GpuConstraint(count_min=2, count_max=4))),
        ("count", {"gpu_count": 17}, job(gpu=GpuConstraint(count_min=1, count_max=64))),
        ("memory", {}, job(gpu=GpuConstraint(memory_gb_min=Decimal(40)))),
        ("memory", {}, job(gpu=GpuConstraint(memory_gb_max=Decimal(16)))),
        ("memory", {"memory_gb": Decimal("NaN")}, job()),
        ("spot", {"spot": True}, job()),
        ("spot", {"spot": False}, job(spot=SpotPolicy.YES)),
        ("region", {}, job(regions=("US",))),
        ("disk", {"disk_gb_max": 49}, job(disk_gb=50)),
        ("price", {}, job(max_price_usd_h=Decimal("0.39"))),
        ("reliability", {}, job(min_reliability=Decimal("0.995"))),
        ("reliability", {"reliability": None}, job(min_reliability=Decimal("0.5"))),
        ("reliability", {"reliability": Decimal("NaN")}, job(min_reliability=Decimal("0.5"))),
        ("memory_total", {}, job(memory_gb_total_min=Decimal(25))),
        ("unverified", {"verified": False}, job(verified_only=True)),
        ("unverified", {"verified": None}, job(verified_only=True)),
        ("cuda", {"cuda_max": Decimal("12.3")}, job(min_cuda=Decimal("12.4"))),
        ("cuda", {"cuda_max": None}, job(min_cuda=Decimal("12.4"))),
        ("cuda", {"cuda_max": Decimal("NaN")}, job(min_cuda=Decimal("12.4"))),
        ("capability", {"compute_capability": Decimal("8.6")}, job(min_capability=Decimal("8.9"))),
        ("capability", {"compute_capability": None}, job(min_capability=Decimal("9.0"))),
        ("available", {"available_for_s": 7 * 3600}, job(min_available_s=8 * 3600)),
        ("available", {"available_for_s": None}, job(min_available_s=60)),
        ("own_image", {"cloud": "kaggle", "price_usd_h": Decimal(0)}, job(image="a/b:1")),
        ("stock", {"stock": Stock.NONE}, job()),
        ("too_short", {"available_for_s": 6 * 3600 - 1}, job()),
        ("budget", {}, job(budget_cap_usd=Decimal("2.38"))),
    ],
)
def test_what_does_not_answer_is_left_out_counted_and_named(
    code: str, change: dict[str, Any], wanted: JobRequest
) -> None:
    found = ranked(offer(**change), offer("7", **change), wanted=wanted)
    assert found.options == ()
    assert found.answered == 0
    (left_out,) = found.excluded
    assert (left_out.reason_code, left_out.count) == (code, 2)
    assert left_out.sentence.startswith("2 offers skipped: ")
    assert left_out.example_ids[-1].endswith(":7")


@pytest.mark.parametrize(
    ("change", "wanted"),
    [
        ({"gpu": "A10"}, job(gpu=GpuConstraint())),
        ({"disk_gb_max": 50}, job(disk_gb=50)),
        ({"spot": True}, job(spot=SpotPolicy.YES)),
        ({"spot": True}, job(spot=SpotPolicy.ANY)),
        ({"spot": False}, job(spot=SpotPolicy.ANY)),
        ({"cloud": "runpod"}, job(candidates=("runpod",))),
        ({"cloud": "kaggle", "price_usd_h": Decimal(0)}, job()),
        ({"available_for_s": 6 * 3600}, job()),
        ({"stock": Stock.LOW}, job()),
        ({}, job(offer_id="vast:1")),
        ({}, job(max_price_usd_h=Decimal("0.40"), min_reliability=Decimal("0.99"), regions=("EU",))),
        ({}, job(gpu=GpuConstraint(memory_gb_min=Decimal(24), memory_gb_max=Decimal(24)))),
    ],
)
def test_what_is_at_the_limit_answers(change: dict[str, Any], wanted: JobRequest) -> None:
    assert ranked(offer(**change), wanted=wanted).answered == 1


def test_a_price_of_zero_never_wins() -> None:
    found = ranked(offer("zero", price_usd_h=Decimal(0)), offer("dear", price_usd_h=Decimal(9)))
    assert keys(found) == ["dear"]
    assert found.excluded[0].example_ids == ("vast:zero",)


@pytest.mark.parametrize(
    ("change", "asked", "code"),
    [
        ({"gpu": "RTX5090"}, {}, "image"),
        ({"gpu": "RTX5090", "compute_capability": Decimal("12.0")}, {}, "image"),
        ({"gpu": "RTX5090", "compute_capability": Decimal("9.0")}, {}, None),
        ({"gpu": "RTX5090", "compute_capability": Decimal("NaN")}, {}, "image"),
        ({"gpu": "RTX5090"}, {"image": "runpod/pytorch:1.0.2-cu1281-torch280-ubuntu2404"}, None),
        ({"gpu": "RTX5090"}, {"image": "own/image:1"}, None),
        ({"gpu": "RTX5090", "cloud": "runpod"}, {}, None),
        ({"gpu": "RTX4090"}, {}, None),
        ({"gpu": "SomethingNew"}, {}, "gpu_unknown"),
        ({"gpu": "SomethingNew", "compute_capability": Decimal("8.9")}, {}, None),
        ({"gpu": "SomethingNew"}, {"image": "own/image:1"}, None),
        ({"gpu": "MI300X"}, {}, "image_vendor"),
        ({"gpu": "MI300X"}, {"image": "rocm/pytorch:latest"}, None),
        ({"gpu": "MI300X"}, {"image": "own/image:1"}, "image_unknown"),
        ({"gpu": "A100-SXM-80GB"}, {"image": "rocm/pytorch:latest"}, "image_vendor"),
        ({"cuda_max": Decimal("12.2")}, {}, "image_cuda"),
        ({"cuda_max": Decimal("12.4")}, {}, None),
        ({"cuda_max": Decimal("12.6"), "cloud": "runpod"}, {}, "image_cuda"),
        ({"cuda_max": Decimal("NaN")}, {}, "image_cuda"),
        ({"cuda_max": Decimal("12.2")}, {"image": "own/image:1"}, None),
        ({"gpu": "V100-32GB"}, {"work": ("model=1B", "tokens=1M", "precision=bf16")}, "precision"),
        ({"gpu": "V100-32GB"}, {"work": ("model=1B", "tokens=1M", "precision=fp16")}, None),
        ({"gpu": "A100-SXM-80GB"}, {"work": ("model=1B", "tokens=1M", "precision=fp8")}, "precision"),
    ],
)
def test_what_cannot_run_the_image_or_the_precision_is_left_out(
    change: dict[str, Any], asked: dict[str, Any], code: str | None
) -> None:
    found = ranked(offer(**change), wanted=job(gpu=ANY, **asked))
    assert [one.reason_code for one in found.excluded] == ([code] if code else [])
    if code == "image":
        assert found.excluded[0].sentence == (
            "1 offer skipped: the image has no code for that GPU's compute capability; a newer image may have it."
        )


@pytest.mark.parametrize("host", [{"host_id": "77"}, {"machine_id": "77"}])
def test_blocked_hosts_are_left_out_whichever_id_names_them(host: dict[str, Any]) -> None:
    policy = Policy(blocked_hosts=("vast:77", "runpod:1"))
    found = ranked(offer(**host), offer("2", host_id="78"), offer("3"), policy=policy)
    assert keys(found) == ["2", "3"]
    assert found.excluded[0].sentence == "1 offer skipped: the policy blocks that host."


def test_blocked_countries_are_left_out() -> None:
    found = ranked(offer(), offer("2", country="US", region="US"), policy=Policy(blocked_countries=("EU", "cn")))
    assert keys(found) == ["2"]
    assert found.excluded[0].sentence == "1 offer skipped: the policy blocks that country."


def test_a_blocked_gpu_is_left_out() -> None:
    found = ranked(offer(), policy=Policy(blocked_gpus=("RTX4090",)))
    assert found.excluded[0].reason_code == "gpu_blocked"


def test_every_reason_has_a_sentence_in_a_fixed_order_and_few_examples() -> None:
    many = [offer(str(n), stock=Stock.NONE) for n in range(9)]
    found = ranked(*many, offer("x", price_usd_h=None))
    assert [one.reason_code for one in found.excluded] == ["price_missing", "stock"]
    assert found.excluded[1].example_ids == ("vast:0", "vast:1", "vast:2")
    assert found.excluded[0].sentence.startswith("1 offer skipped")
    assert all(sentence.startswith("{n} skipped: ") for sentence in EXCLUSIONS.values())


@pytest.mark.parametrize(
    ("country", "region", "asked", "inside"),
    [
        ("SE", "Sweden, SE", "se", True),
        ("SE", "Sweden, SE", "Sweden", True),
        ("SE", "Sweden, SE", "EU", True),
        (None, "EU-RO-1", "EU", True),
        (None, "EU-RO-1", "EU-RO-1", True),
        (None, "Bulgaria, BG", "EU", True),
        ("US", "California, US", "EU", False),
        ("US", "California, DE", "EU", False),
        ("US", "us-east-1", "US", True),
        (None, "us-east-1", "CA", False),
    ],
)
def test_regions(country: str | None, region: str, asked: str, inside: bool) -> None:
    assert in_region(offer(country=country, region=region), asked) is inside


# ── the order ────────────────────────────────────────────────────────────────────────────────────


def test_the_expected_total_decides_and_not_the_hourly_price() -> None:
    """The cheaper hour loses to its transfer prices."""
    cheap_hour = offer("hour", price_usd_h=Decimal("0.40"), ingress_usd_gb=Decimal("0.10"))
    cheap_run = offer("run", price_usd_h=Decimal("0.45"))
    assert keys(ranked(cheap_hour, cheap_run)) == ["run", "hour"]
    assert keys(ranked(cheap_hour, cheap_run, wanted=job("700"))) == ["hour", "run"]


def test_ties_are_broken_the_same_way_whatever_the_order_of_the_offers() -> None:
    offers = [offer(str(n)) for n in range(20)]
    assert ranked(*offers) == ranked(*reversed(offers))


def test_the_order_of_the_clouds_asked_for_breaks_ties() -> None:
    pair = (offer("v", reliability=None), offer("r", cloud="kaggle", reliability=None))
    assert keys(ranked(*pair, wanted=job(candidates=("kaggle", "vast")))) == ["r", "v"]
    assert keys(ranked(*pair, wanted=job(candidates=("vast", "kaggle")))) == ["v", "r"]


def test_clouds_in_order_are_a_fallback_order_whatever_they_cost() -> None:
    market = (
        offer("dear", price_usd_h=Decimal(2)),
        offer("less", price_usd_h=Decimal("1.50")),
        offer("cheap", cloud="runpod", price_usd_h=Decimal("0.20")),
    )
    wanted = job(candidates=("lambda", "vast", "runpod"), clouds_in_order=True)
    found = ranked(*market, wanted=wanted)
    assert keys(found) == ["less", "dear", "cheap"]
    assert found.options[0].marks[0] == FIRST_CLOUD
    assert "the first of your clouds that has one" in found.options[0].why
    assert keys(ranked(*market[2:], wanted=wanted)) == ["cheap"]
    assert keys(ranked(*market, wanted=replace(wanted, clouds_in_order=False))) == ["cheap", "less", "dear"]
    nothing = replace(wanted, candidates=("lambda", "kaggle"))
    assert [one.instead for one in relax(market, nothing, Policy(), CLOUDS, WHOLE)] == ["clouds=runpod"]


def test_at_most_the_asked_number_of_options_is_shown_but_all_are_counted() -> None:
    offers = [offer(str(n), price_usd_h=Decimal(n + 1)) for n in range(9)]
    assert keys(ranked(*offers)) == ["0", "1", "2", "3", "4"]
    assert ranked(*offers).answered == 9
    assert keys(ranked(*offers, top=2)) == ["0", "1"]
    assert [option.rank for option in ranked(*offers).options] == [1, 2, 3, 4, 5]


# ── the two marks ────────────────────────────────────────────────────────────────────────────────


def test_the_cheapest_and_the_most_stable_are_marked() -> None:
    cheap = offer("cheap", reliability=Decimal("0.90"))
    stable = offer("stable", price_usd_h=Decimal("0.80"), reliability=Decimal("0.999"))
    found = ranked(cheap, offer("middle", price_usd_h=Decimal("0.60"), reliability=Decimal("0.95")), stable)
    assert [option.marks for option in found.options] == [(BEST_COST,), (), (BEST_STABILITY,)]
    assert found.options[0].why.startswith("Cheapest: about $")
    assert found.options[1].why.startswith("$1.19 more")
    assert "more than #1" in found.options[2].why


def test_one_option_carries_both_marks_when_it_is_both() -> None:
    found = ranked(offer("best"), offer("dear", price_usd_h=Decimal(1)))
    assert [option.marks for option in found.options] == [(BEST_COST, BEST_STABILITY), ()]
    assert found.options[0].why.startswith("Cheapest and most reliable")


def test_the_most_stable_is_shown_however_far_down_it_ranks() -> None:
    offers = [offer(str(n), price_usd_h=Decimal(n + 1), reliability=Decimal("0.9")) for n in range(9)]
    last = replace(offers[-1], reliability=Decimal("0.9999"))
    found = ranked(*offers[:-1], last)
    assert keys(found) == ["0", "1", "2", "3", "8"]
    assert (found.options[-1].rank, found.options[-1].marks) == (5, (BEST_STABILITY,))
    assert keys(ranked(*offers[:-1], last, top=1)) == ["0", "8"]


def test_spot_is_never_the_most_stable_beside_on_demand() -> None:
    spot = offer("spot", spot=True, price_usd_h=Decimal("0.1"), reliability=Decimal("0.999"))
    found = ranked(spot, offer("firm", reliability=Decimal("0.9")), wanted=job(spot=SpotPolicy.ANY))
    assert [(option.offer.key, option.marks) for option in found.options] == [
        ("spot", (BEST_COST,)),
        ("firm", (BEST_STABILITY,)),
    ]
    assert "Spot," in found.options[0].why


def test_a_stability_that_no_cloud_reports_is_marked_as_assumed() -> None:
    (only,) = ranked(offer(reliability=None)).options
    assert only.marks == (BEST_COST, ASSUMED_STABILITY)
    assert only.why.startswith("Cheapest and most reliable (estimate): about $")
    cheap = offer("cheap", reliability=Decimal("0.9"))
    dear = ranked(cheap, offer("dear", price_usd_h=Decimal("0.8"), reliability=None)).options[-1]
    assert (dear.offer.key, dear.marks) == ("dear", (ASSUMED_STABILITY,))
    assert dear.why.startswith("Most reliable (estimate): $")


@pytest.mark.parametrize(
    ("marks", "beside", "said"),
    [
        ((BEST_COST,), "", "cheapest"),
        ((BEST_COST, ASSUMED_STABILITY), "", "cheapest"),
        ((BEST_COST, BEST_STABILITY, ranking.FASTEST), "", "cheapest, most reliable, fastest"),
        ((BEST_COST, BEST_STABILITY), "reliable", "cheapest reliable"),
        ((FIRST_CLOUD,), "", "first of your clouds"),
        ((FREE, BEST_COST), "", "free"),
        ((ASSUMED_STABILITY, ranking.FASTEST), "", "most reliable (estimate), fastest"),
        ((), "reliable", ""),
    ],
)
def test_what_an_offer_is_best_at_is_said_in_one_to_four_words(marks: tuple[str, ...], beside: str, said: str) -> None:
    assert ranking.in_short(marks, beside) == said
    assert len(said.split()) <= 4


# ── properties ───────────────────────────────────────────────────────────────────────────────────

MARKET = st.lists(OFFERS, min_size=1, max_size=12, unique_by=lambda one: one.id)
WANTED = job(gpu=ANY, spot=SpotPolicy.ANY)
STABILITIES = {BEST_STABILITY, ASSUMED_STABILITY}


def order(found: Ranked) -> dict[str, int]:
    return {option.offer.id: option.rank for option in found.options}


@given(market=MARKET)
def test_options_stand_in_the_order_of_their_expected_totals(market: list[Offer]) -> None:
    found = ranked(*market, wanted=WANTED, top=99)
    totals = [option.estimate.expected_usd + option.risk_usd for option in found.options]
    assert totals == sorted(totals)
    assert found.answered == len(market)
    for option in found.options:
        assert option.estimate == estimate(option.offer, WANTED, POLICY, CLOUDS[option.offer.cloud])
    assert sum(BEST_COST in option.marks for option in found.options) == 1
    marks = [mark for option in found.options for mark in option.marks if mark in STABILITIES]
    (stable,) = [option for option in found.options if STABILITIES & set(option.marks)]
    assert marks == [ASSUMED_STABILITY if stable.offer.reliability is None else BEST_STABILITY]


@given(market=MARKET, cut=st.decimals(min_value="0.1", max_value="0.999", places=3), data=st.data())
def test_a_lower_price_never_ranks_lower(market: list[Offer], cut: Decimal, data: st.DataObject) -> None:
    chosen = data.draw(st.sampled_from(market))
    assert chosen.price_usd_h is not None
    storage = min(chosen.storage_usd_h, chosen.price_usd_h)
    cheaper = replace(chosen, price_usd_h=storage + (chosen.price_usd_h - storage) * cut, storage_usd_h=storage)
    if cheaper.price_usd_h == 0:
        return
    before = order(ranked(*market, wanted=WANTED, top=99))[chosen.id]
    after = order(ranked(*(cheaper if one is chosen else one for one in market), wanted=WANTED, top=99))[chosen.id]
    assert after <= before


@given(market=MARKET, data=st.data())
def test_nothing_stands_above_an_offer_that_beats_it_in_everything(market: list[Offer], data: st.DataObject) -> None:
    worse = data.draw(st.sampled_from(market))
    assert worse.price_usd_h is not None
    better = replace(
        worse,
        key="better",
        price_usd_h=worse.price_usd_h * Decimal("0.9"),
        storage_usd_h=worse.storage_usd_h * Decimal("0.9"),
        reliability=Decimal(1),
        datacenter=True,
        verified=True,
        stock=Stock.HIGH,
    )
    places = order(ranked(*market, better, wanted=WANTED, top=99))
    assert places[better.id] < places[worse.id]


@given(market=MARKET, data=st.data())
def test_the_order_of_the_input_changes_nothing(market: list[Offer], data: st.DataObject) -> None:
    mixed = data.draw(st.permutations(market))
    assert ranked(*market, wanted=WANTED) == ranked(*mixed, wanted=WANTED)
