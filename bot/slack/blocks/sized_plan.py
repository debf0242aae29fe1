"""Build the answers about work: the model that a budget trains, and what the same work costs on every GPU."""

from __future__ import annotations

from bot.rules.market.model_for_budget import Sized
from bot.services.plans import sized_text, work_comparison
from bot.services.plans.planner import Planned
from bot.services.plans.work_comparison import ComparedWork
from bot.slack.blocks.elements import Block, Message, clip, code, context, safe, section, table

#: The most lines of a table that Slack takes, its head not counted.
ROWS_MAX = 99


def sized_plan(planned: Planned, sized: Sized, command: str) -> Message:
    """Show the answer, the table, and what it rests on."""
    answer = f"*{safe(sized_text.headline(sized))}*"
    small = " ".join(safe(one, 300) for one in (*sized_text.notes(sized), *planned.absent, *planned.skipped))
    if not sized.models or planned.best is None:
        return Message(clip(f"{answer} {small}", 3_900), (section(answer), *([context(small)] if small else [])))
    rows = [sized_text.cells(place, one) for place, one in enumerate(sized.models, 1)]
    words = f"{command} provision offer={planned.best.offer.id} {' '.join(planned.job.work)}"
    blocks = (
        section(answer),
        table([sized_text.HEAD, *rows], sized_text.RIGHT),
        context(small),
        context(f"Rent the first with {code(words, 400)}"),
    )
    return Message(clip(answer, 3_900), blocks)


def compared_work(compared: ComparedWork) -> Message:
    """Show what the same work costs on every GPU, and which cannot run it."""
    lead, sentences = f"*{safe(work_comparison.title(compared), 400)}*", work_comparison.sentences(compared)
    rows = [work_comparison.cells(one) for one in compared.found.rows[:ROWS_MAX]]
    unable = "\n".join(f"• {safe(one.gpu)}: {safe(one.reason, 300)}" for one in compared.found.unable)
    blocks: list[Block] = [section(f"{lead}\n{safe(sentences[0])}")]
    blocks += [table([work_comparison.HEAD, *rows], work_comparison.RIGHT)] if rows else []
    blocks += [section(clip(f"*Cannot run it*\n{unable}", 2_900))] if unable else []
    small = " ".join(safe(one, 300) for one in (*sentences[1:], *compared.ages))
    blocks += [context(small)] if small else []
    return Message(clip(f"{lead}: {safe(sentences[0])}", 3_900), tuple(blocks))
