"""Read the market on this machine, without importing the ledger and the API, so that it starts fast."""

from __future__ import annotations

from bot.cli.access.market import command_of, marketed, policy_of
from bot.cli.access.settings import settings
from bot.rules.grammar.job import everything
from bot.rules.market.sort_key import SortKey
from bot.services.market.catalog import MarketListing


def inventory(words: dict[str, str]) -> MarketListing:
    """Return what is for sale now for words of `/gpu inventory`; ends the program at a word that is refused.

    `words` holds `key → value`, and under `words` what was written without keys.
    """
    found = settings()
    policy = policy_of(found)
    keyed = {key: value for key, value in words.items() if key != "words"}
    parsed = command_of(f"inventory {words.get('words', '')}", keyed, policy)
    wanted, sort = parsed.job or everything(policy), parsed.sort or SortKey.TOTAL
    return marketed(found, lambda catalog, _: catalog.inventory(wanted, policy, sort))
