"""One process of several that drain the same rows. `python -m tests.ledger.drain URL`, then a line on standard input.

It prints `ready`, waits for the line so that all start together, and prints the id of every row that it worked on.
"""

from __future__ import annotations

import asyncio
import sys
from datetime import timedelta

from ledger.core.claims import claim, release
from ledger.engine.db import Database
from ledger.kernel.states import RequestState
from ledger.models import Request
from tests.support.clock import START

TASKS = 5
BATCH = 7


async def drain(db: Database) -> list[str]:
    """Claim and finish rows until none is left to claim; the ids in the order of work."""
    worked: list[str] = []
    while held := await claim(
        db, Request, now=START, states={RequestState.QUOTING}, limit=BATCH, lease=timedelta(seconds=60)
    ):
        for one in held:
            async with db.write() as tx:
                if await release(tx, Request, one, due_at=None):
                    worked.append(one.row_id)
    return worked


async def main(url: str) -> None:
    """Drain with several tasks and print what was done."""
    db = Database(url)
    try:
        async with db.read() as tx:
            await tx.get(Request, "none")
        print("ready", flush=True)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
        for worked in await asyncio.gather(*(drain(db) for _ in range(TASKS))):
            print(*worked, sep="\n", flush=True)
    finally:
        await db.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
