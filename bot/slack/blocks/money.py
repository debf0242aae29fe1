"""`/gpu budget` and `/gpu costs`: what is spent and reserved, and what is left."""

from __future__ import annotations

from collections.abc import Sequence

from bot.blockkit import escape
from bot.rules.budget import Line, said
from bot.services.costs import Costs, shortened
from bot.slack.blocks.parts import Block, Message, bullets, clip, context, dollars, person, safe, section, when


def budget(lines: Sequence[Line]) -> Message:
    """The budgets that concern somebody."""
    if not lines:
        nothing = "No budget concerns you; the policy sets them under `budgets`."
        return Message(nothing, (section(nothing),))
    keys = dict.fromkeys(line.key for line in lines)
    told = [f"*{_whose(key)}*: " + "; ".join(escape(said(one)) for one in lines if one.key == key) for key in keys]
    blocks: list[Block] = [section(f":bank: *Budgets*\n{bullets(told)}")]
    hint = "What approvals may still spend counts as reserved. Days and months are counted in UTC."
    return Message(clip(" ".join(told), 3_900), (*blocks, context(hint)))


def _whose(key: str) -> str:
    kind, _, name = key.partition(":")
    return f"<@{name}>" if kind == "user" and name.isalnum() and name[:1] in "UW" else safe(key, 80)


def costs(found: Costs, *, everybody: bool) -> Message:
    """What was booked today and this month."""
    lead = "Everybody's costs" if everybody else "Your costs"
    total = f"*{lead}*: {dollars(found.today_usd)} today, {dollars(found.month_usd)} since {when(found.since)}."
    told = [total]
    for by, rows in found.groups.items():
        if by == "owner" and not everybody:
            continue
        parts = [f"{_name(by, name)} {dollars(amount)}" for name, amount in shortened(rows)]
        if parts:
            told.append(f"*By {by}*: {', '.join(parts)}")
    if found.finished.runs:
        told.append(f"*Finished*: {escape(found.finished.sentence)}")
    hint = "Booked hours; the running hour of each machine comes on top. `/gpu list` shows it."
    return Message(clip(" ".join(told), 3_900), (section(f":receipt: {bullets(told)}"), context(hint)))


def _name(by: str, name: str) -> str:
    return person(name) if by == "owner" and ":" in name else safe(name, 60) or "none"
