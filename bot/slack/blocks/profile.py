"""Build the answer to `/gpu profile CLOUD`: how billing stops there and what to watch out for."""

from __future__ import annotations

import re

from bot.slack.blocks.elements import Message, clip, code, context, safe, section
from providers.profiles.model import TEARDOWN, ProfileError, load

#: With the two headings, the line above and the one below, the answer has ten lines.
MOST, LONGEST = 3, 450


def profile(cloud: str) -> Message:
    """Show in ten lines how billing stops, how it is billed, and the first gotchas."""
    try:
        found = load(cloud)
    except ProfileError as error:
        return Message.of(safe(str(error), 500))
    title = f"*{safe(cloud)}*: {safe(' '.join(filter(None, (found.billing_stop, found.over, found.stopped))))}"
    billing = "*What it costs, and until when*\n"
    billing += "\n".join(f"• {safe(line, LONGEST)}" for line in _sentences(found.sections[TEARDOWN])[:MOST])
    bites = "*What went wrong for others → what to do*\n"
    bites += "\n".join(
        f"{code(one.id)} {safe(_plain(one.symptom), LONGEST)} → {safe(_plain(one.fix), LONGEST)}"
        for one in found.gotchas[:MOST]
    )
    whole = f"All of it: {code(f'gpu-shopper profiles show {cloud}')}."
    blocks = (section(title), section(billing), section(bites), context(whole))
    return Message(clip(f"{title}\n{billing}\n{bites}", 3_900), blocks)


def _sentences(text: str) -> list[str]:
    """Return the paragraphs and bullets of a section, without tables and code."""
    lines = [line for line in text.splitlines() if not line.startswith("|")]
    parts = re.split(r"\n\s*\n|\n(?=- )", "\n".join(lines))
    return [_plain(part) for part in parts if part.strip() and not part.startswith("```")]


def _plain(text: str) -> str:
    """Remove Markdown's marks; links become their words."""
    words = re.sub(r"\[([^\]]+)\]\([^)]*\)", r"\1", text.removeprefix("- "))
    return " ".join(words.replace("**", "").replace("`", "").split())
