"""Give commands the market: settings, policy and a catalog of every configured cloud, closed at the end."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeVar

from bot.cli.access.settings import BAD_SETTINGS, explained, fail
from bot.clock import SystemClock
from bot.rules.grammar.parser import GrammarError, ParsedCommand, parse
from bot.rules.market.own_history import NO_HISTORY, OwnHistory
from bot.rules.policy.policy import Policy
from bot.services.market import host_history
from bot.services.market.catalog import Catalog
from bot.services.plans import session_times
from bot.settings import Settings, read_policy_file
from bot.wiring import build_catalog, build_model_hub, build_providers, build_public
from ledger.engine.db import Database
from ledger.kernel.clock import Clock
from providers.contract import HostRecord
from providers.rate_limits import LocalPacer
from providers.registry import REGISTRY

LEDGER_TIMEOUT_S = 10.0
NO_CLOUD = 69  # sysexits.h: EX_UNAVAILABLE

log = logging.getLogger(__name__)

Answer = TypeVar("Answer")
#: What own sessions showed of runs, and of each host.
_Past = tuple[OwnHistory, Mapping[tuple[str, str], HostRecord]]


def policy_of(found: Settings) -> Policy:
    """Read the team's policy; ends the program when its file cannot be used."""
    with explained():
        return read_policy_file(found.policy, practice=found.practice, spends=False).policy


def command_of(line: str, options: Mapping[str, str], policy: Policy) -> ParsedCommand:
    """Parse a line and options with the grammar of `/gpu`; ends the program at a word that is refused."""
    parsed = parse(line, policy, [(key, value) for key, value in options.items() if value])
    if isinstance(parsed, GrammarError):
        fail(parsed.message, 2)
    return parsed


def marketed(found: Settings, read: Callable[[Catalog, Clock], Awaitable[Answer]]) -> Answer:
    """Return what `read` makes of the market, which is the public one while no cloud is set up."""
    if not found.clouds and (found.practice or not found.keyless):
        needed = "; ".join(f"{one.needs} ({one.where})" for one in REGISTRY.values())
        fail(f"No cloud is set up, so there is no market. Set those of at least one: {needed}", BAD_SETTINGS)
    return asyncio.run(_read_market(found, read))


async def _own_past(found: Settings, clock: Clock) -> _Past:
    """Read the past of this installation; nothing where its ledger is elsewhere or cannot be read."""
    if found.sqlite_file is not None and not found.sqlite_file.exists():
        return NO_HISTORY, {}
    try:
        db = Database(found.database)
        try:
            async with asyncio.timeout(LEDGER_TIMEOUT_S):
                return await session_times.reader(db, clock)(), await host_history.reader(db, clock)()
        finally:
            await db.close()
    except Exception as error:  # noqa: BLE001 # Whatever a driver raises, a plan without a ledger is still a plan.
        log.warning("the ledger cannot be read (%s), so own runs correct nothing here", type(error).__name__)
        return NO_HISTORY, {}


async def _read_market(found: Settings, read: Callable[[Catalog, Clock], Awaitable[Answer]]) -> Answer:
    clock = SystemClock()
    timing = read_policy_file(found.policy, practice=found.practice, spends=False).timing
    build = build_providers if found.clouds else build_public
    providers = build(found, clock, LocalPacer(clock, timing.pace))
    own, hosts = await _own_past(found, clock)

    async def read_runs() -> OwnHistory:
        return own

    async def read_hosts() -> Mapping[tuple[str, str], HostRecord]:
        return hosts

    read_model = build_model_hub(found, clock).config
    catalog = build_catalog(providers, clock, timing, read_runs, read_model=read_model, read_hosts=read_hosts)
    catalog.patience_s = None  # Nobody edits what a command has printed, so it waits for the whole market.
    try:
        return await read(catalog, clock)
    finally:
        await catalog.close()
        for provider in providers.values():
            await provider.close()
