"""The table of jobs: which service is called how often, and what wakes it earlier."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta

from bot.services import (
    auditing,
    crosstool,
    deadlines,
    digests,
    disks,
    drifting,
    ending,
    hostkeys,
    idempotency,
    leftovers,
    lifecycle,
    metering,
    outbox,
    overlooked,
    quoting,
    reconciling,
    reminding,
    rolling,
    sweep,
    switching,
    telling,
    unattended,
    unclear,
)
from bot.services.context import Context
from bot.services.ports import Messenger
from bot.ticker.schedule import Job

#: Completed hours are booked this often; the running hour is computed when somebody looks.
ACCRUE_S = 60.0
#: Entries that were booked are folded into the rollup this often; until then they are counted one by one.
ROLL_S = 10.0
#: Whether a digest is due is looked up this often.
DIGEST_S = 30.0
#: The clouds' own bills are read this often.
RECONCILE_S = 3600.0
#: Runs at once of the jobs that wait for answers from outside: a cloud or Slack that hangs holds up one of them.
WIDTH = 4

Recover = Callable[[], Awaitable[int]]


class CloudWatch:
    """Looks at one cloud: at its own pace while all is quiet, soon while something boots or ends there."""

    def __init__(self, ctx: Context, cloud: str) -> None:
        self._ctx = ctx
        self._cloud = cloud
        self._looked_at: datetime | None = None
        self._next_at: datetime | None = None

    def hurry(self) -> None:
        """Something was just ordered there: look again soon, though never below the pace of a boot."""
        if self._looked_at is not None and self._next_at is not None:
            soonest = self._looked_at + timedelta(seconds=self._ctx.timing.boot_poll_s)
            self._next_at = min(self._next_at, soonest)

    async def look(self) -> int:
        """Look when it is time; 1 when the cloud was listed."""
        if self._next_at is not None and self._ctx.clock.now() < self._next_at:
            return 0
        return await self.look_now()

    async def look_now(self) -> int:
        """One complete look, whatever the time."""
        timing = self._ctx.timing
        self._looked_at = self._ctx.clock.now()
        found = await sweep.observe(self._ctx, self._cloud)
        pause_s = timing.boot_poll_s if found.urgent else timing.sweep_s
        self._next_at = self._looked_at + timedelta(seconds=pause_s)
        return 1


def jobs(ctx: Context, messenger: Messenger | None, recover: Recover | None) -> list[Job]:
    """Every job of one process. Without a messenger nothing is delivered: the rows wait for a process that has one."""
    tick_s, hints = ctx.timing.tick_s, ctx.hints
    asked, bought, shown = (hints.requests,), (hints.instances,), (hints.outbox,)
    table = [
        Job("quotes", lambda: quoting.quote_due(ctx), tick_s, asked, width=WIDTH),
        Job("expiry", lambda: reminding.expire_due(ctx), tick_s, asked),
        Job("creates", lambda: lifecycle.send_due(ctx), tick_s, bought, width=WIDTH),
        Job("unclear-creates", lambda: unclear.resolve_due(ctx), tick_s, bought, width=WIDTH),
        Job("terminations", lambda: ending.terminate_due(ctx), tick_s, bought, width=WIDTH),
        Job("orders", lambda: switching.switch_due(ctx), tick_s, bought, width=WIDTH),
        Job("deadlines", lambda: deadlines.deadlines_due(ctx), tick_s, (hints.sessions,)),
        Job("drift", lambda: drifting.drift_due(ctx), drifting.LOOK_S, drain=False),
        Job("agents", lambda: unattended.unattended_due(ctx), unattended.LOOK_S, drain=False),
        Job("overlooked", lambda: overlooked.overlooked_due(ctx), overlooked.LOOK_S, drain=False),
        Job("host-keys", lambda: hostkeys.keys_due(ctx), hostkeys.LOOK_S, drain=False),
        Job("disks", lambda: disks.disks_due(ctx), disks.LOOK_S, drain=False),
        Job("seals", lambda: auditing.seal_due(ctx), ACCRUE_S),
        Job("metering", lambda: metering.accrue_due(ctx), ACCRUE_S, drain=False),
        Job("webhooks", lambda: telling.fan_out(ctx), tick_s, drain=False),
        Job("webhook-deliveries", lambda: telling.deliver_due(ctx), tick_s, width=WIDTH),
        Job("webhook-log", lambda: telling.forget_due(ctx), telling.FORGET_EVERY_S, drain=False),
        Job("digests", lambda: digests.digest_due(ctx), DIGEST_S, drain=False),
        Job("bills", lambda: reconciling.reconcile_due(ctx), RECONCILE_S, drain=False),
        Job("cost-ledger", lambda: crosstool.import_due(ctx), ACCRUE_S, drain=False),
        Job("rollup", lambda: rolling.roll_due(ctx), ROLL_S),
        Job("leftovers", lambda: leftovers.leftovers_due(ctx), leftovers.LOOK_S, (hints.leftovers,), drain=False),
        Job("answers", lambda: idempotency.forget_due(ctx), idempotency.FORGET_EVERY_S, drain=False),
    ]
    for cloud in ctx.providers:
        watch = CloudWatch(ctx, cloud)
        table.append(Job(f"watch-{cloud}", watch.look, tick_s, (hints.sweep,), drain=False, hurry=watch.hurry))
    if messenger is not None:
        table.append(Job("outbox", lambda: outbox.deliver_due(ctx, messenger), tick_s, shown, width=WIDTH))
    if recover is not None:
        table.append(Job("inbox", recover, tick_s, (hints.inbox,), drain=False, width=WIDTH))
    return table
