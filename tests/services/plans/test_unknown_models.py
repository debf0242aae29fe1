"""Models that only the Hub knows: looked up for a plan, and kept in the request as words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from decimal import Decimal
from typing import Any

from bot.rules.jobs.job import JobRequest
from bot.rules.jobs.stored import job_of
from bot.services.market.catalog import Catalog
from bot.services.plans import planner
from bot.services.requests import submit
from bot.services.runtime.commands import Provision
from providers.gpus.constraint import GpuConstraint
from tests.support.world import ALICE, World

CONFIG = {
    "model_type": "llama", "hidden_size": 2048, "intermediate_size": 8192, "num_attention_heads": 32,
    "num_hidden_layers": 16, "num_key_value_heads": 8, "tie_word_embeddings": True, "vocab_size": 128256,
}  # fmt: skip
WORK = ("model=org/own-1b", "type=lora", "tokens=5M", "seq=1024", "batch=16")
JOB = JobRequest(GpuConstraint(("RTX4090",), 1, 1), Decimal(4), work=WORK)


class Hub:
    """Knows one model, and counts how often it is asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def config(self, name: str) -> Mapping[str, Any] | None:
        self.asked.append(name)
        return CONFIG if name == "org/own-1b" else None


def with_hub(w: World) -> Hub:
    hub, ctx = Hub(), w.ctx
    catalog = Catalog(ctx.providers, ctx.clock, ctx.timing.offers_timeout_s, read_model=hub.config)
    w.ctx = replace(ctx, catalog=catalog)
    return hub


async def test_a_plan_has_the_shape_that_the_makers_published(w: World) -> None:
    hub = with_hub(w)
    found = await planner.plan(w.ctx.catalog, w.ctx.clock, JOB, w.ctx.policy)
    assert found.unknown == ()
    assert found.best is not None
    assert "layers=16" in found.job.work
    known = replace(JOB, work=("model=llama-3.2-1b", *WORK[1:]))
    same = await planner.plan(w.ctx.catalog, w.ctx.clock, known, w.ctx.policy)
    assert same.best is not None
    assert found.best.estimate.worst_hours == same.best.estimate.worst_hours
    # What is known here, or was described, is not looked up.
    described = replace(JOB, work=(*WORK, "params=1.2B"))
    assert (await planner.plan(w.ctx.catalog, w.ctx.clock, described, w.ctx.policy)).unknown == ()
    assert hub.asked == ["org/own-1b"]


async def test_a_request_keeps_the_shape_and_a_model_that_nobody_knows_is_asked_for(w: World) -> None:
    with_hub(w)
    reply = await submit.provision(w.ctx, Provision("key-1", ALICE, "CGPU", JOB))
    assert reply.ok, reply.sentence
    request = (await w.books()).requests[0]
    assert "kv-heads=8" in job_of(request.job).work
    lost = replace(JOB, work=("model=org/else", *WORK[1:]))
    found = await planner.plan(w.ctx.catalog, w.ctx.clock, lost, w.ctx.policy)
    assert found.unknown[0].startswith("The size of org/else is not known here; write model=7B")
