"""Build the answer to `/gpu inventory`: what is for sale now, with the ids that `offer=ID` takes."""

from __future__ import annotations

from bot.rules.market.ranking import RankedOption
from bot.rules.values.phrases import hours, rate, short_hours
from bot.services.market.catalog import Inventory, absent
from bot.slack.blocks import job as job_words
from bot.slack.blocks.elements import Block, Message, clip, code, context, dollars, safe, section
from bot.slack.blocks.offers import OfferLine, left_out, offers_table, reasons, spoken
from ledger.kernel.job import JobRequest


def inventory(found: Inventory, job: JobRequest, command: str) -> Message:
    """Show ranked offers with their ids. Showing them reserves nothing."""
    lines = [_line(option) for option in found.ranked.options]
    silent = absent(found.answers)
    excluded = [one.sentence for one in found.ranked.excluded]
    title = f"*{safe(job_words.gpus(job.gpu))}*, totals for {hours(job.hours)}"
    notes = left_out(excluded, silent)
    more: list[Block] = [notes] if notes is not None else []
    more += [context(" · ".join(safe(age) for age in found.ages))] if found.ages else []
    if not lines:
        said = f"{title}: no offer fits now."
        text = " ".join(safe(sentence) for sentence in (*silent, *excluded))
        return Message(clip(f"{said} {text}", 3_900), (section(said), *more))
    ids = "\n".join(
        f"#{one.rank} {code(one.offer.id)} {rate(one.price_usd_h)}, {dollars(one.expected_usd)}" for one in lines
    )
    example = f"{command} provision offer={lines[0].offer.id} {short_hours(job.hours)}"
    hint = f"{found.ranked.answered} offers found. Rent one with {code(example)}"
    why = reasons(lines)
    blocks = (section(title), offers_table(lines), *([why] if why else []), section(ids), *more, context(hint))
    return Message(clip(f"{title}: {'; '.join(spoken(one) for one in lines)}", 3_900), blocks)


def _line(option: RankedOption) -> OfferLine:
    estimate = option.estimate
    return OfferLine(
        option.rank,
        option.offer,
        option.offer.price_usd_h or estimate.expected_usd * 0,
        estimate.best_usd,
        estimate.expected_usd,
        estimate.worst_usd,
        option.marks,
        option.why,
    )
