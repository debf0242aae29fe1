"""The model that a budget trains: inside the money, the time and the memory, and never beaten by another size."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest

from bot.rules.grammar.parser import GrammarError, parse
from bot.rules.market.disk import disk_gb
from bot.rules.market.model_for_budget import SIZES, Sized, SizedModel, _Solver, disk_guess, model_for_budget, written
from bot.rules.market.own_history import NO_HISTORY, OwnHistory
from bot.rules.market.ranking import rank
from bot.rules.market.sizing_question import SizingQuestion
from bot.rules.policy.policy import Policy
from bot.rules.sizing.run_time import run_time
from bot.rules.sizing.scaling_law import LAW, compute_optimum
from bot.rules.sizing.throughput import FinishedRun
from bot.rules.sizing.workload import Workload
from providers.contract import Offer
from providers.gpus.table import GPUS
from tests.providers.read_offers import WHOLE
from tests.rules.builders import CLOUDS, offer

POLICY = Policy()
PRICES = {"RTX4090": "0.35", "H100-SXM": "2.10", "A100-SXM-80GB": "1.20", "H200": "3.20", "L40S": "0.80"}


def sold(gpu: str, count: int = 1, **changes: Any) -> Offer:
    said: dict[str, Any] = {
        "gpu": gpu,
        "gpu_count": count,
        "memory_gb": Decimal(GPUS[gpu].memory_gb),
        "price_usd_h": Decimal(PRICES.get(gpu, "1")) * count,
        "cuda_max": Decimal("12.8"),
        "ram_gb": Decimal(512),
        **changes,
    }
    return offer(f"{gpu}-{count}", **said)


MARKET = tuple(sold(gpu, count) for gpu in PRICES for count in (1, 2, 4, 8))


def asked(line: str) -> SizingQuestion:
    found = parse(line)
    assert not isinstance(found, GrammarError), found.message
    assert found.sizing is not None
    job = replace(found.sizing.job, disk_gb=disk_gb(disk_guess(found.sizing), POLICY))
    return replace(found.sizing, job=job)


def sized(line: str, offers: tuple[Offer, ...] = MARKET, runs: tuple[FinishedRun, ...] = ()) -> Sized:
    return model_for_budget(offers, asked(line), POLICY, CLOUDS, OwnHistory(runs))


def first(line: str, offers: tuple[Offer, ...] = MARKET) -> SizedModel:
    return sized(line, offers).models[0]


@pytest.mark.parametrize("budget", [5, 50, 500, 5000])
def test_the_money_is_spent_and_never_more(budget: int) -> None:
    found = first(f"plan budget=${budget}")
    assert Decimal(budget) * Decimal("0.97") < found.total_usd <= budget
    assert found.serving_usd == 0


@pytest.mark.parametrize("words", ["evaluation=40%", "dataset=1TB data=s3:us-east-1"])
def test_evaluation_and_the_store_of_the_data_take_their_part_of_the_money(words: str) -> None:
    found, plain = first(f"plan budget=$500 {words}"), first("plan budget=$500")
    assert Decimal(500) * Decimal("0.97") < found.total_usd <= 500
    assert found.loss > plain.loss


def test_size_and_tokens_are_near_what_the_law_asks_for() -> None:
    """Throughput depends on the size, so the balance is not exactly that of the closed form."""
    for one in sized("plan budget=$500").models:
        best = compute_optimum(6.0 * one.params * one.tokens)
        assert 0.5 < one.params / best.params < 2
        assert one.loss == LAW.loss(one.params, one.tokens)
        assert one.loss - best.loss < 0.01
        assert one.loss_low < one.loss < one.loss_high


def test_a_plan_of_the_words_is_the_same_run() -> None:
    one = first("plan budget=$500")
    words = [word for word in one.job.work if not word.startswith("type=")]
    found = parse(f"plan {one.option.offer.gpu_count}x{one.option.offer.gpu} {' '.join(words)}")
    assert not isinstance(found, GrammarError), found.message
    assert found.job is not None
    again = rank(MARKET, replace(found.job, disk_gb=one.job.disk_gb), POLICY, CLOUDS, proof=WHOLE).options[0]
    assert again.offer == one.option.offer
    assert again.estimate.expected_usd == one.option.estimate.expected_usd
    assert again.estimate.hours == one.option.estimate.hours


def test_no_other_size_has_a_lower_loss_on_the_same_offer() -> None:
    question = asked("plan budget=$500 by=48h")
    for sale in (sold("H100-SXM", 8), sold("RTX4090"), sold("A100-SXM-80GB", 2)):
        solver = _Solver((sale,), question, POLICY, CLOUDS["vast"], NO_HISTORY)
        assert solver.guess() is not None
        best = solver.best()
        assert best is not None
        others = [solver._at(place) for place in range(len(SIZES))]
        assert best.loss <= min(one.loss for one in others if one is not None) + 1e-3


def test_more_money_and_more_time_never_make_it_worse() -> None:
    by_money = [first(f"plan budget=${budget}").loss for budget in (5, 50, 500, 5000)]
    assert by_money == sorted(by_money, reverse=True)
    by_time = [first(f"plan budget=$500 by={hours}h").loss for hours in (2, 10, 50, 250)]
    assert by_time == sorted(by_time, reverse=True)


def test_the_goal_holds_and_more_gpus_reach_it() -> None:
    for one in sized("plan budget=$500 by=24h").models:
        assert one.option.estimate.hours <= 24
        assert not one.option.estimate.late_hours
    assert first("plan budget=$500 by=24h").option.offer.gpu_count == 8


def test_an_offer_that_ends_sooner_trains_for_less_time() -> None:
    (one,) = sized("plan budget=$500", (sold("H100-SXM", available_for_s=36_000),)).models
    assert one.option.estimate.hours <= 10


def test_no_run_is_longer_at_worst_than_may_be_requested() -> None:
    (one,) = sized("plan budget=$5000", (sold("RTX4090"),)).models
    assert one.option.estimate.worst_hours is not None
    assert one.option.estimate.worst_hours <= POLICY.max_hours_ever
    assert one.total_usd < 5000


def test_each_gpu_stands_once_and_the_least_loss_first() -> None:
    found = sized("plan budget=$500").models
    assert len({one.option.offer.gpu for one in found}) == len(found) == 5
    losses = [round(one.loss, 2) for one in found]
    assert losses == sorted(losses)
    only = sized("plan budget=$500 gpu=L40S").models
    assert {one.option.offer.gpu for one in only} == {"L40S"}


def test_data_that_end_are_the_limit_and_the_model_grows() -> None:
    plenty, few = first("plan budget=$500"), first("plan budget=$500 tokens=5B")
    assert few.tokens == 5e9
    assert few.params <= few.tokens
    assert few.params > plenty.params
    assert few.loss > plenty.loss
    assert first("plan budget=$500 tokens=9T").tokens == plenty.tokens


def test_serving_takes_its_part_of_the_money_and_makes_the_model_smaller() -> None:
    plain, aware = first("plan budget=$500"), first("plan budget=$500 served-tokens=1B")
    assert 0 < aware.serving_usd < 500
    assert aware.total_usd <= 500
    assert aware.params <= plain.params
    assert not any(word.startswith("served") for word in aware.job.work)
    nothing = sized("plan budget=$5 served-tokens=900T")
    assert nothing.models == ()


def test_a_model_fits_the_gpu_the_host_and_the_disk() -> None:
    small_host = sized("plan budget=$5000 by=400h", (sold("RTX4090", ram_gb=Decimal(8)),)).models
    large_host = sized("plan budget=$5000 by=400h", (sold("RTX4090"),)).models
    for (one,) in (small_host, large_host):
        fit = run_time(Workload(total_params=one.params, tokens=10**9), "RTX4090", 1, Decimal(1)).fit
        assert fit is not None
        assert fit.possible
        assert not fit.tight
    assert small_host[0].params <= large_host[0].params
    question = asked("plan budget=$500")
    tiny_disk = replace(question, job=replace(question.job, disk_gb=25))
    (one,) = model_for_budget((sold("H100-SXM"),), tiny_disk, POLICY, CLOUDS).models
    assert one.params < first("plan budget=$500", (sold("H100-SXM"),)).params


def test_too_little_money_for_a_minute_trains_nothing() -> None:
    assert sized("plan budget=$0.001").models == ()


def test_free_clouds_and_unknown_gpus_are_no_answer() -> None:
    free = offer("f", cloud="kaggle", gpu="T4", memory_gb=Decimal(16), price_usd_h=Decimal(0))
    strange = replace(sold("H100-SXM"), gpu="MTT-S4000", compute_capability=Decimal("9.0"))
    found = sized("plan budget=$500", (free, strange))
    assert found.models == ()
    assert sized("plan budget=$500", (free, sold("H100-SXM"))).models[0].option.offer.cloud == "vast"


def test_what_cannot_run_it_is_left_out_with_its_reason() -> None:
    found = sized("plan budget=$500", (sold("V100-32GB"), sold("H100-SXM")))
    assert [one.option.offer.gpu for one in found.models] == ["H100-SXM"]
    assert [one.count for one in found.excluded] == [1]


def test_own_runs_correct_the_answer() -> None:
    gpu = (sold("H100-SXM"),)
    slow = FinishedRun("H100-SXM", None, 20_000, 5_000)
    plain, corrected = sized("plan budget=$500", gpu).models, sized("plan budget=$500", gpu, (slow,) * 20).models
    assert corrected[0].loss > plain[0].loss + 0.05


@pytest.mark.parametrize(
    ("count", "text"),
    [(1_300_000_000, "1.3B"), (850_000_000, "850M"), (26_500_000_000, "26.5B"), (2 * 10**12, "2T"), (1500, "1.5k")],
)
def test_counts_are_written_as_they_are_read(count: int, text: str) -> None:
    assert written(count) == text
    assert written(7) == "7"
