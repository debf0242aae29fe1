"""What runs differ in, as features of the fit."""

from __future__ import annotations

import pytest

from bot.rules.jobs.work_words import parse
from bot.rules.sizing.groups import Group
from bot.rules.sizing.throughput_features import features, group
from bot.rules.sizing.vram import fit
from bot.rules.sizing.workload import architecture
from providers.gpus.table import GPUS


def seen(line: str, gpu: str, count: int = 1, year: int = 2026) -> dict[str, float]:
    work = parse(line)
    shape = architecture(work)
    assert shape is not None
    return features(work, shape, GPUS[gpu], count, fit(work, GPUS[gpu], count).plan, year)


def grouped(line: str, gpu: str) -> Group:
    work = parse(line)
    shape = architecture(work)
    assert shape is not None
    return group(work, shape, GPUS[gpu])


def test_a_plain_run_has_only_what_all_have() -> None:
    assert seen("model=7B", "H100-SXM", 8) == {"any": 1.0}


@pytest.mark.parametrize(
    ("line", "gpu", "count", "names"),
    [
        ("model=7B precision=fp8", "B200", 8, {"fp8", "blackwell"}),
        ("model=7B type=lora", "A6000", 1, {"lora", "alone", "workstation"}),
        ("model=7B type=qlora", "RTX4090", 1, {"qlora", "alone", "workstation"}),
        ("model=7B", "MI300X", 8, {"amd"}),
        ("model=gpt2", "V100-16GB", 8, {"small", "older"}),
        ("model=qwen3-30b-a3b", "H100-SXM", 16, {"experts", "thin experts", "machines"}),
        ("type=serving model=7B precision=int4", "RTX4090", 1, {"int4"}),
        (
            "type=serving model=7B precision=int4",
            "H100-SXM",
            2,
            {"int4", "wide memory", "int4 on wide memory", "several"},
        ),
        ("type=serving model=7B precision=int8", "L4", 1, {"int8"}),
    ],
)
def test_runs_differ_in_what_a_user_can_know(line: str, gpu: str, count: int, names: set[str]) -> None:
    assert set(seen(line, gpu, count)) == {"any", *names}


def test_years_are_counted_back_from_now_and_not_extrapolated() -> None:
    years = [seen("model=7B", "H100-SXM", 8, year).get("year", 0.0) for year in (2020, 2023, 2024, 2025, 2030)]
    assert years == [-2, -2, -1, 0, 0]


@pytest.mark.parametrize(
    ("line", "gpu", "expected"),
    [
        ("model=7B", "A100-SXM-80GB", Group.DENSE),
        ("model=7B", "RTX3090", Group.NEW),
        ("model=7B", "B200", Group.NEW),
        ("model=30B-A3B", "H100-SXM", Group.EXPERTS),
        ("model=7B type=lora", "H100-SXM", Group.ADAPTERS),
        ("model=7B type=serving", "H100-SXM", Group.DECODING),
    ],
)
def test_runs_are_grouped_by_how_sure_estimates_are(line: str, gpu: str, expected: Group) -> None:
    assert grouped(line, gpu) is expected
