"""Build the answer to `/gpu logs ID`: the last lines of a log as they are, and where to follow it."""

from __future__ import annotations

from typing import Final

from bot.blockkit import escape
from bot.rules.values.command_text import cli_command
from bot.services.runtime.commands import Reply
from bot.slack.blocks.elements import Message, context, section
from bot.slack.blocks.private_answer import answer, mentioned

#: Lines, and characters of them: a section of Slack takes 3,000.
LINES: Final = 30
_CHARACTERS: Final = 2_600


def log(reply: Reply, short: str) -> Message:
    """Show the end of a log, its newest lines whole."""
    if not reply.ok:
        return answer(reply)
    shown: list[str] = []
    length = 0
    for line in reversed(reply.data["lines"]):
        text = escape(line[:400]).replace("```", "'''")
        if length + len(text) > _CHARACTERS:
            break
        shown.insert(0, text)
        length += len(text) + 1
    body = "\n".join(shown) or "(empty)"
    follow = mentioned(cli_command(f"logs {short} --source {reply.data['source']} -f"))
    return Message(reply.sentence, (section(f"*{reply.sentence}*\n```{body}```"), context(f"To follow it: {follow}.")))
