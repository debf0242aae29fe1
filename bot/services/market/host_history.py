"""Read what own sessions on each host showed, for the reliability of offers."""

from __future__ import annotations

from bot.rules.instances.host_history import READ_AT_MOST, REMEMBERED_FOR, PastInstance, host_records
from bot.services.market.catalog import ReadHosts
from ledger.engine.db import Database
from ledger.kernel.clock import Clock
from ledger.queries.lookups import past_on_hosts
from providers.contract import HostRecord


def reader(db: Database, clock: Clock) -> ReadHosts:
    """Return the function by which the market reads the records of hosts: one query per search."""

    async def read() -> dict[tuple[str, str], HostRecord]:
        now = clock.now()
        async with db.read() as tx:
            rows = await past_on_hosts(tx, now - REMEMBERED_FOR, READ_AT_MOST)
        return host_records((PastInstance(*row) for row in rows), now)

    return read
