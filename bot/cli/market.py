"""The market for commands: settings, policy and a catalog of every cloud that is set up, closed again at the end."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeVar

from bot.cli.shared import BAD_SETTINGS, explained, fail
from bot.clock import SystemClock
from bot.rules.grammar import Command, GrammarError, parse
from bot.rules.policy import Policy
from bot.services.catalog import Catalog
from bot.settings import Settings, read_policy_file
from bot.wiring import build_catalog, build_providers
from ledger.values import Clock
from providers.pacing import LocalPacer
from providers.registry import REGISTRY

NO_CLOUD = 69  # sysexits.h: EX_UNAVAILABLE

Answer = TypeVar("Answer")


def policy_of(found: Settings) -> Policy:
    """The team's policy. Ends the program when its file cannot be used."""
    with explained():
        return read_policy_file(found.policy, practice=found.practice).policy


def command_of(name: str, options: Mapping[str, str], policy: Policy, *, example: str) -> Command:
    """The options read by the same language as `/gpu NAME`; ends the program at a word that it refuses."""
    if any('"' in value for value in options.values()):
        fail(f"A double quote does not belong into an option; write {example}.", 2)
    parsed = parse(" ".join([name, *(f'{key}="{value}"' for key, value in options.items() if value)]), policy)
    if isinstance(parsed, GrammarError):
        fail(parsed.message, 2)
    return parsed


def marketed(found: Settings, ask: Callable[[Catalog, Clock], Awaitable[Answer]]) -> Answer:
    """What `ask` makes of the market. Ends the program when no cloud is set up."""
    if not found.clouds:
        needed = "; ".join(f"{one.needs} ({one.where})" for one in REGISTRY.values())
        fail(f"No cloud is set up, so there is no market. Set those of at least one: {needed}", BAD_SETTINGS)
    return asyncio.run(_asked(found, ask))


async def _asked(found: Settings, ask: Callable[[Catalog, Clock], Awaitable[Answer]]) -> Answer:
    clock = SystemClock()
    timing = read_policy_file(found.policy, practice=found.practice).timing
    providers = build_providers(found, clock, LocalPacer(clock, timing.pace))
    catalog = build_catalog(providers, clock, timing)
    try:
        return await ask(catalog, clock)
    finally:
        await catalog.close()
        for provider in providers.values():
            await provider.close()
