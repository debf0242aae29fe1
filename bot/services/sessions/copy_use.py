"""Decide whether ends may come from the copy: only where nobody else can know a later end.

A ledger of another schema is not read but for the marks of its replicas, whose names and times no schema changes. Each
that works writes its own every few seconds, and the last one that stops leaves one. Where one is newer than the copy,
operators are paged twice first.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from datetime import datetime, timedelta

from bot.rules.instances.ledger_age import EpochEntry
from bot.rules.values.phrases import plural
from bot.services.runtime.clock_guard import approved_now
from bot.services.runtime.context import Context
from bot.services.runtime.ends_copy import EndsCopy
from ledger.queries.ends import ALIVE, ReplicaMark, replica_marks

#: A read that takes longer has failed.
READ_S = 10.0
#: The copy is used after so many pages, however old it is.
PAGES = 2
#: A replica that works writes a mark this often, or a little later, and beside that it makes its copy.
MARKED = timedelta(seconds=7)
#: The replica that made the copy may be busy with ends between the two.
MAKER = timedelta(seconds=20)

log = logging.getLogger(__name__)

#: How many of the other replicas reply that they can write, or None when none is set up.
AskOthers = Callable[[], Awaitable[int | None]]
#: Pages the operators about a subject; the same one again only after the pause between pages. True when it did now.
Page = Callable[[str, str], Awaitable[bool]]


@dataclass
class CopyUse:
    """What one process knows of the others on its ledger while it works from the copy."""

    me: str
    page: Page
    _answers: bool = False
    _in_doubt: bool = False
    _pages: int = 0

    def forget(self) -> None:
        """Begin anew: the ledger itself was read."""
        self._answers, self._in_doubt, self._pages = False, False, 0

    async def follow(self, ctx: Context, copy: EndsCopy, ask_others: AskOthers) -> None:
        """Look who works on a ledger that this program may not use, and page while the copy may be out of date."""
        now = approved_now(ctx.clock)
        if now is None:
            return  # No time of a mark says anything to a clock that no cloud has confirmed, and nothing ends by it.
        is_behind = _is_behind(copy, ctx.epoch.entries())
        try:
            async with asyncio.timeout(READ_S), ctx.db.read() as tx:
                marks = await replica_marks(tx)
        except Exception as error:  # noqa: BLE001 # Whatever stops the read, nothing is known of the others.
            log.warning("the replicas of the ledger could not be read (%s)", type(error).__name__)
            self._answers = False
            self._in_doubt |= is_behind
        else:
            self._answers = True
            self._in_doubt = is_behind or any(self._may_know_more(mark, copy, now) for mark in marks)
        if self._in_doubt and copy.rows and self._pages < PAGES and await ask_others() is None:
            self._pages += await self.page("copy/doubt", self._doubt(ctx.timing.recovery_page_s))

    def _may_know_more(self, mark: ReplicaMark, copy: EndsCopy, now: datetime) -> bool:
        """Whether a replica worked on the ledger after the copy was made, or works on it now."""
        if mark.replica == self.me:
            return False
        if copy.read_at is None:
            return True
        if mark.replica == copy.replica:
            return mark.at > copy.read_at + MAKER
        # One that worked when the copy was made may have changed something right afterwards.
        return mark.at > copy.read_at - MARKED or (not mark.has_stopped and mark.at >= now - ALIVE)

    def _doubt(self, pause_s: float) -> str:
        when = "Ends come from the copy from now on."
        if not self._pages:
            when = f"Nothing ends from the copy before the second page, in {plural(int(pause_s // 60), 'minute')}."
        return (
            "GPU Shopper cannot use its ledger, and the ledger may have changed since the copy of what must end was "
            f"made. {when} If another replica works, stop this process, or set GPU_SHOPPER_REPLICAS."
        )

    async def allows(self, copy: EndsCopy, ask_others: AskOthers, *, is_refused: bool) -> bool:
        """Whether no other replica works on the ledger, so that the newest state is here or nowhere."""
        able = await ask_others()
        if able is not None:
            if able:
                log.info("the ledger cannot be read here; %s can write: no end from the copy", plural(able, "replica"))
            return not able
        if is_refused and (self._in_doubt or self._answers):
            return not self._in_doubt or self._pages >= PAGES
        if copy.others:
            await self.page(
                "copy",
                f"GPU Shopper cannot read its ledger, and {plural(copy.others, 'other replica')} wrote to it "
                "shortly before. It ends nothing from its copy, because it cannot ask them: set GPU_SHOPPER_REPLICAS.",
            )
        return not copy.others


def _is_behind(copy: EndsCopy, entries: Collection[EpochEntry]) -> bool:
    """Whether the maker of a copy named another event in its epoch afterwards; marks show what other replicas did."""
    has = copy.epoch
    if has is None:
        return False
    named = (entry.events[-1] for entry in entries if entry.replica == has.replica and entry.events)
    return any(event not in has.events for event in named)
