"""Restore an older copy of the ledger in the middle of a seed, and let operators go on with it.

All processes die at once, as a machine does. The ledger's file is replaced by a copy that was taken earlier; the
records beside it stay, or some of them are lost. Then everybody starts again, and an operator answers the page after a
while.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field
from decimal import Decimal
from functools import partial
from pathlib import Path
from random import Random

from bot.services.instances import reconcile
from bot.services.instances.adoption import Adopt, adopt_orphan
from bot.services.recovery import acceptance
from bot.services.runtime import ends_copy, recovery_mode
from bot.services.runtime.commands import Reply
from bot.services.runtime.epoch import NAME as EPOCH
from bot.services.runtime.older_ledger import SUBJECT
from ledger.kernel.actor import Actor, ActorKind
from ledger.kernel.states import OrphanState
from ledger.models import Orphan
from ledger.queries.audit import read_books
from ledger.queries.orphans import every_orphan
from ledger.queries.recovery.older import older_mark
from tests.scenarios.simulation.place import APPROVERS, Place
from tests.scenarios.simulation.troubles.restored import Records, Restored
from tests.scenarios.simulation.troubles.watchdogs import WATCHES_S, Watchdogs
from tests.support.world import CHANNEL, World, facts

#: Its name among what a seed expects.
RESTORE = "restore"
#: Of 100 seeds, so many restore a copy; of 3 of them, one does so after the other faults have ended, hours later.
RESTORED = 25.0
AT_S, LATE_S = (600.0, 2600.0), (2700.0, 6000.0)
#: How old the copy is at least, and what is left beside it.
YOUNGEST_S = 60.0
LEFT = (Records.BOTH, Records.BOTH, Records.BOTH, Records.EPOCH, Records.NONE)
DOWN_S = (0.0, 5.0, 60.0, 600.0)
#: When an operator answers the page, and how often they look. Some are asked twice before that.
ANSWERED_S = (60.0, 2700.0)
LOOKS_S, SELDOM_S = 120.0, 600.0
#: How often an operator tries to adopt an orphan before it is condemned, and of 100 how many are condemned at once.
TRIES, UNWANTED = 3, 30.0
ADOPTED_H = (Decimal("0.25"), Decimal("0.5"))
OPERATOR = Actor(ActorKind.OPERATOR, "ada")
OWNER, DECIDER = Actor(ActorKind.SLACK, "UALICE", "T1"), Actor(ActorKind.SLACK, APPROVERS[0], "T1")


def plan(here: Place, watchdogs: Watchdogs) -> None:
    """Put the seed's restore on the agenda, if it has one. It has a stream of its own: other seeds stay as they are."""
    random = Random(f"{here.seed} restore")
    if random.uniform(0, 100) >= RESTORED:
        return
    at_s = random.uniform(*(LATE_S if random.randrange(3) == 0 else AT_S))
    copied_s = at_s - random.uniform(YOUNGEST_S, at_s)
    restore = Restore(here, random, watchdogs, random.choice(LEFT), here.folder / "copy.db")
    here.expected.add(RESTORE)
    here.after(copied_s, restore.copy)
    here.after(at_s, restore.restore)


@dataclass
class Restore:
    """One restore: the copy, what was lost, the watchdogs of the processes, and the operator."""

    here: Place
    random: Random
    watchdogs: Watchdogs
    records: Records
    path: Path
    tries: dict[str, int] = field(default_factory=dict)

    async def copy(self) -> None:
        """Copy the ledger as it is now."""
        self.here.note("the ledger is copied")
        _copy(self.here.folder / _name(self.here), self.path)
        self.copied_at = self.here.now

    async def restore(self) -> None:
        """Kill everybody, put the copy in the ledger's place, and start again."""
        here, looked_at = self.here, self.here.now
        if self.watchdogs.refused or not await self.watchdogs.look_of_one():
            # The records are those of a process that worked, and nobody restores under one that runs.
            here.after(WATCHES_S / 2, self.restore)
            return
        lost = await here.books()
        await here.kill_all()
        _replace(here.folder / _name(here), self.path)
        for name in _lost(self.records):
            (here.folder / name).unlink(missing_ok=True)
        copied = await read_books(here.ledger)
        here.restored = Restored(self.copied_at, looked_at, here.now, self.records, lost, copied)
        here.note(
            f"a copy of {self.copied_at:%H:%M:%S} is restored, which lacks {len(lost.events) - len(copied.events)} "
            f"events: {self.records}"
        )
        down_s = self.random.choice(DOWN_S)
        for number, machine in enumerate(here.machines):
            here.after(down_s, partial(here.start, number, machine))
        here.after(down_s, self.watchdogs.watch)
        here.after(down_s + self.random.uniform(*ANSWERED_S), self.answer)

    # ── the operator ─────────────────────────────────────────────────────────────────────────────

    async def answer(self) -> None:
        """An operator accepts the older ledger once a page about it is there, and decides about each orphan."""
        here, restored = self.here, self.here.restored
        assert restored is not None
        async with here.ledger.read() as tx:
            is_older = await older_mark(tx) is not None
            waiting = [row for row in await every_orphan(tx) if _waits(row)]
        pages = [shown for shown in here.board.attempts if shown.arrived and shown.subject.startswith(SUBJECT)]
        if is_older and any(shown.at >= restored.at for shown in pages):
            await self._accept(restored)
        for orphan in waiting:
            await self._decide(orphan, restored)
        async with here.ledger.read() as tx:
            is_on = await recovery_mode.is_on(tx)
        here.expected = here.expected - {RESTORE} | ({RESTORE} if is_on else set())
        here.after(LOOKS_S if is_on else SELDOM_S, self.answer)

    async def _accept(self, restored: Restored) -> None:
        """Accept. Who finds at the clouds that nothing was bought since the copy keeps the earlier approvals."""
        here = self.here
        bought = any(one.at >= restored.copied_at for one in here.engine.creates) or here.has_late_calls
        keeps = not bought and self.random.random() < 0.5
        reply = await here.by_a_process(partial(_accept, keeps_approvals=keeps))
        here.note(f"operator: recover --accept: {reply.sentence if reply else 'no answer'}")
        if reply is not None and reply.ok:
            restored.accepted_at, restored.keeps_approvals = here.now, keeps

    async def _decide(self, orphan: Orphan, restored: Restored) -> None:
        here, tried = self.here, self.tries.get(orphan.id, 0)
        self.tries[orphan.id] = tried + 1
        if tried < TRIES and (tried or self.random.uniform(0, 100) >= UNWANTED):
            hours = self.random.choice(ADOPTED_H)
            command = Adopt(orphan.id, hours, facts(DECIDER), OWNER, "it trains", CHANNEL)
            reply = await here.by_a_process(lambda hands: adopt_orphan(hands.ctx, command))
            what = "adopt"
        else:
            what = "condemn"
            restored.condemned.add((orphan.cloud, orphan.ref))
            reply = await here.by_a_process(
                lambda hands: recovery_mode.condemn(hands.ctx.db, orphan.id, OPERATOR, "nobody needs it", here.now)
            )
        here.note(f"operator: {what} {orphan.cloud} {orphan.ref}: {reply.sentence if reply else 'no answer'}")


def _waits(orphan: Orphan) -> bool:
    """Whether an operator decides about it: nobody's rental has it."""
    return orphan.state is OrphanState.QUARANTINED and orphan.instance_id is None


async def _accept(hands: World, *, keeps_approvals: bool) -> Reply:
    ctx = hands.ctx
    looks = [await reconcile.observe(ctx, name) for name in ctx.providers]
    unlisted = {name for name, look in zip(ctx.providers, looks, strict=True) if look.problem}
    return await acceptance.accept(ctx, acceptance.Accept(OPERATOR, keeps_approvals), unlisted)


def _name(here: Place) -> str:
    return Path(str(here.ledger.url.database)).name


def _copy(source: Path, target: Path) -> None:
    with closing(sqlite3.connect(source)) as one, closing(sqlite3.connect(target)) as other:
        one.backup(other)


def _replace(ledger: Path, copy: Path) -> None:
    """Put a copy in the ledger's place. The log of the ledger before belongs to that one alone."""
    for suffix in ("-wal", "-shm"):
        Path(f"{ledger}{suffix}").unlink(missing_ok=True)
    copy.rename(ledger)
    ledger.chmod(0o600)


def _lost(records: Records) -> Sequence[str]:
    return {Records.BOTH: (), Records.EPOCH: (ends_copy.NAME,), Records.NONE: (ends_copy.NAME, EPOCH)}[records]
