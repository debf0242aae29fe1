"""What a known run takes and costs on an offer: its hours, its interruptions, its total and its place."""

from __future__ import annotations

from dataclasses import replace
from decimal import ROUND_HALF_UP, Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.rules.jobs.facets.limits import SpotPolicy
from bot.rules.jobs.facets.work import workload
from bot.rules.jobs.job import JobRequest
from bot.rules.market.estimate import Estimate, estimate
from bot.rules.market.parts import COMPONENTS
from bot.rules.market.ranking import BEST_COST, BEST_STABILITY, FASTEST, Ranked, rank
from bot.rules.market.traffic import traffic
from bot.rules.policy.policy import Policy
from bot.rules.sizing.run_time import RunTime, checkpoint_gb, finished_run, run_time
from providers.contract import Offer
from providers.gpus.constraint import GpuConstraint
from tests.providers.read_offers import WHOLE
from tests.rules.builders import CLOUDS, OFFERS, SHARES, job, offer

POLICY = Policy()
WORDS = ("model=1B", "tokens=2B", "seq=2048", "batch=512", "precision=bf16")
ANY = GpuConstraint(count_min=1, count_max=8)
HOUR = Decimal(1)


def run(*words: str, gpu: str = "H100-SXM", count: int = 8) -> RunTime:
    return run_time(workload(words or WORDS), gpu, count, HOUR)


def wanted(*words: str, **changes: Any) -> JobRequest:
    return job("1", gpu=ANY, work=words or WORDS, spot=SpotPolicy.ANY, **changes)


def h100(key: str = "1", **changes: Any) -> Offer:
    plain = {"gpu": "H100-SXM", "gpu_count": 8, "memory_gb": Decimal(80), "price_usd_h": Decimal(16)}
    return offer(key, **{**plain, **changes})


def costs(made_of: Offer, *words: str) -> Estimate:
    time = run(*words, gpu=made_of.gpu, count=made_of.gpu_count)
    return estimate(made_of, wanted(*words), POLICY, CLOUDS[made_of.cloud], time)


# ── the time ─────────────────────────────────────────────────────────────────────────────────────


def test_hours_are_tokens_over_tokens_per_second() -> None:
    found = run()
    assert found.known
    assert found.fits
    assert found.throughput is not None
    assert float(found.hours.median) == pytest.approx(2e9 / found.throughput.expected / 3600, rel=1e-6)
    assert found.hours.median < found.hours.expected < found.hours.worst
    assert found.unknown == ()


@pytest.mark.parametrize(
    ("words", "gpu", "said"),
    [
        (("model=1B",), "H100-SXM", "How many tokens"),
        (("tokens=2B",), "H100-SXM", "The model's size was not said"),
        (("model=unheard-of", "tokens=2B"), "H100-SXM", "The size of unheard-of is not known"),
        (WORDS, "X9000", "X9000 is not a GPU whose rates are known"),
    ],
)
def test_what_is_not_known_falls_back_to_hours_and_is_said(words: tuple[str, ...], gpu: str, said: str) -> None:
    found = run(*words, gpu=gpu)
    assert not found.known
    assert found.hours.median == found.hours.expected == found.hours.worst == HOUR
    assert any(said in sentence for sentence in found.unknown)
    assert not traffic(found, 120, POLICY).known
    sold = h100(gpu=gpu)
    told = estimate(sold, wanted(*words), POLICY, CLOUDS["vast"], found)
    assert (told.hours, told.best_hours, told.worst_hours) == (HOUR, None, None)
    assert told.unknown == found.unknown


def test_what_does_not_fit_has_no_time() -> None:
    found = run("model=70B", "tokens=1B", gpu="RTX4090", count=1)
    assert not found.fits
    assert (found.known, found.throughput) == (False, None)


def test_checkpoints_follow_from_the_weights_unless_they_are_said() -> None:
    assert checkpoint_gb(workload(("model=1B",))) == 14
    assert checkpoint_gb(workload(("model=1B", "type=lora"))) == Decimal("0.14")
    assert checkpoint_gb(workload(("model=1B", "type=serving"))) == 0
    assert checkpoint_gb(workload(("model=1B", "checkpoint-size=3GB"))) == 3
    assert checkpoint_gb(workload(("tokens=1B",))) == 0
    assert run("model=1B", "tokens=1B", "type=finetune", "dataset=5GB").fetched_gb == 7


# ── what is moved ────────────────────────────────────────────────────────────────────────────────


def test_checkpoints_and_data_move_at_the_bandwidth_of_the_offer() -> None:
    """14 GB are 0.311 h at 100 Mbit/s (45 GB an hour), and 200 GB are fetched in 0.444 h at 1 Gbit/s."""
    found = traffic(run("model=1B", "tokens=1B", "dataset=200GB"), 120, POLICY)
    slow = offer(upload_mbps=Decimal(100), download_mbps=Decimal(1000))
    how = found.checkpointing(slow)
    assert float(how.write_h) == pytest.approx(14 / 45)
    assert float(how.restart_h) == pytest.approx(120 / 3600 + 14 / 450)
    assert float(found.fetch_h(slow)) == pytest.approx(200 / 450)
    unsaid = found.checkpointing(offer(upload_mbps=Decimal(0), download_mbps=Decimal("NaN")))
    assert unsaid.write_h == 14 / (POLICY.checkpoint_write_gb_s * 3600)


def test_every_checkpoint_is_sent_and_the_time_to_fetch_is_billed() -> None:
    words = ("model=1B", "tokens=20B", "seq=2048", "batch=512", "checkpoint-every=15m", "dataset=100GB")
    sold = h100(egress_usd_gb=Decimal("0.01"), download_mbps=Decimal(1000), upload_mbps=Decimal(1000))
    found = costs(sold, *words)
    by_name = dict(zip(COMPONENTS, found.components, strict=True))
    checkpoints = run(*words).hours.expected / Decimal("0.25")
    assert float(by_name["transfer"].expected_usd) == pytest.approx(0.01 * (10 + 14 * float(checkpoints)), rel=1e-6)
    fetching_h = 100 / 450
    assert float(by_name["start-up"].expected_usd) == pytest.approx(16 * fetching_h, rel=1e-3)
    assert float(by_name["start-up"].worst_usd) == pytest.approx(16 * 2 * 1.1 * fetching_h, rel=1e-3)
    assert "Fetching weights and data takes about 13 min and is billed." in found.assumptions


def test_the_most_reliable_offer_is_the_one_that_its_run_is_least_likely_to_lose() -> None:
    """The slower GPU has the more reliable host, but it must last six times as long."""
    slow = h100("slow", gpu="RTX3090", memory_gb=Decimal(24), price_usd_h=Decimal(1), reliability=Decimal("0.97"))
    fast = h100("fast", reliability=Decimal("0.95"))
    found = ranked(slow, fast, words=("model=125M", "tokens=2B", "seq=2048", "batch=512"))
    (stable,) = [one for one in found.options if BEST_STABILITY in one.marks]
    assert stable.offer.key == "fast"


def test_a_longer_spot_rental_counts_more_of_its_loss() -> None:
    sold = offer(spot=True, price_usd_h=Decimal(1))
    day, week = (
        estimate(sold, job(hours, spot=SpotPolicy.YES), POLICY, CLOUDS["vast"]).components[-1]
        for hours in ("24", "168")
    )
    # Within a day 1 % of the host and 15 % of the spot market; half of the hours are repeated on average.
    assert day.expected_usd == Decimal("1.920000")
    assert float(week.expected_usd) == pytest.approx(168 * (1 - 0.84**7) / 2, rel=1e-6)


# ── the cost ─────────────────────────────────────────────────────────────────────────────────────


def test_every_component_by_hand() -> None:
    sold = h100(storage_usd_h=Decimal("0.10"), egress_usd_gb=Decimal("0.01"), reliability=Decimal(1))
    found, hours = costs(sold), run().hours
    by_name = dict(zip(COMPONENTS, found.components, strict=True))
    rate = Decimal("15.9")
    micro = Decimal("0.000001")
    assert by_name["compute"].expected_usd == (rate * hours.expected).quantize(micro, ROUND_HALF_UP)
    assert by_name["compute"].worst_usd == (rate * hours.worst * Decimal("1.10")).quantize(micro, ROUND_HALF_UP)
    store = 28 * Decimal("0.023") * hours.expected / 730
    stored_h = hours.expected + Decimal(CLOUDS["vast"].boot_expected_s) / 3600
    assert by_name["storage"].expected_usd == (Decimal("0.10") * stored_h + store).quantize(micro, ROUND_HALF_UP)
    assert by_name["transfer"].expected_usd == Decimal("0.24")
    assert by_name["interruptions"].worst_usd == 0
    assert found.best_hours is not None
    assert found.worst_hours is not None
    assert found.best_hours < hours.expected < found.hours < found.worst_hours
    assert found.tokens_per_s is not None
    assert found.tokens_per_s[1] < found.tokens_per_s[0] < found.tokens_per_s[2]
    assert found.fit.startswith("Fits")


def test_the_assumptions_say_how_often_it_is_interrupted() -> None:
    said = " ".join(costs(h100(spot=True)).assumptions)
    assert "interruptions expected from a reported reliability of 99.0% within 24 hours; a checkpoint every" in said
    serving = " ".join(costs(h100(), "model=1B", "tokens=1B", "type=serving").assumptions)
    assert "each costs a restart" in serving


WORKS = st.sampled_from([WORDS, ("model=7B", "tokens=300M", "type=lora"), ("model=1B", "tokens=1B", "type=batch")])
REAL = st.builds(
    lambda one, gpu: replace(one, gpu=gpu, memory_gb=Decimal(80)),
    OFFERS,
    st.sampled_from(["H100-SXM", "A100-SXM-80GB", "RTX4090", "X9000"]),
)


@given(sold=REAL, words=WORKS)
def test_the_most_is_never_below_what_is_expected_and_that_not_below_the_range(
    sold: Offer, words: tuple[str, ...]
) -> None:
    found = costs(sold, *words)
    assert found.worst_usd >= found.expected_usd >= found.best_usd > 0
    for part in found.components:
        assert part.worst_usd >= part.expected_usd >= 0
    assert found.expected_usd == sum(part.expected_usd for part in found.components)
    if found.outlook is not None:
        assert found.outlook.usd_low <= found.outlook.usd_high <= found.worst_usd
        assert found.worst_hours is not None
        assert found.worst_hours >= found.hours


@given(sold=REAL, counts=st.tuples(st.integers(1, 10**11), st.integers(1, 10**11)))
def test_more_tokens_never_cost_less(sold: Offer, counts: tuple[int, int]) -> None:
    fewer, more = (costs(sold, "model=1B", "seq=2048", "batch=64", f"tokens={count}") for count in sorted(counts))
    assert sold.price_usd_h is not None
    # Six parts are rounded to micro-dollars, and the hours of a part that they are made of to millionths before.
    slack = Decimal("0.000006") * (1 + sold.price_usd_h)
    assert more.best_usd >= fewer.best_usd - slack
    assert more.expected_usd >= fewer.expected_usd - slack
    assert more.worst_usd >= fewer.worst_usd - slack


# ── the order ────────────────────────────────────────────────────────────────────────────────────


def ranked(*offers: Offer, words: tuple[str, ...] = WORDS, **changes: Any) -> Ranked:
    options = {key: changes.pop(key) for key in ("top", "whole", "policy") if key in changes}
    return rank(offers, wanted(*words, **changes), options.pop("policy", POLICY), CLOUDS, **options, proof=WHOLE)


def keys(found: Ranked) -> list[str]:
    return [option.offer.key for option in found.options]


def test_the_faster_gpu_wins_where_its_hour_costs_more() -> None:
    slow = h100("slow", gpu="A100-SXM-80GB", price_usd_h=Decimal(12))
    found = ranked(slow, h100("fast"))
    assert keys(found) == ["fast", "slow"]
    assert found.options[0].marks[0] == BEST_COST
    assert FASTEST in found.options[0].marks
    assert "fastest" in found.options[0].why


def test_what_does_not_fit_is_left_out_and_what_is_too_short_too() -> None:
    found = ranked(offer(), h100(available_for_s=60, ram_gb=Decimal(1400)), words=("model=70B", "tokens=10B"))
    assert [one.reason_code for one in found.excluded] == ["vram", "too_short"]


def test_a_missed_goal_is_flagged_and_stands_below_and_the_unknown_below_that() -> None:
    cheap = h100("late", gpu="A100-SXM-80GB", price_usd_h=Decimal(1))
    unknown = h100("unknown", gpu="X9000", compute_capability=Decimal("9.0"), price_usd_h=Decimal("0.01"))
    words = (*WORDS, f"goal={int(run().hours.expected * 60) + 10}m")
    found = ranked(unknown, cheap, h100("in time", price_usd_h=Decimal(90)), words=words)
    assert keys(found) == ["in time", "late", "unknown"]
    assert "It misses the goal by" in found.options[1].why
    assert "X9000 is not a GPU whose rates are known" in found.options[2].why
    assert found.options[1].estimate.late_hours > 0


def test_the_fastest_is_shown_however_far_down_it_ranks_and_only_within_the_budget() -> None:
    slow = [h100(str(n), gpu="A100-SXM-80GB", price_usd_h=Decimal(10 + n), reliability=Decimal(1)) for n in range(9)]
    fast = h100("fast", price_usd_h=Decimal(90))
    found = ranked(*slow, fast)
    assert keys(found) == ["0", "1", "2", "3", "fast"]
    assert (found.options[-1].rank, found.options[-1].marks) == (5, (FASTEST,))
    assert found.options[-1].why.startswith("Fastest: $")
    limit = found.options[-1].estimate.expected_usd - 1
    assert "fast" not in keys(ranked(*slow, fast, budget_cap_usd=limit))
    stable = ranked(*[replace(one, reliability=Decimal("0.9")) for one in slow], fast)
    assert stable.options[-1].why.startswith("Most reliable and fastest: $")


def test_a_spot_price_that_does_not_pay_for_its_interruptions_loses_to_on_demand() -> None:
    words = ("model=7B", "tokens=2B", "checkpoint-size=900GB")
    firm = h100("firm", price_usd_h=Decimal("16.00"))
    assert keys(ranked(firm, h100("spot", spot=True, price_usd_h=Decimal("15.90")), words=words)) == ["firm", "spot"]
    assert keys(ranked(firm, h100("spot", spot=True, price_usd_h=Decimal(8)), words=words)) == ["spot", "firm"]


@given(discount=st.decimals(0, "0.5", places=3), chance=SHARES)
def test_spot_wins_exactly_where_its_total_with_the_risk_is_lower(discount: Decimal, chance: Decimal) -> None:
    policy = Policy(spot_interruption=chance)
    firm, spot = h100("firm"), h100("spot", spot=True, price_usd_h=Decimal(16) * (1 - discount))
    found = ranked(firm, spot, policy=policy)
    totals = {one.offer.key: one.estimate.expected_usd + one.risk_usd for one in found.options}
    assert keys(found)[0] == ("spot" if totals["spot"] < totals["firm"] else "firm")
    if not discount and chance:
        assert keys(found)[0] == "firm"


def test_what_is_rented_may_last_all_of_its_hours() -> None:
    short = ranked(h100(), whole=True).options[0].estimate
    long = (
        rank([h100()], replace(wanted(), hours=Decimal(50)), POLICY, CLOUDS, whole=True, proof=WHOLE)
        .options[0]
        .estimate
    )
    assert long.worst_usd >= Decimal(16) * Decimal("1.1") * 50
    assert long.expected_usd == short.expected_usd
    tight = replace(wanted(), hours=Decimal("0.1"))
    late = rank(
        [h100("1"), h100("2", gpu="X9000", compute_capability=Decimal("9.0"))],
        tight,
        POLICY,
        CLOUDS,
        whole=True,
        proof=WHOLE,
    )
    assert keys(late) == ["1", "2"]
    assert late.options[0].estimate.late_hours == late.options[0].estimate.hours - Decimal("0.1")


MARKET = st.lists(REAL, min_size=1, max_size=8, unique_by=lambda one: one.id)


@given(market=MARKET, cut=st.decimals(min_value="0.1", max_value="0.999", places=3), data=st.data())
def test_a_lower_price_never_ranks_lower(market: list[Offer], cut: Decimal, data: st.DataObject) -> None:
    chosen = data.draw(st.sampled_from(market))
    assert chosen.price_usd_h is not None
    storage = min(chosen.storage_usd_h, chosen.price_usd_h)
    cheaper = replace(chosen, price_usd_h=storage + (chosen.price_usd_h - storage) * cut, storage_usd_h=storage)
    if cheaper.price_usd_h == 0:
        return
    places = [
        {one.offer.id: one.rank for one in ranked(*offers, top=99).options}
        for offers in (market, [cheaper if one is chosen else one for one in market])
    ]
    assert places[1].get(chosen.id, 0) <= places[0].get(chosen.id, 0)


@given(market=MARKET)
def test_options_stand_by_tier_and_total(market: list[Offer]) -> None:
    found = ranked(*market, top=99)
    order = [
        (bool(one.estimate.unknown), one.estimate.late_hours > 0, one.estimate.expected_usd + one.risk_usd)
        for one in found.options
    ]
    assert order == sorted(order)


def test_what_a_run_made_is_kept_beside_what_the_rules_say() -> None:
    work = workload(WORDS)
    made = finished_run(work, "H100-SXM", 8, Decimal(12_300))
    assert (made.gpu, made.measured_tokens_s) == ("H100-SXM", 12_300)
    big = workload(("model=70B", *WORDS[1:]))
    for ran, gpu, count, rate, says in (
        (work, "H100-SXM", 8, Decimal(0), "above zero"),
        (work, "H100-SXM", 8, Decimal("NaN"), "above zero"),
        (work, "XYZ", 8, Decimal(1), "XYZ is not a GPU"),
        (big, "RTX4090", 1, Decimal(1), "Does not fit"),
        (work, "K80", 1, Decimal(1), "No peak rate of K80"),
    ):
        with pytest.raises(ValueError, match=says):
            finished_run(ran, gpu, count, rate)
