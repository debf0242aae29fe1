"""The gate against published facts: what cannot run is refused with its reason, and what ran is accepted."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from decimal import Decimal

import pytest

from bot.rules.market.disk import disk_gb
from bot.rules.market.ranking import Ranked, rank
from bot.rules.policy.policy import Policy
from bot.rules.viability.compatibility import capability
from bot.rules.viability.obstacles import IN_SHORT, SENTENCES, Obstacle
from ledger.kernel.job import GpuConstraint
from providers.gpus.table import GPUS
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
    return rank([sold], replace(wanted, disk_gb=disk_gb(wanted, POLICY)), POLICY, CLOUDS)


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
