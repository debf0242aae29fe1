"""Ways back under a team at work: an operator restores a backup and accepts it, or the previous release starts."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from random import Random

from sqlalchemy import text
from sqlalchemy.exc import SQLAlchemyError

from bot.services.runtime.ends_copy import NAME
from bot.services.runtime.recovery_mode import condemn
from ledger.kernel.actor import Actor, ActorKind
from ledger.kernel.states import OrphanState
from ledger.queries.orphans import every_orphan
from ledger.queries.recovery.older import older_mark
from migrations.run import SchemaState
from tests.scenarios.chaos.place import Place, Replica
from tests.scenarios.chaos.verdict import LostPart
from tests.scenarios.processes.processes import Served
from tests.scenarios.processes.way_back import LATER, CommandFailed, backup, command, restore, set_schema

OPERATOR = Actor(ActorKind.OPERATOR, "ada")
#: How long the previous release runs: the end watchdog looks every five seconds.
ENDS_ONLY_S = (6.0, 20.0)
#: An operator's command is repeated while a full disk, a lock or a server that recovers is in its way.
AGAIN_S, LIMIT_S = 1.0, 90.0
#: How often an operator looks after the ledger and its orphans.
LOOKS_S = 3.0


@dataclass(frozen=True, slots=True)
class Backup:
    """One archive, and what was acknowledged before it was begun."""

    archive: Path
    at: datetime
    at_s: float
    acknowledged: frozenset[str]


class WayBack:
    """The operator of a run. The backups and what they write lie outside of the processes' disk."""

    def __init__(self, place: Place, db_url: str, folder: Path, random: Random) -> None:
        self._place, self._db_url, self._folder, self._random = place, db_url, folder, random
        self._backups: list[Backup] = []
        #: Held while the ledger has a schema that no release can use, of which nobody makes a backup.
        self._schema = asyncio.Lock()

    @property
    def _environment(self) -> dict[str, str]:
        """What an operator's command needs. It reaches the database itself, and not through the proxy."""
        return {**self._place.replicas[0].environment, "GPU_SHOPPER_DATABASE_URL": self._db_url}

    # ── restoring ────────────────────────────────────────────────────────────────────────────────

    async def back_up(self) -> None:
        """Write an archive, unless something is in the way."""
        place = self._place
        async with self._schema:
            now, now_s, acknowledged = place.clock.now(), time.monotonic(), frozenset(place.acknowledged)
            with suppress(CommandFailed):
                archive = await backup(self._environment, self._folder)
                self._backups.append(Backup(archive, now, now_s, acknowledged))
                place.counts["ledger backed up"] += 1

    async def restore(self) -> None:
        """Stop everything, put an earlier archive back, and start again. It is finished even if the run ends."""
        if self._backups:
            self._place.counts["restore begun"] += 1
            await asyncio.shield(self._restore(self._random.choice(self._backups)))

    async def _restore(self, chosen: Backup) -> None:
        place = self._place
        async with AsyncExitStack() as stack:
            for replica in place.replicas:
                await stack.enter_async_context(replica.busy)
            await stack.enter_async_context(place.ledger_lock)
            await stack.enter_async_context(place.ledger_file)
            for replica in place.replicas:
                replica.strike()
                await replica.buried()
            await place.db.close()
            if await _insists(lambda: restore(self._environment, chosen.archive)):
                place.counts["older copy restored"] += 1
                place.lost.append(LostPart(chosen.at, chosen.at_s, place.clock.now(), time.monotonic()))
                # What was taken after it is in no copy, as the page says.
                async with place.db.read() as tx:
                    keys = set((await tx.scalars(text("SELECT key FROM inbox"))).all())
                for key in [key for key in place.acknowledged if key not in keys | chosen.acknowledged]:
                    del place.acknowledged[key]
            for replica in place.replicas:
                await replica.start()

    async def operate(self) -> None:
        """Accept an older ledger once it says that it is one, and end each orphan, until the run is over."""
        place = self._place
        while True:
            await asyncio.sleep(LOOKS_S)
            if not place.lost:
                continue
            with suppress(SQLAlchemyError, OSError, CommandFailed, LookupError):
                async with place.ledger_file, place.db.read() as tx:
                    is_older, orphans = await older_mark(tx) is not None, await every_orphan(tx)
                if is_older:
                    await command(self._environment, "recover", "--accept")
                    place.counts["older ledger accepted"] += 1
                for orphan in orphans:
                    if orphan.state is OrphanState.QUARANTINED and orphan.instance_id is None:
                        async with place.ledger_file:
                            await condemn(place.db, orphan.id, OPERATOR, "nobody needs it", place.clock.now())
                        place.counts["orphan condemned"] += 1

    # ── the previous release ─────────────────────────────────────────────────────────────────────

    async def start_previous(self) -> None:
        """Start a release in a replica's place that can't use the ledger's schema; then the schema is its own again."""
        await asyncio.shield(self._start_previous(self._random.choice(self._place.replicas)))

    async def _start_previous(self, replica: Replica) -> None:
        place = self._place
        async with self._schema, replica.busy:
            if not replica.is_ready or not self._has_copy(replica):
                return
            replica.strike()
            await replica.buried()
            try:
                async with place.ledger_file:
                    before = await set_schema(place.db, LATER)
            except (SQLAlchemyError, OSError):
                await replica.start()
                return
            place.counts["previous release started"] += 1
            await replica.start(lambda served: self._ends_only(served, before))

    async def _ends_only(self, served: Served, before: SchemaState) -> None:
        """Look at what it does, and give the ledger its schema back. With one replica, nothing may be bought."""
        place = self._place
        try:
            await served.says("serving ends only")
            sent = sum(place.proxy.sent.values())
            await asyncio.sleep(self._random.uniform(*ENDS_ONLY_S))
            if len(place.replicas) == 1 and sum(place.proxy.sent.values()) > sent:
                raise AssertionError("a release that may not use the ledger has bought something")
        finally:
            await _insists(lambda: self._set_schema(before))

    async def _set_schema(self, at: SchemaState) -> None:
        async with self._place.ledger_file:
            await set_schema(self._place.db, at)

    def _has_copy(self, replica: Replica) -> bool:
        """Whether an earlier process copied what must end. Without a copy nothing is due, and a start just ends."""
        url = self._place.db.url
        is_file = url.get_backend_name() == "sqlite"
        folder = Path(str(url.database)).parent if is_file else Path(replica.environment["GPU_SHOPPER_DATA_DIR"])
        return (folder / NAME).exists()


async def _insists(act: Callable[[], Awaitable[object]]) -> bool:
    """Do something again and again until it works. False when it never did; then the reason is written."""
    until_s, reason = time.monotonic() + LIMIT_S, ""
    while time.monotonic() < until_s:
        try:
            await act()
        except (SQLAlchemyError, OSError, CommandFailed) as error:
            reason = str(error)
            await asyncio.sleep(AGAIN_S)
        else:
            return True
    sys.stderr.write(f"The operator could not go on: {reason}\n")
    return False
