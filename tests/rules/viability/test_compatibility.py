"""The gate against published facts: what cannot run is refused with its reason, and what ran is accepted."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest

from bot.rules.market.disk import disk_gb
from bot.rules.market.ranking import Ranked, rank
from bot.rules.policy.policy import Policy
from bot.rules.viability.compatibility import capability
from bot.rules.viability.obstacles import IN_SHORT, SENTENCES, Obstacle
from providers.gpus.constraint import GpuConstraint
from providers.gpus.table import GPUS
from tests.providers.read_offers import WHOLE
from tests.rules.builders import CLOUDS, job, offer
from tests.rules.viability.corpus import ACCEPTED, REFUSED, Row

POLICY = Policy(max_gpus=64)
AT_LEAST, EACH = 60, 8
#: The reasons that are counted together: the maker, the number format, the driver or the code, and the three memories.
KINDS = {
    "vendor": ("image_vendor", "image_unknown", "gpu_unknown"),
    "precision": ("precision", "quantized", "precision_training"),
    "cuda": ("image_cuda", "image"),
    "ram": ("ram",),
    "disk": ("disk",),
    "memory": ("vram",),
}


def judged(row: Row) -> Ranked:
    """Rank the one offer of a row for its job, with the disk that the job would be rented with."""
    known = GPUS.get(row.gpu)
    memory = Decimal(80 if known is None else known.memory_gb)
    sold = offer(gpu=row.gpu, gpu_count=row.count, memory_gb=memory, **{"ram_gb": Decimal(4000), **row.facts})
    wanted = job(gpu=GpuConstraint((), 1, 64), image=row.image, work=row.work)
    return rank([sold], replace(wanted, disk_gb=disk_gb(wanted, POLICY)), POLICY, CLOUDS, proof=WHOLE)


@pytest.mark.parametrize("row", REFUSED, ids=lambda row: f"{row.reason}-{row.count}x-{row.gpu}-{'-'.join(row.work)}")
def test_what_cannot_run_is_refused_with_its_reason(row: Row) -> None:
    assert [one.reason_code for one in judged(row).excluded] == [row.reason]


@pytest.mark.parametrize("row", ACCEPTED, ids=lambda row: f"{row.count}x-{row.gpu}-{'-'.join(row.work)}")
def test_what_ran_is_accepted(row: Row) -> None:
    found = judged(row)
    assert [one.sentence for one in found.excluded] == []
    assert found.answered == 1


def test_the_corpus_is_large_enough_and_every_row_has_its_source() -> None:
    found = Counter(row.reason for row in REFUSED)
    for kind, reasons in KINDS.items():
        assert sum(found[reason] for reason in reasons) >= EACH, kind
    assert len(REFUSED) >= AT_LEAST
    assert len(ACCEPTED) >= AT_LEAST
    assert all("." in row.source or "llm-foundry" in row.source or row.gpu == "X9000" for row in (*REFUSED, *ACCEPTED))
    assert len({(row.count, row.gpu, row.image, row.work) for row in ACCEPTED}) == len(ACCEPTED)


def test_every_obstacle_has_its_sentences() -> None:
    assert set(SENTENCES) == set(Obstacle)
    assert set(IN_SHORT) == set(Obstacle) - {Obstacle.VENDOR}


def test_what_a_cloud_reports_of_a_gpu_counts_before_the_table() -> None:
    assert capability(offer(compute_capability=Decimal("9.0"))) == Decimal("9.0")
    assert capability(offer(compute_capability=Decimal("NaN"))) == Decimal("8.9")
    assert capability(offer(gpu="X9000")) is None


@pytest.mark.parametrize(
    ("change", "image", "work", "code"),
    [
        # An image that says nothing runs on a GPU that nobody knows, until the run needs to know it.
        ({"gpu": "X9000"}, "own/image:1", (), None),
        ({"gpu": "X9000"}, "own/image:1", ("model=1B", "tokens=1M"), "gpu_unknown"),
        ({"gpu": "X9000"}, "own/image:1", ("model=1B", "tokens=1M", "precision=fp32"), None),
        ({"gpu": "P40"}, "own/image:1", ("model=125M", "tokens=1M", "precision=fp32"), None),
        ({"gpu": "MI100"}, "rocm/pytorch:latest", ("model=125M", "tokens=1M", "precision=fp32"), None),
        # The size is not known, so nothing is said about the host's memory.
        ({"ram_gb": Decimal(1)}, "own/image:1", ("model=ours", "tokens=1M"), None),
    ],
)
def test_what_is_unknown_is_refused_where_something_must_be_known(
    change: dict[str, Any], image: str, work: tuple[str, ...], code: str | None
) -> None:
    sold = offer(**change)
    found = rank([sold], job(gpu=GpuConstraint((), 1, 64), image=image, work=work), POLICY, CLOUDS, proof=WHOLE)
    assert [one.reason_code for one in found.excluded] == ([code] if code else [])


def test_the_policy_states_what_nobody_knows() -> None:
    stated = Policy(gpu_capabilities={"X9000": "8.9"}, image_vendor={"own/image:1": "amd"})
    wanted = job(gpu=GpuConstraint((), 1, 8), work=("model=1B", "type=serving", "precision=fp8"))
    assert rank([offer(gpu="X9000")], wanted, stated, CLOUDS, proof=WHOLE).answered == 1
    assert rank([offer(gpu="X9000")], wanted, POLICY, CLOUDS, proof=WHOLE).answered == 0
    amd = offer(gpu="MI300X", memory_gb=Decimal(192))
    wanted = replace(wanted, image="own/image:1")
    assert rank([amd], wanted, stated, CLOUDS, proof=WHOLE).answered == 1
    assert rank([amd], wanted, POLICY, CLOUDS, proof=WHOLE).answered == 0
    assert [one.reason_code for one in rank([offer()], wanted, stated, CLOUDS, proof=WHOLE).excluded] == [
        "image_vendor"
    ]
