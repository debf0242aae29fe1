"""Parsed words become the portable job request."""

from __future__ import annotations

from decimal import Decimal

from bot.rules.grammar.job import everything
from bot.rules.grammar.parser import ParsedCommand, parse
from bot.rules.jobs.facets.limits import SpotPolicy
from bot.rules.jobs.job import JobRequest
from bot.rules.policy.policy import Policy
from providers.gpus.constraint import GpuConstraint


def test_every_word_reaches_the_job() -> None:
    line = (
        "provision 2-4x4090 memory=20-30GB 90m disk=200 workload=MoE clouds=runpod,vast region=US,EU spot=any price=$2 "
        "max=$50 reliability=98% total=160GB verified=yes cuda=12.4 capability=sm_89 available=3d "
        'image=a/b:1 run="python t.py" model=7B tokens=3B checkpoint=hf://o/m offer=vast:9 '
        'for="fine-tune"'
    )
    command = parse(line)
    assert isinstance(command, ParsedCommand)
    assert command.job == JobRequest(
        gpu=GpuConstraint(("RTX4090",), 2, 4, Decimal(20), Decimal(30)),
        hours=Decimal("1.5"),
        disk_gb=200,
        workload="MoE",
        candidates=("runpod", "vast"),
        regions=("US", "EU"),
        spot=SpotPolicy.ANY,
        max_price_usd_h=Decimal(2),
        budget_cap_usd=Decimal(50),
        min_reliability=Decimal("0.98"),
        memory_gb_total_min=Decimal(160),
        verified_only=True,
        min_cuda=Decimal("12.4"),
        min_capability=Decimal("8.9"),
        min_available_s=3 * 86_400,
        image="a/b:1",
        run="python t.py",
        model="7B",
        tokens=3 * 10**9,
        checkpoint="hf://o/m",
        offer_id="vast:9",
        reason="fine-tune",
    )


def test_an_inventory_brings_its_own_hours() -> None:
    assert everything(Policy()) == JobRequest(GpuConstraint(), Decimal(1), disk_gb=Policy().disk_gb("training", None))
    for words, hours in (("4090", 1), ("4090 2h", 2)):
        command = parse(f"inventory {words}")
        assert isinstance(command, ParsedCommand)
        assert command.job is not None
        assert command.job.hours == hours


def test_gpus_named_in_several_words_are_all_meant() -> None:
    command = parse("inventory gpu=4090 gpu=3090 a100")
    assert isinstance(command, ParsedCommand)
    assert command.job is not None
    assert command.job.gpu.names[:2] == ("RTX4090", "RTX3090")
    assert len(command.job.gpu.names) > 2
