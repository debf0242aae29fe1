"""The inventory on this machine, without the ledger and without the libraries of the API: people wait for it."""

from __future__ import annotations

from bot.cli.access.market import command_of, marketed, policy_of
from bot.cli.access.settings import settings
from bot.rules.grammar.job import everything
from bot.services.market.document import MarketDocument, market_document


def inventory(words: dict[str, str]) -> MarketDocument:
    """What is for sale now for these words of `/gpu inventory`; ends the program at a word that it refuses."""
    found = settings()
    policy = policy_of(found)
    parsed = command_of("inventory", words, policy)
    wanted = parsed.job or everything(policy)
    return market_document(marketed(found, lambda catalog, _: catalog.inventory(wanted, policy)), wanted)
