"""Build private answers: the sentence of a service, and the sentence after an internal error."""

from __future__ import annotations

import re
from typing import Final

from bot.services.runtime.commands import Reply
from bot.slack.blocks.elements import Message, code, safe, section

#: How services name a Slack user; people read a mention.
_SLACK_REF: Final = re.compile(r"\bslack:(?:[TE][A-Z0-9]{1,20}/)?([UW][A-Z0-9]{2,20})\b")


def answer(reply: Reply) -> Message:
    """Show a service's sentence. It may repeat what somebody typed, so it is escaped like any foreign text."""
    mark = ":white_check_mark:" if reply.ok else ":information_source:"
    text = mentioned(safe(reply.sentence, 2_000)) or "Done."
    return Message(text, (section(f"{mark} {text}"),))


def mentioned(text: str) -> str:
    """Escape a text, with the Slack users that it names as mentions."""
    return _SLACK_REF.sub(r"<@\1>", text)


def broken(incident: str) -> Message:
    """Say that a message could not be processed after several tries."""
    text = f"That did not work, and trying again did not help. Tell an operator the incident: {code(incident)}."
    return Message(text, (section(f":rotating_light: {text}"),))
