"""Build the answer to `/gpu plan budget=$500`: the model that the money trains, on each of a few GPUs."""

from __future__ import annotations

from bot.rules.market.model_for_budget import Sized
from bot.services.plans import sized_text
from bot.services.plans.planner import Planned
from bot.slack.blocks.elements import Message, clip, code, context, safe, section, table


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
