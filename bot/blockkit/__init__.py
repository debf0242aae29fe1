"""Build texts for Slack safely, check messages and views against Slack's limits, and cut them to fit.

It uses the standard library only. The Slack interface checks what it sends with this package, and the practice
workspace answers with the same errors, so both apply one set of rules.
"""

from bot.blockkit.text import clean, escape, measure, mrkdwn, plain, quote_block, unescape
from bot.blockkit.truncate import truncate_message
from bot.blockkit.validate import validate_message, validate_view

__all__ = [
    "clean",
    "escape",
    "measure",
    "mrkdwn",
    "plain",
    "quote_block",
    "truncate_message",
    "unescape",
    "validate_message",
    "validate_view",
]
