"""End what is overdue when the jobs cannot, from a fresh read or else from a copy, and record it once that is possible.

The jobs need a ledger that takes writes. This needs none: it has its own thread, connections, adapters and turns, so a
full disk, a lock of another process or an unreachable server keeps no instance alive past its approved end.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from bot.rules.approvals.approvers import slack_account
from bot.rules.instances.ledger_age import still_lacking, with_latest_ends
from bot.rules.instances.watchdog import Ability, EndOrder, due
from bot.rules.jobs.stored import checkpoint_of
from bot.rules.values.phrases import plural
from bot.services.recovery.detection import begin, seen_at
from bot.services.runtime import epoch
from bot.services.runtime.clock_guard import approved_now, waits_for_clouds
from bot.services.runtime.context import Context
from bot.services.runtime.disk_calls import DiskWriter
from bot.services.runtime.ends_copy import EndsCopy, Sent, load, on_top_of, save
from bot.services.runtime.ledger_comparison import LedgerComparison, compare
from bot.services.sessions.copy_use import READ_S, AskOthers, CopyUse
from bot.services.sessions.end_records import record_sent
from ledger.core import StaleMove
from ledger.kernel.actor import Actor
from ledger.kernel.ids import short_id
from ledger.kernel.must_end import MustEnd
from ledger.queries.ends import ALIVE, must_end, note_replica, other_replicas
from providers.contract import InstanceStatus, Provider
from providers.errors import ProviderError

#: How often the copy is replaced and the ledger is tried.
EVERY_S = 5.0
#: Writes that fail for this long page the operators.
FAILING_S = 20.0
#: The same order goes to a cloud again after this, until the instance is gone.
AGAIN = timedelta(seconds=60)
#: A cloud is asked for the time this often while its reply would settle it.
TIME_S = 30.0
#: A replica that did not write for a day is forgotten.
FORGOTTEN = timedelta(days=1)
NOT_WRITTEN = "GPU Shopper cannot write its epoch, so it launches nothing. Approved ends still come"
#: A direct message may take this long; the end waits no longer for it.
SAY_S = 10.0

log = logging.getLogger(__name__)

#: Sends a text to a Slack channel or a person without the outbox. Never raises; True when Slack took it.
Say = Callable[[str, str], Awaitable[bool]]


class Read(NamedTuple):
    """One look at what must end: its rows, and whether they come from the copy."""

    rows: Sequence[MustEnd]
    from_copy: bool


@dataclass
class EndWatchdog:
    """Keep the copy, end what is overdue, try writes, page directly. One per process, in a loop of its own.

    `ctx` has its own connections and adapters. `me` names this replica. `operators` is their channel, or "".
    """

    ctx: Context
    path: Path
    me: str
    say: Say
    ask_others: AskOthers
    operators: str = ""
    #: Why the ledger is neither read nor written, though it may be open; "" while it is used.
    refused: str = ""
    copy: EndsCopy = field(default_factory=EndsCopy)
    #: Monotonic time of the last round and of the last write that worked.
    looked_at_s: float | None = None
    wrote_at_s: float | None = None
    #: Why the last write failed; "" when it worked.
    problem: str = ""
    _began_s: float = 0.0
    #: Monotonic time when a cloud was last asked for the time.
    _time_asked_s: float | None = None
    _paged: dict[str, float] = field(default_factory=dict)
    _last_s: dict[tuple[str, str], float] = field(default_factory=dict)
    _warned: set[str] = field(default_factory=set)
    #: How the ledger compared with its epoch at the last look; None before the first one that could read it.
    _compared: LedgerComparison | None = None
    _set_aside: bool = False
    _copy_use: CopyUse = field(init=False)
    _writer: DiskWriter = field(default_factory=DiskWriter)

    def __post_init__(self) -> None:
        """Take over what the last process had copied."""
        self.copy = load(self.path)
        self._copy_use = CopyUse(self.me, self.page)
        self._began_s = self.ctx.clock.monotonic()

    @property
    def writable(self) -> bool:
        """Whether the last write to the ledger worked."""
        return self.wrote_at_s is not None and not self.problem

    @property
    def healthy(self) -> bool:
        """Whether it looked at the ends lately."""
        last = self.looked_at_s
        return last is not None and self.ctx.clock.monotonic() - last < 6 * EVERY_S

    # ── reading ──────────────────────────────────────────────────────────────────────────────────

    async def look(self) -> int:
        """Replace the copy, and send every order that is overdue. Returns how many a cloud took."""
        read = await self._read()
        await self._settle_the_time(read.rows)
        if self.refused:
            await self._copy_use.follow(self.ctx, self.copy, self.ask_others)
        overdue = [one for one in read.rows if self._due(one, self.ctx.clock.now()) is not None]
        taken = 0
        if overdue and approved_now(self.ctx.clock) is None:
            await self._read_clouds({one.cloud: one for one in overdue})
            overdue = []  # Judged again in the next round, by a clock that a cloud has confirmed or corrected.
        if overdue and (not read.from_copy or await self._may_use_the_copy()):
            taken = sum(await asyncio.gather(*(self._end(one, from_copy=read.from_copy) for one in overdue)))
        self.looked_at_s = self.ctx.clock.monotonic()
        if not read.from_copy:
            await self._keep()
        return taken

    async def _read(self) -> Read:
        if self.refused:
            return Read(self.copy.rows, from_copy=True)
        now = self.ctx.clock.now()
        # Read before the ledger, which has whatever was written to the epoch before.
        entries = (*self.ctx.epoch.entries(), *([self.copy.epoch] if self.copy.epoch else ()))
        try:
            async with asyncio.timeout(READ_S), self.ctx.db.read() as tx:
                rows = tuple(await must_end(tx, checkpoint_of))
                others = await other_replicas(tx, self.me, now - ALIVE)
                compared = await compare(tx, entries)
        except Exception as error:  # noqa: BLE001 # Whatever stops the read, the ends of the copy still come.
            log.warning("what must end could not be read (%s); the copy counts", type(error).__name__)
            return Read(self.copy.rows, from_copy=True)
        self._copy_use.forget()
        rows, self.copy = self._beside_records(rows, compared, now)
        on_top = on_top_of(self.ctx.policy)
        self.copy = replace(self.copy, read_at=now, others=others, policy=on_top, replica=self.me)
        return Read(rows, from_copy=False)

    async def _keep(self) -> None:
        """Write the copy and the epoch. No end waits for a disk that does not answer, and no look for long."""
        await self._save_copy()
        if not await self.ctx.epoch.write():
            await self.page("epoch", f"{NOT_WRITTEN} ({self.ctx.epoch.problem}). Check the disk of the data folder.")

    async def _save_copy(self) -> None:
        await self._writer.write(lambda: save(self.path, self.copy), epoch.WRITE_S)

    def _beside_records(
        self, rows: tuple[MustEnd, ...], compared: LedgerComparison, now: datetime
    ) -> tuple[tuple[MustEnd, ...], EndsCopy]:
        """Return what must end, and the copy with that and its epoch.

        Beside an older ledger the copy keeps what it has: the latest end counts until operators accept the ledger.
        """
        self._compared, own = compared, self.ctx.epoch
        if compared.accepted is not None:
            own.accept(compared.accepted)
        if not compared.is_older:
            self._set_aside = False
            own.note(compared.events, compared.newest, seen_at(self.ctx, own.entries(), compared.events))
            return rows, replace(self.copy, rows=rows, epoch=own.entries()[-1], records=None)
        is_noted = compared.older_since is not None or self._set_aside
        records = still_lacking(rows, self.copy.records_beside(is_noted=is_noted))
        if compared.age is not None and not self._set_aside:
            own.set_aside()
            self._set_aside = True
        latest = with_latest_ends(rows, records, compared.older_since or now)
        there = {one.instance_id for one in rows}
        kept = (one for one in self.copy.rows if one.instance_id not in there)
        return latest, replace(self.copy, rows=(*latest, *kept), records=records)

    def _due(self, one: MustEnd, now: datetime) -> EndOrder | None:
        provider = self.ctx.providers.get(one.cloud)
        if provider is None or provider.account != one.account:
            return None
        able = provider.capabilities
        # A network volume costs little and may hold years of work: it is deleted by the jobs, after their notices.
        ability = Ability(able.terminate and able.volume_gb is None, able.keeps_disk, self.ctx.checkpoints is not None)
        timing = self.ctx.timing
        order = due(
            one, self.ctx.policy, ability, now, overdue_s=timing.end_overdue_s, patience_s=timing.recovery_page_s
        )
        last_s, accepted = self._last_s.get((one.instance_id, order or "")), one.accepted_at
        if last_s is not None and self.ctx.clock.monotonic() - last_s < AGAIN.total_seconds():
            return None
        # Only a wrong clock has stored a time that is still to come.
        return None if accepted is not None and timedelta() <= now - accepted < AGAIN else order

    async def _may_use_the_copy(self) -> bool:
        return await self._copy_use.allows(self.copy, self.ask_others, is_refused=bool(self.refused))

    async def _settle_the_time(self, rows: Sequence[MustEnd]) -> None:
        """Read the clouds when the clock jumped, or none has confirmed it: their replies show the time.

        A process that only ends instances calls no cloud otherwise, and would measure the time from before the jump.
        """
        now_s, last_s = self.ctx.clock.monotonic(), self._time_asked_s
        if not waits_for_clouds(self.ctx.clock) or (last_s is not None and now_s - last_s < TIME_S):
            return
        self._time_asked_s = now_s
        shown = {one.cloud: one for one in rows if one.cloud in self.ctx.providers}
        await self._read_clouds(shown or dict.fromkeys(list(self.ctx.providers)[:1]))

    async def _read_clouds(self, clouds: Mapping[str, MustEnd | None]) -> None:
        """Read one instance at each cloud, or list it: the replies show whether this machine's clock is right."""
        for cloud, row in clouds.items():
            provider = self.ctx.providers[cloud]
            with suppress(ProviderError):
                await (provider.get(row.ref) if row is not None and row.ref else provider.list())

    # ── acting ───────────────────────────────────────────────────────────────────────────────────

    async def _end(self, one: MustEnd, *, from_copy: bool) -> bool:
        """Read one instance afresh and send its order. True when the cloud took it."""
        if not from_copy:
            fresh = await self._fresh(one)
            if fresh is None:
                return False
            one = fresh
        order = self._due(one, self.ctx.clock.now())
        if order is None:
            return False
        provider = self.ctx.providers[one.cloud]
        if one.ref:
            await self._announce(one, order)
        now = self.ctx.clock.now()
        self._last_s[one.instance_id, order] = self.ctx.clock.monotonic()
        ref = one.ref
        try:
            ref = ref or await _ref_by_name(provider, one.name)
            if not ref:
                return False  # Nothing has come of its create yet.
            if order is EndOrder.STOP:
                await provider.stop(ref)
                was_there = True
            else:
                was_there = await provider.terminate(ref)
        except ProviderError as error:
            log.warning("the watchdog's %s of %s failed: %s", order, one.instance_id, error.code)
            if self.writable:
                return False  # The jobs keep trying as well, and page when it takes too long.
            await self.page(
                f"{one.instance_id}/failed",
                f"{one.name} on {one.cloud} is past its approved end, and {one.cloud} did not {order} it: "
                f"{error.message}. GPU Shopper keeps trying.",
            )
            return False
        if not was_there:
            return False  # Somebody else has ended it; the jobs find out what it cost.
        log.warning("the watchdog sent a %s for %s", order, one.instance_id)
        mine = Sent(one.instance_id, one.session_id, order, now, from_copy, "" if one.ref else ref)
        known = {(sent.instance_id, sent.order) for sent in self.copy.sent}
        if (one.instance_id, order) not in known:
            self.copy = replace(self.copy, sent=(*self.copy.sent, mine))
            await self._save_copy()
            await self.page(f"{one.instance_id}/{order}", _sentence(one, order, from_copy=from_copy))
        return True

    async def _fresh(self, one: MustEnd) -> MustEnd | None:
        """Read one row again right before its order; None when it ended meanwhile. The row as it was on a failure."""
        try:
            async with asyncio.timeout(READ_S), self.ctx.db.read() as tx:
                return next(iter(await must_end(tx, checkpoint_of, one.instance_id)), None)
        except Exception as error:  # noqa: BLE001 # Whatever stops the read, the row as it was a moment ago counts.
            log.warning("%s could not be read again (%s)", one.instance_id, type(error).__name__)
            return one if await self._may_use_the_copy() else None

    async def _announce(self, one: MustEnd, order: EndOrder) -> None:
        """Notify the owner of a session that was never warned, once, or else the fallback contacts.

        The end waits at most 10 s for each reply of Slack.
        """
        if one.warned_at is not None or one.ending or one.session_id in self._warned:
            return
        self._warned.add(one.session_id)
        verb = "stops" if order is EndOrder.STOP else "terminates"
        person = slack_account(self.ctx.policy, Actor.from_ref(one.owner))
        for to in self.ctx.policy.fallback_contacts if person is None else (person,):
            await self._say(
                to, f"The approved time of session {short_id(one.rental_id)} has ended. GPU Shopper {verb} it now."
            )

    # ── writing ──────────────────────────────────────────────────────────────────────────────────

    async def probe(self) -> bool:
        """Try a write, record what was sent without the ledger, and page when writes keep failing."""
        now = self.ctx.clock.now()
        if self.refused:
            self.problem = self.refused
            return False
        try:
            async with self.ctx.db.write() as tx:
                await note_replica(tx, self.me, now, now - FORGOTTEN)
        except Exception as error:  # noqa: BLE001 # Whatever a write raises means that the ledger takes none.
            self.problem = type(getattr(error, "orig", None) or error).__name__
            log.warning("the ledger takes no write: %s", self.problem)
            # SQLite shares some memory among the connections of a process. Where it was read-only at the first of them,
            # it stays so until the last of them is closed, also on a disk that can be written again.
            await self.ctx.db.reopen()
            return False
        self.problem, self.wrote_at_s = "", self.ctx.clock.monotonic()
        await self._record()
        await self._note_older(now)
        return True

    async def _note_older(self, now: datetime) -> None:
        """Begin recovery mode in the ledger where it is older than its records, or add what the copy knows."""
        if self._compared is None or not self._compared.is_older:
            return
        records = self.copy.records or ()
        async with self.ctx.db.write() as tx:
            facts = await begin(self.ctx, tx, self._compared, records, now)
        if facts is not None:
            self.copy = replace(self.copy, records=facts.untaken(records))

    async def watch_writes(self) -> None:
        """Page the operators when no write worked for 20 s, and notify them when one works again."""
        since = self._began_s if self.wrote_at_s is None else self.wrote_at_s
        failing_s = self.ctx.clock.monotonic() - since
        if failing_s < FAILING_S:
            if self._paged.pop("writes", None) is not None:
                await self._say(self.operators, "GPU Shopper can write to its ledger again.")
            return
        await self.page(
            "writes",
            "GPU Shopper has not been able to write to its ledger for 20 seconds. It buys nothing and approves "
            f"nothing. Approved ends still come: it copied {plural(len(self.copy.rows), 'running instance')}. "
            "Check the disk and the database.",
        )

    async def _record(self) -> None:
        """Record what was sent; what is recorded leaves the copy."""
        kept = []
        for sent in self.copy.sent:
            try:
                async with self.ctx.db.write() as tx:
                    await record_sent(self.ctx, tx, sent, self.ctx.clock.now())
            except StaleMove:
                kept.append(sent)  # Somebody else moved it at this moment; the next round records it.
            except Exception:
                log.exception("an order for %s could not be recorded", sent.instance_id)
                kept.append(sent)
        if len(kept) != len(self.copy.sent):
            self.copy = replace(self.copy, sent=tuple(kept))
            await self._save_copy()

    # ── paging ───────────────────────────────────────────────────────────────────────────────────

    async def page(self, subject: str, text: str) -> bool:
        """Page the operators directly; the same subject again only after the pause between pages. True when it did."""
        now_s, last_s = self.ctx.clock.monotonic(), self._paged.get(subject)
        if last_s is not None and now_s - last_s < self.ctx.timing.recovery_page_s:
            return False
        log.error("%s", text)
        if self.operators and not await self._say(self.operators, text):
            return False
        self._paged[subject] = now_s
        return True

    async def _say(self, to: str, text: str) -> bool:
        if not to:
            return False
        try:
            async with asyncio.timeout(SAY_S):
                return await self.say(to, text)
        except TimeoutError:
            return False


async def _ref_by_name(provider: Provider, name: str) -> str:
    """Return the cloud's id of the instance with this name; "" where a listing shows none."""
    listing = await provider.list()
    shown = (item.ref for item in listing.items if item.name == name and item.status is not InstanceStatus.TERMINATED)
    return next(shown, "")


def _sentence(one: MustEnd, order: EndOrder, *, from_copy: bool) -> str:
    past = "stopped" if order is EndOrder.STOP else "terminated"
    how = "from its copy, because the ledger cannot be read" if from_copy else "directly, because no job had done it"
    return (
        f"GPU Shopper {past} {one.name} on {one.cloud} at its approved end, {how}. Session {short_id(one.rental_id)}."
    )
