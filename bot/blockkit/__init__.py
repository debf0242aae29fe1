"""What Slack accepts: building texts safely, checking messages and views, and cutting them to fit.

Standard library only. The Slack door checks what it sends with this package, and the practice workspace answers
with the same errors, so a message that passes here has been judged by one set of rules only once.
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
