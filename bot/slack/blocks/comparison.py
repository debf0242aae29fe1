"""Build the answer to `/gpu compare`: dollars per run and runs per budget, in the clouds and elsewhere."""

from __future__ import annotations

from bot.rules.plans.comparison_text import cells, columns, elsewhere
from bot.rules.values.phrases import hours, usd
from bot.services.plans.planner import Compared
from bot.slack.blocks.elements import Block, Message, clip, code, context, safe, section, table

#: The most lines of a table that Slack takes, its head not counted.
ROWS_MAX = 99


def comparison(compared: Compared) -> Message:
    """Show the table for the first budget; the page that the command line writes has the other ones."""
    found = compared.found
    question = found.question
    title = f"*One run of {hours(question.hours)}*, {question.buffer:.0%} buffer, budget {usd(question.budgets_usd[0])}"
    rows = [cells(row, 0, question) for row in found.clouds[:ROWS_MAX]]
    head = columns(question)
    blocks: list[Block] = [section(title)]
    if rows:
        blocks.append(table([head, *rows], range(1, len(head))))
    else:
        blocks.append(section("No cloud that is set up here has an offer with a usable price now."))
    beside = [_beside(elsewhere(row)) for row in found.elsewhere]
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
