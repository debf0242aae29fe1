"""Show the inventory on this machine, without importing the ledger and the API, so that it starts fast."""

from __future__ import annotations

from bot.cli.access.market import command_of, marketed, policy_of
from bot.cli.access.settings import settings
from bot.rules.grammar.job import everything
from bot.services.market.document import MarketDocument, market_document


def inventory(words: dict[str, str]) -> MarketDocument:
    """Return what is for sale now for words of `/gpu inventory`; ends the program at a word that is refused."""
    found = settings()
    policy = policy_of(found)
    parsed = command_of("inventory", words, policy)
    wanted = parsed.job or everything(policy)
    return market_document(marketed(found, lambda catalog, _: catalog.inventory(wanted, policy)), wanted)
