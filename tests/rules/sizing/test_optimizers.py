"""Optimizers: what each keeps per weight, and what that changes in a run's memory, host and checkpoint."""

from __future__ import annotations

from decimal import Decimal
from itertools import pairwise

import pytest

from bot.rules.jobs.work_words import parse
from bot.rules.sizing.optimizers import Optimizer, state_bytes
from bot.rules.sizing.run_time import checkpoint_gb
from bot.rules.sizing.training import offload_s
from bot.rules.sizing.vram import FitVerdict, MemoryLayout, fit, parts
from bot.rules.sizing.workload import Sharding, WorkKind, architecture
from bot.rules.values.bad_word import BadWord
from bot.rules.viability.host import host_gb
from providers.gpus.table import GPUS


@pytest.mark.parametrize(
    ("optimizer", "each"),
    [
        (Optimizer.ADAMW, 12),
        (Optimizer.ADAMW_8BIT, 6),  # arXiv:2110.02861: 2 bytes of state in place of 8.
        (Optimizer.ADAFACTOR, 4),
        (Optimizer.MUON, 8),
        (Optimizer.GALORE, 7),  # arXiv:2403.03507, table 1: m n + m r + 2 n r against 3 m n of Adam, r = m / 4.
        (Optimizer.LION, 8),
        (Optimizer.SGD, 8),
    ],
)
def test_each_optimizer_keeps_its_bytes_and_a_copy_of_the_weight(optimizer: Optimizer, each: int) -> None:
    assert state_bytes(optimizer, 1000.0) == each * 1000
    apart = {Optimizer.MUON, Optimizer.GALORE}
    # Embeddings and the output head stay with AdamW where an optimizer is made for matrices.
    assert state_bytes(optimizer, 1000.0, 100.0) == each * 900 + (12 if optimizer in apart else each) * 100


def test_a_leaner_optimizer_needs_less_of_everything() -> None:
    names = ("adamw", "muon", "galore", "adamw-8bit", "adafactor")
    works = [parse(f"model=llama-2-7b type=finetune seq=512 batch=8 optimizer={name}") for name in names]
    shape = architecture(works[0])
    assert shape is not None
    plan = MemoryLayout(WorkKind.FINETUNE, Sharding.ZERO2)
    moved = MemoryLayout(WorkKind.FINETUNE, offload=True)
    for more, less in pairwise(works):
        of = [{part.name: part.gb for part in parts(work, shape, 8, plan)} for work in (more, less)]
        assert of[0]["optimizer"] > of[1]["optimizer"]
        assert {name: gb for name, gb in of[0].items() if name != "optimizer"} == {
            name: gb for name, gb in of[1].items() if name != "optimizer"
        }
        assert checkpoint_gb(more) > checkpoint_gb(less)
        assert host_gb(more, moved, 1) > host_gb(less, moved, 1)
        assert offload_s(more, shape, 1, moved) > offload_s(less, shape, 1, moved)
    # 2 bytes of weights and 12 of AdamW; 6 of it with 8 bits.
    assert [round(checkpoint_gb(works[n]) / Decimal(shape.total_params) * 10**9, 3) for n in (0, 3)] == [14, 8]


def test_an_optimizer_decides_whether_a_run_fits() -> None:
    gpu = GPUS["A100-SXM-80GB"]
    line = "model=llama-2-7b type=finetune seq=512 batch=8 micro-batch=1 checkpointing=yes"
    assert fit(parse(line), gpu, 1).verdict is FitVerdict.FITS_WITH  # The optimizer moves into the host's memory.
    lean = fit(parse(f"{line} optimizer=adamw-8bit"), gpu, 1)
    assert (lean.verdict, lean.plan.offload) == (FitVerdict.FITS, False)


def test_adapters_have_an_optimizer_of_their_own_and_an_unknown_name_is_refused() -> None:
    usual, lean = (
        fit(parse(f"model=7B type=lora seq=512 batch=8 optimizer={name}"), GPUS["RTX4090"], 1)
        for name in ("adam", "adam8bit")
    )
    of = [next(part.gb for part in one.parts if part.name == "adapters") for one in (usual, lean)]
    assert of[0] / of[1] == pytest.approx(16 / 10)
    with pytest.raises(BadWord, match="not an optimizer that is known here; write optimizer=adamw-8bit"):
        parse("model=7B optimizer=adamm2")
