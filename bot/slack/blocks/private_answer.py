"""Build private answers: the sentence of a service, and the sentence after an internal error."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Final

from bot.rules.values.reply_code import ReplyCode
from bot.services.runtime.commands import Reply
from bot.slack.blocks.elements import Message, code, safe, section, when

#: How services name a Slack user; people read a mention.
_SLACK_REF: Final = re.compile(r"\bslack:(?:[TE][A-Z0-9]{1,20}/)?([UW][A-Z0-9]{2,20})\b")
#: How services name somebody who works in a terminal; people read a name. An option's value stays as it is typed.
_OPERATOR_REF: Final = re.compile(r"(--[\w-]+ )?(?<![\w`=/:-])operator:(?=\w)")
#: How services write a moment, and how many of a text become each viewer's own time: a date is longer in Slack.
#: Slack says "today 9:14 AM", so the word before a moment goes.
_MOMENT: Final = re.compile(r"\b(?:at )?(\d{4}-\d\d-\d\d \d\d:\d\d UTC)\b")
_MOMENTS_MAX: Final = 10


def answer(reply: Reply) -> Message:
    """Show a service's sentence. It may repeat what somebody typed, so it is escaped like any foreign text."""
    is_done = reply.ok and reply.code is not ReplyCode.WHY  # An explanation has changed nothing.
    mark = ":white_check_mark:" if is_done else ":information_source:"
    text = mentioned(safe(reply.sentence, 2_000)) or "Done."
    return Message(text, (section(f"{mark} {text}"),))


def mentioned(text: str) -> str:
    """Turn the people and the moments of an escaped text into names, and into each viewer's own time."""
    named = _OPERATOR_REF.sub(lambda one: one[0] if one[1] else "operator ", _SLACK_REF.sub(r"<@\1>", text))
    return _MOMENT.sub(_own_time, named, _MOMENTS_MAX)


def _own_time(found: re.Match[str]) -> str:
    try:
        return when(datetime.strptime(found[1], "%Y-%m-%d %H:%M UTC").replace(tzinfo=UTC))
    except ValueError:  # Somebody typed a day that no calendar has.
        return found[0]


def broken(incident: str) -> Message:
    """Say that a message could not be processed after several tries."""
    text = f"That did not work, and trying again did not help. Tell an operator the incident: {code(incident)}."
    return Message(text, (section(f":rotating_light: {text}"),))
