"""Build the answers to `/gpu plan` and `/gpu compare`: memory, time and cost on every offer. Both rent nothing."""

from __future__ import annotations

from bot.rules.market.outlook import chances_said
from bot.rules.market.ranking import RankedOption
from bot.rules.plans import comparison_text
from bot.rules.values.phrases import FREE, hours, short_hours, usd
from bot.services.market.answers import refusals
from bot.services.plans.planner import Compared, LighterMethod, Planned
from bot.services.plans.text import HEAD, NARROW, RIGHT, between, cells, odds, speed, title
from bot.slack.blocks.elements import Block, Message, clip, code, context, safe, section, table
from bot.slack.blocks.sized_plan import ROWS_MAX, sized_plan


def plan(planned: Planned, command: str) -> Message:
    """Show the first columns of the table of every interface, then reasons with ids, assumptions and unknowns."""
    if planned.sized is not None:
        return sized_plan(planned, planned.sized, command)
    options = planned.ranked.options
    lead = f"*Plan for {safe(title(planned))}*"
    # Where nothing fits, the message itself says first which clouds did not answer.
    unknown = refusals(planned.answers) if planned.best is None else planned.absent
    refused = [f":warning: {safe(sentence)}" for sentence in unknown]
    excluded = [safe(one) for one in planned.skipped]
    small: list[Block] = [context(" ".join([*refused, *excluded][:12]))] if refused or excluded else []
    small += [context(" ".join(safe(one) for one in planned.unknown))] if planned.unknown else []
    small += [context("\n".join(map(_method, planned.methods)))] if planned.methods else []
    if planned.best is None:
        openings = [safe(one.sentence, 400) for one in planned.relaxations[:3]]
        text = " ".join([f"{lead}: {safe(planned.nothing)}", *openings])
        return Message(clip(" ".join([text, *refused, *excluded]), 3_900), (section(text), *small))
    rows = [cells(one)[:NARROW] for one in options]
    why = "\n".join(f"*#{one.rank}* {_reason(one)}" for one in options[:5])
    taken = (*planned.assumed, *planned.best.estimate.assumptions)
    fit = planned.best.estimate.fit
    blocks = [section(lead), table([HEAD[:NARROW], *rows], RIGHT), section(why)]
    sure = " ".join(filter(None, (odds(planned.best), speed(planned.best))))
    blocks += [section(safe(sure, 600))] if sure else []
    blocks += [section(f"*Memory* {safe(fit, 400)}")] if fit else []
    blocks.append(context("Assumed: " + " ".join(safe(one, 300) for one in taken)))
    blocks += small
    blocks.append(context(f"Rent the first with {code(f'{command} provision {_words(planned.best, planned)}', 400)}"))
    spoken = "; ".join(f"#{row[0]} {row[1]} at {row[2]}, {row[4]}, about {row[3]}" for row in rows)
    return Message(clip(f"{lead}: {safe(spoken, 3_000)}", 3_900), tuple(blocks))


def plan_sections(planned: Planned) -> tuple[Block, ...]:
    """Show the same plan in a dialog, which takes no tables: one section for each option."""
    message = plan(planned, "")
    if planned.best is None:
        return message.blocks
    lines = []
    for one in planned.ranked.options:
        rank, gpus, cloud, total, time, price = cells(one)[:NARROW]
        hourly = price if price in ("-", FREE) else f"{price}/h"
        facts = f"*#{rank}* {safe(gpus)} at {safe(cloud)}: *{total}*, {time}, {hourly}"
        lines.append(section(f"{facts}\n{_reason(one)}"))
    left = [block for block in message.blocks[1:] if block["type"] != "table"]
    return (message.blocks[0], *lines, *left[1:-1])


def _method(method: LighterMethod) -> str:
    """Say what a lighter method costs at its best offer, and the word that asks for it."""
    best = method.options[0]
    gpus, cloud, total, time = cells(best)[1:5]
    return f"{safe(method.heading)} ({code(method.word)}): {safe(gpus)} at {safe(cloud)}, about {total}, {time}."


def _reason(one: RankedOption) -> str:
    """Say why an option has its rank, what it may cost, and the id that requests it."""
    chances = "" if one.estimate.outlook is None else chances_said(one.estimate.outlook)
    return f"{safe(one.why, 400)} {between(one)} · {code(one.offer.id)}{f' · {safe(chances)}' if chances else ''}"


def _words(best: RankedOption, planned: Planned) -> str:
    """Return what to type after `provision`: the offer, and the run or, where its time is unknown, the hours."""
    known = best.estimate.worst_hours is not None
    return f"offer={best.offer.id} {' '.join(planned.job.work) if known else short_hours(planned.job.hours)}"


def comparison(compared: Compared) -> Message:
    """Show the table for the first budget; the page that the command line writes has the other ones."""
    found = compared.found
    question = found.question
    title = f"*One run of {hours(question.hours)}*, {question.buffer:.0%} buffer, budget {usd(question.budgets_usd[0])}"
    rows = [comparison_text.cells(row, 0, question) for row in found.clouds[:ROWS_MAX]]
    head = comparison_text.columns(question)
    blocks: list[Block] = [section(title)]
    if rows:
        blocks.append(table([head, *rows], range(1, len(head))))
    else:
        blocks.append(section("No cloud that is set up here has an offer with a usable price now."))
    beside = [_beside(comparison_text.elsewhere(row)) for row in found.elsewhere]
    blocks.append(section("\n".join(["*Environments that cannot be rented here*", *beside])))
    notes = [f":warning: {safe(one)}" for one in compared.absent] + [
        safe(one) for one in (*found.notes, *compared.ages)
    ]
    blocks += [context(" · ".join(notes))] if notes else []
    blocks.append(context(f"The whole page with sources: {code('gpu-shopper compare --markdown')}"))
    spoken = "; ".join(f"{row[0]} spot {row[2]} ({row[3]} runs), on-demand {row[4]} ({row[5]} runs)" for row in rows)
    return Message(clip(safe(f"{title.replace('*', '')}: {spoken or 'no usable price'}", 3_900), 3_900), tuple(blocks))


def _beside(row: tuple[str, ...]) -> str:
    gpu, memory, name, hourly, run, runs, day = row
    paid = f"{hourly}, {run} a run, {runs} runs" if hourly != "-" else "no dollars"
    return f"• {safe(name)}: {safe(gpu)} {memory}, {safe(paid)} ({day})"
