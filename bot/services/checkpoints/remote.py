"""Look for the newest checkpoint of a place, and say whether it counts."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from bot.outbound.checkpoint_stores import StoreUnreachable
from bot.rules.checkpoints import verification as rules
from bot.rules.checkpoints.stores import may_be_public, not_listed, not_public
from bot.rules.checkpoints.verification import Newest, Reported, StoreLocation
from bot.rules.values.phrases import Verdict, deny
from bot.rules.values.reply_code import ReplyCode
from bot.services.checkpoints.target_places import newest_counted
from bot.services.runtime.context import Context
from bot.services.runtime.ports import CheckpointStores


@dataclass(frozen=True, slots=True)
class RemoteLook:
    """Hold the place, the newest file there (None: none was found) and the verdict about it."""

    verdict: Verdict
    where: StoreLocation | None = None
    newest: Newest | None = None

    @property
    def problem(self) -> str:
        """Say why the newest checkpoint does not count; "" when it does."""
        return "" if self.verdict.allowed else self.verdict.sentence


async def look(ctx: Context, location: str | None, reported: Reported, now: datetime) -> RemoteLook:
    """Read the newest file at a location and judge it against what an agent reported."""
    where = rules.place(location)
    if where is None or ctx.checkpoints is None:
        return RemoteLook(deny(ReplyCode.UNREACHABLE, "Its checkpoints are at no place that can be read from here."))
    if (why := not_listed(location, ctx.policy.checkpoint_places)) is not None:
        return RemoteLook(deny(ReplyCode.UNREACHABLE, why), where)
    return await look_at(ctx, ctx.checkpoints, where, reported, now)


async def look_at(
    ctx: Context, stores: CheckpointStores, where: StoreLocation, reported: Reported, now: datetime
) -> RemoteLook:
    """Read the newest file at a place that may be read, and judge it against what an agent reported."""
    try:
        found = await newest_counted(ctx, stores, where)
    except StoreUnreachable as error:
        return RemoteLook(deny(ReplyCode.UNREACHABLE, f"Its checkpoints can't be read: {error}."), where)
    newest = Newest(found.path, found.size, found.at, found.digest) if found else None
    return RemoteLook(rules.judge(newest, reported, ctx.policy.checkpoint_max_age_s, now), where, newest)


async def unreadable(ctx: Context, location: str | None) -> str | None:
    """Say why a place without credentials can't be read; None where it is public, or credentials are set."""
    where, given = rules.place(location), ctx.catalog.checks.stores
    if location is None or where is None or ctx.checkpoints is None or not may_be_public(location, given):
        return None
    try:
        await ctx.checkpoints.newest(where.scheme, where.root, where.path)
    except StoreUnreachable as error:
        return not_public(location, given, str(error))
    return None
