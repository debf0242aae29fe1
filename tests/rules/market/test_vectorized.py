"""Comparing a whole market at once gives exactly what looking at every offer by itself gives."""

from __future__ import annotations

import math
from dataclasses import replace
from decimal import Decimal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.rules.jobs.facets.limits import SpotPolicy
from bot.rules.jobs.job import JobRequest
from bot.rules.market.columns import column, kinds
from bot.rules.market.filters import excluded, needs_by_cloud, reason
from bot.rules.market.host_speeds import by_host
from bot.rules.market.own_history import NO_HISTORY, OwnHistory
from bot.rules.market.ranking import ASSUMED_STABILITY, BEST_COST, BEST_STABILITY, FASTEST, Ranked, ordered, rank
from bot.rules.market.scoring import Cases, Scored, expected_losses, needed_s, score, stock_rank, unsuited
from bot.rules.policy.policy import Policy
from bot.rules.sizing.interruptions import Checkpointing, loss, losses_per_h, many_losses, rates_per_h
from bot.rules.sizing.start_times import InstanceHistory, Losses, OwnTimes, own_times
from bot.rules.viability.interconnect import host_speed
from providers.contract import HostRecord, Offer, Stock
from providers.gpus.constraint import GpuConstraint
from tests.providers.read_offers import WHOLE
from tests.rules.builders import CLOUDS, OFFERS, SHARES, job, offer

#: Enough good hours to bring 0.95 to exactly 0.96.
DAYS = Decimal(60)
ANY = GpuConstraint(count_min=1, count_max=8)
RUNS = (
    *(("model=" + size, "tokens=50M", "seq=2048", "batch=64", "goal=20h") for size in ("1B", "13B")),
    ("model=7B", "type=finetune", "tokens=50M", "precision=fp16"),
    ("model=7B", "type=finetune", "tokens=5M", "batch=1"),
    ("model=1B", "type=finetune", "tokens=5M", "checkpoint-every=1m", "dataset=200GB"),
    ("model=1B", "type=finetune", "tokens=5M", "dataset=900GB", "data=runpod:EU-RO-1"),
    ("model=1B", "type=finetune", "tokens=5M", "dataset=30GB", "data=s3:us-east-1", "evaluation=10%", "goal=2h"),
    ("model=1B", "type=serving", "precision=fp8"),
    # On 24 GB this is tight.
    ("params=11.9B", "type=serving", "precision=bf16", "seq=512", "concurrency=1", "tokens=1M"),
)
POLICY = Policy(
    gpu_capabilities={"X9000": "8.0"}, blocked_hosts=("vast:9",), blocked_countries=("CN",), risk_weight=Decimal("0.5")
)

#: What may be wrong or odd about an offer, one thing at a time.
FLAWS = st.one_of(
    [
        st.fixed_dictionaries({name: st.sampled_from(values)})
        for name, values in {
            "price_usd_h": (None, Decimal(0), Decimal(-1), Decimal("NaN"), Decimal("sNaN"), Decimal("1E+22")),
            "storage_usd_h": (Decimal("NaN"), Decimal(-1), Decimal("1E+22"), Decimal(9)),
            "egress_usd_gb": (Decimal("0.01"), Decimal("1E+22")),
            "reliability": (Decimal("0.950000000000000000001"), Decimal("sNaN"), Decimal("Infinity"), Decimal(2)),
            "memory_gb": (Decimal("23.9999999999999999999"), Decimal(81), Decimal("NaN")),
            "country": ("CN", "US"),
            "region": ("EU-RO-1", "US-KS-2"),
            "stock": (Stock.NONE,),
            "disk_gb_max": (49, 50),
            "available_for_s": (100, 6 * 3600, 10**7),
            "host_id": ("8", "9"),
            "compute_capability": (Decimal("8.9"), Decimal("sNaN"), Decimal("12.0")),
            "cloud": ("elsewhere",),
            "ram_gb": (Decimal(1), Decimal(4), Decimal("113.0"), Decimal("sNaN"), Decimal("15.476")),
            "cuda_max": (Decimal("12.2"), Decimal("NaN")),
            "upload_mbps": (Decimal(0), Decimal(-1), Decimal("0.001"), Decimal(90), Decimal("sNaN"), Decimal(10_000)),
            "pcie_gb_s": (Decimal(6), Decimal("13.4543"), Decimal("0.3"), Decimal(0), Decimal("sNaN"), Decimal(32)),
            "nvlink_gb_s": (Decimal(90), Decimal("NaN"), Decimal("189.2"), Decimal(1)),
            "power_limit_w": (Decimal(250), Decimal("427.5"), Decimal(0), Decimal("Infinity"), Decimal(300)),
            "download_mbps": (Decimal(0), Decimal("Infinity"), Decimal(25), Decimal("950.7"), Decimal("NaN")),
        }.items()
    ]
)
#: Few prices and reliabilities, so that many offers tie.
PLAIN = st.builds(
    replace,
    OFFERS,
    cloud=st.sampled_from(["vast", "runpod", "kaggle"]),
    gpu=st.sampled_from(["RTX4090", "H100-SXM", "X9000", "V100-32GB", "MI300X"]),
    gpu_count=st.sampled_from([1, 1, 2]),
    price_usd_h=st.sampled_from([Decimal("0.40"), Decimal("0.4000004"), Decimal("1.20"), Decimal(3)]),
    storage_usd_h=st.sampled_from([Decimal(0), Decimal("0.01")]),
    egress_usd_gb=st.just(Decimal(0)),
    ingress_usd_gb=st.sampled_from([Decimal(0), Decimal("0.01")]),
    reliability=st.sampled_from([None, Decimal("0.95")]),
    own=st.sampled_from([None, None, HostRecord(3, 2, 1, Decimal("7.1")), HostRecord(1), HostRecord(2, hours=DAYS)]),
)
MANY = st.lists(
    PLAIN | st.builds(lambda one, flaw: replace(one, **flaw), PLAIN, FLAWS),
    min_size=1,
    max_size=25,
    unique_by=lambda one: one.id,
)
JOBS = st.builds(
    job,
    gpu=st.sampled_from([ANY, GpuConstraint((), 1, 2, Decimal(24), Decimal(80)), GpuConstraint(("RTX4090",), 1, 8)]),
    spot=st.sampled_from(SpotPolicy),
    work=st.sampled_from([(), *RUNS]),
    image=st.sampled_from([None, None, "rocm/pytorch:latest", "own/image:1", "nvidia/cuda:11.0-devel"]),
    install=st.sampled_from([None, None, "train", "serve"]),
    candidates=st.sampled_from([(), ("kaggle", "vast")]),
    regions=st.sampled_from([(), ("EU",)]),
    max_price_usd_h=st.sampled_from([None, Decimal("0.40"), Decimal("1.2")]),
    min_reliability=st.sampled_from([None, Decimal("0.95")]),
    memory_gb_total_min=st.sampled_from([None, None, Decimal(80)]),
    verified_only=st.sampled_from([False, False, True]),
    min_cuda=st.sampled_from([None, None, Decimal("12.4")]),
    min_capability=st.sampled_from([None, None, Decimal("8.9"), Decimal("9.0")]),
    min_available_s=st.sampled_from([None, None, 7 * 3600]),
    budget_cap_usd=st.sampled_from([None, Decimal("2.4"), Decimal("7.5"), Decimal(100)]),
)


#: What own sessions showed: nothing; and boots, steps and losses at the clouds of this market.
HISTORIES = st.sampled_from(
    [
        NO_HISTORY,
        OwnHistory(
            times=own_times(
                [
                    InstanceHistory("vast", "RTX4090", spot=False, boot_s=700, hours=3, lost=True, wait_s=4000),
                    InstanceHistory("vast", "H100-SXM", spot=True, boot_s=30, hours=0.5, lost=True),
                    *[InstanceHistory("runpod", "RTX4090", spot=False, hours=4000, steps=(("packages", 900.0),))] * 3,
                ]
            )
        ),
    ]
)


def one_by_one(
    market: list[Offer], wanted: JobRequest, policy: Policy, own: OwnHistory = NO_HISTORY
) -> tuple[list[Scored], dict[str, list[str]]]:
    """The definition: every offer judged and scored by itself, then sorted."""
    cases = Cases(wanted, policy, CLOUDS, whole=False, own=own)
    needs = needs_by_cloud(wanted, policy, CLOUDS)
    kept: list[Scored] = []
    left_out: dict[str, list[str]] = {}
    for one in market:
        able = CLOUDS.get(one.cloud)
        code = "cloud_unknown" if able is None else reason(one, wanted, policy, able.free, needs[one.cloud])
        code = code or ("own_image" if able is not None and wanted.image and not able.images else None)
        no_agent = able is not None and not able.has_agent(own_image=wanted.image is not None)
        code = code or ("secrets" if wanted.secrets and no_agent else None)
        code = code or ("queue" if wanted.queue and no_agent else None)
        code = code or ("attempts" if wanted.attempts > 1 and no_agent else None)
        code = code or ("install_agent" if wanted.install and no_agent else None)
        code = code or unsuited(one, cases.of(one))
        found = None if code else score(one, cases)
        if found and wanted.budget_cap_usd is not None and found.expected_usd > wanted.budget_cap_usd:
            code = "budget"
        if code:
            left_out.setdefault(code, []).append(one.id)
        elif found:
            kept.append(found)
    return sorted(kept, key=lambda one: one.order), left_out


def marked(found: Ranked, mark: str) -> str | None:
    return next((option.offer.id for option in found.options if mark in option.marks), None)


def most_stable(kept: list[Scored], cases: Cases) -> str:
    first = [one for one in kept if one.order[0] == kept[0].order[0]]
    firm = [one for one in first if not one.offer.spot] or first

    def stability(one: Scored) -> tuple[Decimal, int, int, int]:
        sold = one.offer
        facts = int(sold.datacenter or 0), int(sold.verified or 0), stock_rank(sold.stock)
        return (-expected_losses(sold, cases), *facts)

    most = max(map(stability, firm))
    return next(one.offer.id for one in firm if stability(one) == most)


def fastest(kept: list[Scored], cases: Cases) -> str | None:
    runs = [
        (one, run)
        for one in kept
        if (run := cases.run(one.offer)) is not None and run.known and not cases.of(one.offer).tight
    ]
    least = min((run.hours.expected for _, run in runs), default=None)
    return next((one.offer.id for one, run in runs if run.hours.expected == least), None)


@given(market=MANY, wanted=JOBS, own=HISTORIES)
def test_a_market_is_ranked_exactly_as_its_offers_one_by_one(
    market: list[Offer], wanted: JobRequest, own: OwnHistory
) -> None:
    kept, left_out = one_by_one(market, wanted, POLICY, own)
    found = rank(market, wanted, POLICY, CLOUDS, top=len(market), own=own, proof=WHOLE)
    assert [(one.offer.id, one.rank) for one in found.options] == [(one.offer.id, n) for n, one in enumerate(kept, 1)]
    assert [(one.risk_usd, one.estimate.expected_usd) for one in found.options] == [
        (one.risk_usd, one.expected_usd) for one in kept
    ]
    assert {one.reason_code: one for one in found.excluded} == {
        code: excluded(code, ids) for code, ids in left_out.items()
    }
    assert found.answered == len(kept)
    if kept:
        cases = Cases(wanted, POLICY, CLOUDS, whole=False, own=own)
        best = None if cases.of(kept[0].offer).tight else kept[0].offer.id
        assert marked(found, BEST_COST) == best
        stable = most_stable(kept, cases) if best else None
        assert (marked(found, BEST_STABILITY) or marked(found, ASSUMED_STABILITY)) == stable
        assert marked(found, FASTEST) == fastest(kept, cases)
        few = rank(market, wanted, POLICY, CLOUDS, top=2, own=own, proof=WHOLE)
        shown = [one.offer.id for one in few.options]
        assert shown == [one.offer.id for one in kept if one.offer.id in shown]
        assert [one.rank for one in few.options] == list(range(1, len(shown) + 1))


@given(market=MANY, wanted=JOBS, own=HISTORIES)
def test_a_whole_market_is_ordered_as_its_offers_one_by_one_with_the_same_totals(
    market: list[Offer], wanted: JobRequest, own: OwnHistory
) -> None:
    kept, _ = one_by_one(market, wanted, POLICY, own)
    found = ordered(market, wanted, POLICY, CLOUDS, own=own)
    assert [(one.id, found.expected_usd(one)) for one in found.offers] == [
        (one.offer.id, one.expected_usd) for one in kept
    ]


@pytest.mark.parametrize("lost", [Losses(3, 10.0), Losses(10**6, 1.0), Losses(0, 3000.0)])
@pytest.mark.parametrize("spot", [False, True])
@pytest.mark.parametrize("reliability", ["0", "0.93", "1"])
def test_pooled_losses_at_once_are_the_same_as_one_by_one(lost: Losses, spot: bool, reliability: str) -> None:
    own = OwnHistory(times=OwnTimes(losses={("vast", spot): lost}))
    market = [
        offer(str(number), price_usd_h=Decimal(1 + number), spot=kind, reliability=Decimal(reliability))
        for number, kind in enumerate((False, True))
    ]
    wanted = job(gpu=ANY, work=RUNS[0], spot=SpotPolicy.ANY)
    kept, _ = one_by_one(market, wanted, POLICY, own)
    found = rank(market, wanted, POLICY, CLOUDS, own=own, proof=WHOLE)
    assert [one.offer.id for one in found.options] == [one.offer.id for one in kept]
    plain = {one.offer.id: one for one in one_by_one(market, wanted, POLICY)[0]}
    changed = {one.offer.spot for one in kept if one.expected_usd != plain[one.offer.id].expected_usd}
    assert changed <= {spot}
    assert changed or reliability != "0.93"


@pytest.mark.parametrize(("over", "left_out"), [("0", []), ("0.000001", ["budget"])])
def test_a_budget_is_kept_to_the_micro_dollar(over: str, left_out: list[str]) -> None:
    (option,) = rank([offer()], job(), POLICY, CLOUDS, proof=WHOLE).options
    tight = job(budget_cap_usd=option.estimate.expected_usd - Decimal(over))
    assert [one.reason_code for one in rank([offer()], tight, POLICY, CLOUDS, proof=WHOLE).excluded] == left_out


@pytest.mark.parametrize(("less_s", "left_out"), [(0, []), (1, ["too_short"])])
def test_an_offer_must_last_as_long_as_the_run(less_s: int, left_out: list[str]) -> None:
    wanted = job(gpu=ANY, work=RUNS[0])
    needed = Cases(wanted, POLICY, CLOUDS, whole=False).run(offer())
    assert needed is not None
    exact = offer(available_for_s=math.ceil(needed_s(needed)) - less_s)
    assert [one.reason_code for one in rank([exact], wanted, POLICY, CLOUDS, proof=WHOLE).excluded] == left_out


def test_one_offer_that_is_asked_for_by_its_id_is_found() -> None:
    found = rank([offer("1"), offer("2"), offer("3")], job(offer_id="vast:2"), POLICY, CLOUDS, proof=WHOLE)
    assert [one.offer.key for one in found.options] == ["2"]


def test_totals_that_differ_by_a_micro_dollar_are_told_apart_where_floats_would_not() -> None:
    """Eleven digits in front of the point and six behind it are more than a float of the sum can hold."""
    dear = [offer(str(n), price_usd_h=Decimal(999_999) - Decimal(n) / 10**9) for n in range(9)]
    found = rank(dear, job("100000"), Policy(), CLOUDS, proof=WHOLE)
    assert [one.offer.key for one in found.options] == ["8", "7", "6", "5", "4"]


@given(
    chances=st.lists(SHARES, min_size=1, max_size=9),
    write=st.decimals(0, 3, places=6),
    restart=st.decimals(0, 1, places=6),
    every=st.none() | st.decimals(Decimal("0.01"), 99, places=4),
    window=st.sampled_from([Decimal(24), Decimal(720)]),
)
def test_many_losses_at_once_are_the_same_as_one_by_one(
    chances: list[Decimal], write: Decimal, restart: Decimal, every: Decimal | None, window: Decimal
) -> None:
    how = Checkpointing(write, restart, every, window)
    rates = rates_per_h(np.array(chances, dtype=np.float64), window)
    times = (float(write), float(restart), math.nan if every is None else float(every))
    many = many_losses(rates, *(np.full(len(chances), time) for time in times))
    for place, chance in enumerate(chances):
        found = loss(chance, how)
        assert many.share[place] == pytest.approx(float(found.share), abs=1e-9, rel=1e-12)
        assert many.written_per_h[place] == pytest.approx(float(found.written_per_h), abs=1e-9, rel=1e-12)
        assert rates[place] == pytest.approx(float(losses_per_h(chance, window)), abs=1e-9)


def test_a_column_compares_exactly_at_its_limit() -> None:
    """All of these but the last are the same float."""
    said = [Decimal(24), Decimal("23.9999999999999999999"), Decimal("24.0000000000000000001"), None, Decimal(25)]
    memory = column([offer(memory_gb=one) for one in said], "memory_gb")
    assert memory.at_least(Decimal(24)).tolist() == [True, False, True, False, True]
    assert memory.at_most(Decimal(24)).tolist() == [True, True, False, False, False]


@given(MANY)
def test_hosts_of_one_kind_have_one_speed_and_few_kinds_are_made(market: list[Offer]) -> None:
    plain = kinds(market, ("gpu", "gpu_count"))
    finer = by_host(market, plain)
    known = [(one.gpu, one.gpu_count, host_speed(one)) for one in market]
    for at, number in enumerate(finer.tolist()):
        alike = [known[other] for other in np.flatnonzero(finer == number)]
        assert set(alike) == {known[at]}
    assert len(set(finer.tolist())) == len(set(known))


def test_a_market_that_reports_nothing_keeps_its_kinds() -> None:
    market = [offer("a"), offer("b", gpu="H100-SXM")]
    plain = kinds(market, ("gpu",))
    assert by_host(market, plain) is plain
