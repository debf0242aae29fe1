"""Process *Next 5* and the filters below a list of offers: the same question, further on or with one word changed."""

from __future__ import annotations

import re

from bot.rules.grammar.job import everything
from bot.rules.grammar.parser import GrammarError, ParsedCommand, parse
from bot.rules.jobs.facet_table import WORD_OF
from bot.rules.jobs.facets.limits import cloud_words
from bot.rules.market.sort_key import SortKey
from bot.rules.values.text import UnclosedQuote, clean, tokens
from bot.services.market.document import CURSOR, read_cursor
from bot.slack.blocks import help as help_message
from bot.slack.blocks.elements import Message
from bot.slack.blocks.inventory import inventory
from bot.slack.handler_context import HandlerContext, HandlerJob

#: Said where the pinned prices are gone, so that nobody wonders about an offer that comes twice.
READ_AGAIN = "Prices were read again, so offers may have moved."


async def first_rows(handler: HandlerContext, words: str, parsed: ParsedCommand, start: int = 0) -> Message:
    """Show what is for sale now, from row `start`."""
    policy = handler.ctx.policy
    wanted, sort = parsed.job or everything(policy), parsed.sort or SortKey.TOTAL
    found = await handler.ctx.catalog.inventory(wanted, policy, sort)
    return inventory(found, words, handler.settings.command, start, READ_AGAIN if start else "")


async def browse(handler: HandlerContext, job: HandlerJob) -> Message:
    """Answer a click on *Next 5*, whose value is a cursor, or a choice in a menu, whose value is a word."""
    _, _, words = job.message.action.partition(":")[2].partition(":")
    value, start = job.message.value, 0
    if re.fullmatch(CURSOR, value):
        name, start = read_cursor(value)
        found = handler.ctx.catalog.snapshots.named(name)
        if found is not None:
            return inventory(found, words, handler.settings.command, start)
    else:
        words = changed(words, value)
    parsed = parse(f"inventory {words}", handler.ctx.policy)
    if isinstance(parsed, GrammarError):
        return help_message.grammar_error(parsed, handler.settings.command)
    return await first_rows(handler, words, parsed, start)


def changed(words: str, word: str) -> str:
    """Return the words with one of them set anew: `region=SE` replaces a region, `region=` takes it away."""
    key, _, value = word.partition("=")
    try:
        typed = tokens(clean(words))
    except UnclosedQuote:
        typed = []
    kept = [one.raw for one in typed if not _says(one.value, key)]
    return " ".join([*kept, word] if value else kept)


def _says(typed: str, key: str) -> bool:
    """Whether a typed word says the same as `key` does."""
    name, equals, _ = typed.lower().lstrip("-").partition("=")
    if equals:
        return name == key or (name in WORD_OF and WORD_OF[name].key == key)
    return key == "clouds" and all(part in cloud_words() for part in typed.lower().split(","))
