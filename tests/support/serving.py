"""A real HTTP server for an ASGI app, in the test's own event loop, and adapters and a catalog of served clouds."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any

from bot.practice.server import serve_on_loopback
from bot.rules.policy.timing import Timing
from bot.services.market import host_history
from bot.services.market.catalog import Catalog
from bot.services.plans import session_times
from ledger.engine.db import Database
from ledger.kernel.clock import Clock
from providers.contract import Provider
from providers.rate_limits import Pacer
from providers.registry import REGISTRY


def serving(app: Any) -> AbstractAsyncContextManager[str]:
    """Serve `app`, with its start and its end, and give its base URL."""
    # A request that a failed test still holds must not keep its teardown for ever.
    return serve_on_loopback(app, lifespan="on", stop_s=5)


def catalog_of(providers: Mapping[str, Provider], clock: Clock, timing: Timing, db: Database, **more: Any) -> Catalog:
    """The market of a process with these clouds."""
    runs, hosts = session_times.reader(db, clock), host_history.reader(db, clock)
    return Catalog(providers, clock, timing.offers_timeout_s, read_runs=runs, read_hosts=hosts, **more)


def adapters(
    environments: Mapping[str, Mapping[str, str]], clock: Clock, pacer: Pacer, *, volumes: bool
) -> dict[str, Provider]:
    """An adapter for each cloud; with `volumes` also one for its network volumes, where it has them."""
    found: dict[str, Provider] = {}
    for name, environment in environments.items():
        both = REGISTRY[name].connect_all(environment, clock, pacer)
        found |= both if volumes else {name: both[name]}
    return found
