"""Build the answer to `/gpu plan`: memory, time and cost on every offer. Planning rents nothing."""

from __future__ import annotations

from bot.rules.market.ranking import RankedOption
from bot.rules.values.phrases import short_hours
from bot.services.plans.planner import Planned
from bot.services.plans.text import HEAD, RIGHT, cells, title
from bot.slack.blocks.elements import Block, Message, clip, code, context, safe, section, table


def plan(planned: Planned, command: str) -> Message:
    """Show the same table as every other interface, then reasons, assumptions and unknowns."""
    options = planned.ranked.options
    lead = f"*Plan for {safe(title(planned))}*"
    absent = [f":warning: {safe(sentence)}" for sentence in planned.absent]
    excluded = [safe(one.sentence) for one in planned.ranked.excluded]
    small: list[Block] = [context(" ".join([*absent, *excluded][:12]))] if absent or excluded else []
    small += [context(" ".join(safe(one) for one in planned.unknown))] if planned.unknown else []
    if planned.ages:
        small.append(context(" · ".join(safe(age) for age in planned.ages)))
    if planned.best is None:
        openings = [safe(one.sentence, 400) for one in planned.relaxations[:3]]
        text = " ".join([f"{lead}: no offer fits now.", *openings])
        return Message(clip(" ".join([text, *absent, *excluded]), 3_900), (section(text), *small))
    rows = [cells(one) for one in options]
    why = "\n".join(f"*#{one.rank}* {safe(one.why, 400)}" for one in options[:5])
    taken = (*planned.assumed, *planned.best.estimate.assumptions)
    fit = planned.best.estimate.fit
    blocks = [section(lead), table([HEAD, *rows], RIGHT), section(why)]
    blocks += [section(f"*Memory* {safe(fit, 400)}")] if fit else []
    blocks.append(context("Assumed: " + " ".join(safe(one, 300) for one in taken)))
    blocks += small
    blocks.append(context(f"Rent the first with {code(f'{command} provision {_words(planned.best, planned)}', 400)}"))
    spoken = "; ".join(f"#{row[0]} {row[1]}, {row[5]}, {row[7]} expected ({row[8]})" for row in rows)
    return Message(clip(f"{lead}: {safe(spoken, 3_000)}", 3_900), tuple(blocks))


def plan_sections(planned: Planned) -> tuple[Block, ...]:
    """Show the same plan in a dialog, which takes no tables: one section for each option."""
    message = plan(planned, "")
    if planned.best is None:
        return message.blocks
    lines = []
    for one in planned.ranked.options:
        number, offer_id, gpus, kind, price, time, _, expected, reach, marks = cells(one)
        facts = f"{gpus}, {kind}, {price}, {time}: *{expected}* expected ({reach})"
        marked = f" _{safe(marks)}_" if one.marks else ""
        lines.append(section(f"*#{number}* {code(offer_id)} {safe(facts)}{marked}\n{safe(one.why, 400)}"))
    left = [block for block in message.blocks[1:] if block["type"] != "table"]
    return (message.blocks[0], *lines, *left[1:-1])


def _words(best: RankedOption, planned: Planned) -> str:
    """Return what to type after `provision`: the offer, and the run or, where its time is unknown, the hours."""
    known = best.estimate.worst_hours is not None
    return f"offer={best.offer.id} {' '.join(planned.job.work) if known else short_hours(planned.job.hours)}"
