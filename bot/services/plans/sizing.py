"""Answer a plan that names a run, and a plan that names a budget: which model, on how many tokens, it trains."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from bot.rules.jobs.facets.work import workload_of
from bot.rules.jobs.job import JobRequest
from bot.rules.market.disk import disk_gb
from bot.rules.market.model_for_budget import disk_guess, model_for_budget
from bot.rules.market.ranking import Ranked, rank
from bot.rules.market.sizing_question import SizingQuestion
from bot.rules.policy.policy import Policy
from bot.services.market.catalog import Catalog
from bot.services.plans import planner
from bot.services.plans.planner import Planned
from ledger.kernel.clock import Clock


async def plan(catalog: Catalog, clock: Clock, wanted: JobRequest | SizingQuestion, policy: Policy) -> Planned:
    """Plan a job, or choose the model for a budget."""
    if isinstance(wanted, SizingQuestion):
        return await _sized(catalog, clock, wanted, policy)
    return await planner.plan(catalog, clock, wanted, policy)


async def _sized(catalog: Catalog, clock: Clock, question: SizingQuestion, policy: Policy) -> Planned:
    """Choose the models that a budget trains, and plan the first of them; no offers where it trains none."""
    job = replace(question.job, disk_gb=disk_gb(disk_guess(question), policy))
    question = replace(question, job=job)
    market = await catalog.market(job, job.disk_gb, policy=policy)
    able, own = catalog.capabilities, await catalog.own_history()
    paid = [one for one in market.offers if not able[one.cloud].free]
    # Hundreds of sizes are tried on all kinds of GPUs; in a thread that delays nobody else.
    sized = await asyncio.to_thread(model_for_budget, paid, question, policy, able, own)
    ranked = Ranked((), sized.excluded, sized.answered)
    if sized.models:
        job = sized.models[0].job
        plan = rank(paid, job, policy, able, proof=market.completeness.proof, own=own)
        ranked = replace(plan, excluded=sized.excluded, refused="")
    best = ranked.options[0] if ranked.options else None
    now = clock.now()
    return Planned(
        job=job,
        work=workload_of(job) if best is not None else None,
        ranked=ranked,
        answers=market.answers,
        ages=tuple(one.age(now) for one in market.answers if one.ok),
        relaxations=(),
        capabilities=able[best.offer.cloud] if best is not None else None,
        made_at=now,
        sized=sized,
    )
