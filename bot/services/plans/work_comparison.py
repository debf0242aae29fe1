"""Compare the cost of the same work on every GPU for sale, and write the comparison for every client."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

from bot.rules.grammar.compare_words import PLAIN_TOKENS
from bot.rules.jobs.job import JobRequest
from bot.rules.market.disk import disk_gb
from bot.rules.market.model_for_budget import written
from bot.rules.market.work_comparison import WorkComparison, WorkCost, compare_work
from bot.rules.policy.policy import Policy
from bot.rules.sizing.throughput import say
from bot.rules.sizing.unsaid import assumed
from bot.rules.values.phrases import about_hours, rate, usd
from bot.rules.values.text import in_markdown
from bot.rules.values.text_table import TextReport, TextTable
from bot.services.market.answers import (
    CloudAnswer,
    absent,
    cloud_cell,
    completeness_of,
    nothing_found,
    without_key,
)
from bot.services.market.catalog import Catalog
from ledger.kernel import money
from ledger.kernel.clock import Clock

HEAD = ("GPU", "cloud", "$/run", "range", "$/1M tokens", "time", "tokens/s", "$/h")
#: The columns of numbers.
RIGHT = (2, 4, 5, 6, 7)
UNABLE = ("GPU", "why not")


@dataclass(frozen=True, slots=True)
class ComparedWork:
    """A comparison of work with how each cloud answered and how old the prices are."""

    found: WorkComparison
    answers: tuple[CloudAnswer, ...]
    ages: tuple[str, ...]


async def compare_work_now(catalog: Catalog, clock: Clock, job: JobRequest, policy: Policy) -> ComparedWork:
    """Compare the work of a job on every GPU for sale now."""
    job = replace(job, disk_gb=disk_gb(job, policy))
    market = await catalog.market(job, job.disk_gb, policy=policy)
    own = await catalog.own_history()
    # Each GPU is ranked by itself; in a thread that delays nobody else.
    found = await asyncio.to_thread(compare_work, market.offers, job, policy, catalog.capabilities, own)
    ages = tuple(one.age(clock.now()) for one in market.answers if one.ok)
    return ComparedWork(found, market.answers, ages)


def title(compared: ComparedWork) -> str:
    """Say what is compared, in the words of the run."""
    return f"The same work on every GPU: {' '.join(compared.found.job.work)}"


def cells(one: WorkCost) -> tuple[str, ...]:
    """Return one line of the table, in the order of `HEAD`."""
    offer, costs = one.option.offer, one.option.estimate
    return (
        f"{offer.gpu_count}x {offer.gpu}{' spot' if offer.spot else ''}",
        cloud_cell(offer.cloud, offer.source),
        usd(costs.expected_usd),
        f"{usd(costs.best_usd)}–{usd(costs.worst_usd)}",
        per_million(one.per_million_usd),
        about_hours(costs.hours),
        "-" if costs.tokens_per_s is None else say(float(costs.tokens_per_s[0])),
        rate(offer.price_usd_h or Decimal(0)).removesuffix("/h"),
    )


def per_million(amount_usd: Decimal) -> str:
    """Write the dollars of a million tokens, which may be a part of a cent: `$0.0123`, `$1.20`."""
    return usd(amount_usd) if amount_usd >= 1 else f"${money.half_up(amount_usd, 4):f}"


def sentences(compared: ComparedWork) -> tuple[str, ...]:
    """Return which GPU does the work for least, and what was assumed."""
    rows, work = compared.found.rows, compared.found.work
    found: list[str] = []
    if rows:
        first = rows[0]
        gpus, cloud, total, _, each, *_ = cells(first)
        lead = "Cheapest" if completeness_of(compared.answers).proof else "Cheapest of the offers that were read"
        found.append(f"{lead}: {gpus} at {cloud}, {total} for {written(first.tokens)} tokens, {each} a million.")
    else:
        partly = "No GPU that was read can run this."
        found.append(nothing_found(compared.answers, "No GPU for sale here can run this now.", partly))
    if f"tokens={PLAIN_TOKENS}" in compared.found.job.work:
        found.append(f"{PLAIN_TOKENS} tokens are compared; tokens= says another number.")
    return (*found, *without_key(compared.answers), *absent(compared.answers), *assumed(work))


def report(compared: ComparedWork) -> TextReport:
    """Return the comparison as tables and sentences."""
    rows = tuple(map(cells, compared.found.rows))
    unable = tuple((one.gpu, one.reason) for one in compared.found.unable)
    tables = [TextTable(head=HEAD, rows=rows)] if rows else []
    tables += [TextTable(title="Cannot run it", head=UNABLE, rows=unable)] if unable else []
    return TextReport(lead=title(compared), tables=tuple(tables), sentences=sentences(compared))


def markdown(compared: ComparedWork) -> str:
    """Write the comparison as a page."""
    return "\n".join(_lines(compared)).rstrip() + "\n"


def _lines(compared: ComparedWork) -> Iterator[str]:
    made = report(compared)
    yield f"# {in_markdown(made.lead)}"
    for table in made.tables:
        yield from ("", f"## {table.title}") if table.title else ()
        yield from ("", f"| {' | '.join(table.head)} |", f"|{'---|' * len(table.head)}")
        yield from (f"| {' | '.join(map(in_markdown, row))} |" for row in table.rows)
    yield from ("", *(f"- {in_markdown(sentence)}" for sentence in (*made.sentences, *compared.ages)))


def to_json(found: WorkComparison) -> dict[str, Any]:
    """Write every figure as plain JSON types; decimals are strings, so that nothing passes through a float."""
    return {
        "work": list(found.job.work),
        "gpus": [_row(one) for one in found.rows],
        "unable": [{"gpu": one.gpu, "reason": one.reason} for one in found.unable],
    }


def _row(one: WorkCost) -> dict[str, Any]:
    offer, costs = one.option.offer, one.option.estimate
    return {
        "offer_id": offer.id,
        "cloud": offer.cloud,
        "gpu": offer.gpu,
        "gpu_count": offer.gpu_count,
        "spot": offer.spot,
        "price_usd_h": f"{offer.price_usd_h or Decimal(0):f}",
        "hours": f"{costs.hours:f}",
        "best_usd": f"{costs.best_usd:f}",
        "expected_usd": f"{costs.expected_usd:f}",
        "worst_usd": f"{costs.worst_usd:f}",
        "per_million_tokens_usd": f"{money.amount(one.per_million_usd):f}",
        "tokens": one.tokens,
        "fit": costs.fit,
    }
