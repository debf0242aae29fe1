"""Lighter methods are runs of their own: which there are, what they ask for, and that no table mixes them."""

from __future__ import annotations

from decimal import Decimal

import pytest

from bot.rules.market.alternatives import alternatives
from bot.rules.market.disk import disk_gb, disk_sentence
from bot.rules.market.ranking import BEST_COST, rank
from bot.rules.market.relaxation import relax
from bot.rules.policy.policy import Policy
from providers.gpus.constraint import GpuConstraint
from tests.providers.read_offers import WHOLE
from tests.rules.builders import CLOUDS, job, offer

POLICY = Policy()
ANY = GpuConstraint(count_min=1, count_max=8)


@pytest.mark.parametrize(
    ("work", "words"),
    [
        ((), []),
        (("model=7B", "tokens=1M"), []),
        (("model=7B", "type=finetune", "tokens=1M"), ["type=lora", "type=qlora"]),
        (("model=7B", "type=lora", "tokens=1M"), ["type=qlora"]),
        (("model=7B", "type=qlora", "tokens=1M"), []),
        (("model=70B", "type=serving"), ["precision=int8", "precision=int4"]),
        (("model=70B", "type=serving", "precision=bf16"), []),
    ],
)
def test_the_lighter_methods_of_a_run(work: tuple[str, ...], words: list[str]) -> None:
    found = list(alternatives(job(work=work), POLICY))
    assert [one.word for one in found] == words
    assert all(one.job.work[-1] == one.word for one in found)
    assert all("instead" in one.heading for one in found)


def test_a_lighter_method_has_a_disk_of_its_own_unless_one_was_asked_for() -> None:
    work = ("model=7B", "type=finetune", "tokens=1M")
    computed = job(work=work, disk_gb=disk_gb(job(work=work, disk_gb=0), POLICY))
    lora = next(alternatives(computed, POLICY)).job
    assert lora.disk_gb < computed.disk_gb == 230
    assert next(alternatives(job(work=work, disk_gb=900), POLICY)).job.disk_gb == 900


def test_a_table_holds_the_method_that_was_asked_for_alone() -> None:
    small = offer("small")
    large = offer("large", gpu="H100-SXM", gpu_count=8, memory_gb=Decimal(80), price_usd_h=Decimal(16))
    wanted = job(gpu=ANY, work=("model=7B", "type=finetune", "tokens=1M"))
    found = rank([small, large], wanted, POLICY, CLOUDS, proof=WHOLE)
    assert [one.offer.key for one in found.options] == ["large"]
    assert [one.reason_code for one in found.excluded] == ["ram"]
    lora = next(alternatives(wanted, POLICY)).job
    assert {one.offer.key for one in rank([small, large], lora, POLICY, CLOUDS, proof=WHOLE).options} == {
        "small",
        "large",
    }


def test_where_nothing_fits_a_lighter_method_or_another_format_is_advised() -> None:
    wanted = job(gpu=ANY, work=("model=7B", "type=finetune", "tokens=1M"))
    assert [one.instead for one in relax([offer()], wanted, POLICY, CLOUDS, WHOLE)] == ["type=lora", "type=qlora"]
    old = offer(gpu="V100-32GB", memory_gb=Decimal(32))
    serving = job(gpu=ANY, work=("model=7B", "type=serving", "tokens=1M"))
    assert [(one.word, one.instead, one.opens) for one in relax([old], serving, POLICY, CLOUDS, WHOLE)] == [
        ("precision", "precision=fp16", 1),
        ("precision", "precision=int4", 1),
    ]


def test_a_cheaper_offer_that_cannot_run_it_is_named() -> None:
    amd = offer("amd", gpu="MI300X", memory_gb=Decimal(192), price_usd_h=Decimal("0.10"))
    dear = offer("dear", gpu="MI300X", memory_gb=Decimal(192), price_usd_h=Decimal("0.90"))
    found = rank([amd, dear, offer()], job(gpu=ANY), POLICY, CLOUDS, proof=WHOLE)
    assert found.refused == "Cheapest per hour, but skipped: $0.100/h at vast. MI300X: the image needs CUDA."
    assert rank([dear, offer()], job(gpu=ANY), POLICY, CLOUDS, proof=WHOLE).refused == ""
    assert "$0.900/h" in rank([dear], job(gpu=ANY), POLICY, CLOUDS, proof=WHOLE).refused
    elsewhere = rank([amd], job(gpu=ANY, regions=("US",)), POLICY, CLOUDS, proof=WHOLE)
    assert elsewhere.refused == ""
    rocm = rank([offer()], job(gpu=ANY, image="rocm/pytorch:latest"), POLICY, CLOUDS, proof=WHOLE)
    assert rocm.refused.endswith("RTX4090: the image needs ROCm.")
    old = offer(gpu="V100-32GB", memory_gb=Decimal(32))
    serving = job(gpu=ANY, work=("model=7B", "type=serving", "tokens=1M"))
    assert rank([old], serving, POLICY, CLOUDS, proof=WHOLE).refused.endswith(
        "V100-32GB: it can't compute in this precision."
    )


def test_an_offer_with_hardly_any_memory_left_is_never_the_best() -> None:
    work = ("params=11.9B", "type=serving", "precision=bf16", "seq=512", "concurrency=1", "tokens=1M")
    tight = offer("tight", price_usd_h=Decimal("0.10"))
    roomy = offer("roomy", gpu="A6000", memory_gb=Decimal(48), price_usd_h=Decimal(2))
    found = rank([tight, roomy], job(gpu=ANY, work=work), POLICY, CLOUDS, proof=WHOLE)
    assert [one.offer.key for one in found.options] == ["roomy", "tight"]
    assert BEST_COST in found.options[0].marks
    assert found.options[1].marks == ()
    assert "Its memory is nearly full, so it may fail." in found.options[1].why
    (alone,) = rank([tight], job(gpu=ANY, work=work), POLICY, CLOUDS, proof=WHOLE).options
    assert alone.marks == ()
    assert alone.why.startswith("About $")


def test_a_plan_says_what_the_disk_is_for() -> None:
    assert disk_sentence(job()) == ""
    assert disk_sentence(job(work=("model=7B", "tokens=2B", "dataset=30GB"))) == (
        "The run needs 260 GB of disk, for the image (20), weights (14), data (30) and two checkpoints (196)."
    )
