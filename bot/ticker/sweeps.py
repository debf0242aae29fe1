"""Define the jobs: which service is called how often, and what wakes it earlier."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from bot.services.audit import journal
from bot.services.billing import metering, rollup, shared_ledger, true_up
from bot.services.budgets import open_spend
from bot.services.checkpoints import resume
from bot.services.instances import (
    cleanup,
    gpu_checks,
    grace,
    launch,
    node_sets,
    operator_reminders,
    power,
    reconcile,
    termination,
    unknown_outcome,
)
from bot.services.nodes import host_keys, key_writes
from bot.services.notifications import clock_check
from bot.services.outbox import dispatch
from bot.services.plans import run_recorder
from bot.services.relocation import progress, savings
from bot.services.reports import digest
from bot.services.requests import expiry, quoting, waiting
from bot.services.runtime import idempotency, liveness
from bot.services.runtime.context import Context
from bot.services.runtime.event_order import NUMBER_EVERY_S, EventNumbering
from bot.services.runtime.ports import Messenger
from bot.services.sessions import (
    account_incidents,
    expiration,
    idle_termination,
    overspend,
    retained_disks,
    shared_queues,
    transfer,
)
from bot.services.webhooks import delivery
from bot.ticker.schedule import ScheduledJob

#: Completed hours are booked this often; the running hour is computed on request.
ACCRUE_S = 60.0
#: Entries that were booked are folded into the rollup this often; until then they are counted one by one.
ROLL_S = 10.0
#: It is checked this often whether a digest is due.
DIGEST_S = 30.0
#: The clouds' own bills are read this often.
RECONCILE_S = 3600.0
#: Concurrent runs of the jobs that wait for replies from outside: a cloud or Slack that hangs delays one of them.
WIDTH = 4

Recover = Callable[[], Awaitable[int]]


class CloudWatch:
    """Reconcile one cloud: at a slow pace while all is quiet, soon while an instance boots or ends there.

    Its pace is measured in monotonic seconds. A wall clock that is a year ahead until the cloud corrects it would put
    the next pass off for a year.
    """

    def __init__(self, ctx: Context, cloud: str) -> None:
        self._ctx = ctx
        self._cloud = cloud
        self._looked_s: float | None = None
        self._next_s: float | None = None

    def hurry(self) -> None:
        """Run the next pass soon after an order there, though never below the pace of a boot."""
        if self._looked_s is not None and self._next_s is not None:
            self._next_s = min(self._next_s, self._looked_s + self._ctx.timing.boot_poll_s)

    async def look(self) -> int:
        """Run a reconcile pass when it is time; 1 when the cloud was listed."""
        if self._next_s is not None and self._ctx.clock.monotonic() < self._next_s:
            return 0
        return await self.look_now()

    async def look_now(self) -> int:
        """Run one complete reconcile pass, whatever the time."""
        timing = self._ctx.timing
        self._looked_s = self._ctx.clock.monotonic()
        found = await reconcile.observe(self._ctx, self._cloud)
        self._next_s = self._looked_s + (timing.boot_poll_s if found.urgent else timing.sweep_s)
        return 1


def market_copy(ctx: Context, cloud: str) -> Callable[[], Awaitable[int]]:
    """Return the job that copies a cloud's market call by call, at a share of the cloud's own pace."""

    async def copied() -> int:
        return await ctx.catalog.copy_next(cloud, ctx.policy)

    return copied


def _cloud_jobs(ctx: Context) -> list[ScheduledJob]:
    """Return the jobs of each cloud: the copy of its market, and the watch over its instances."""
    tick_s, copied = ctx.timing.tick_s, ctx.catalog.copied_clouds
    table = [ScheduledJob(f"market-{cloud}", market_copy(ctx, cloud), tick_s, drain=False) for cloud in copied]
    for cloud in ctx.providers:
        watch, woken = CloudWatch(ctx, cloud), (ctx.hints.sweep,)
        table.append(ScheduledJob(f"reconcile-{cloud}", watch.look, tick_s, woken, drain=False, hurry=watch.hurry))
    return table


def jobs(ctx: Context, messenger: Messenger | None, recover: Recover | None) -> list[ScheduledJob]:
    """Return every job of one process.

    Without a messenger nothing is delivered: the rows wait for a process that has one.
    """
    tick_s, boot_s, hints = ctx.timing.tick_s, ctx.timing.boot_poll_s, ctx.hints
    asked, bought, shown = (hints.requests,), (hints.instances,), (hints.outbox,)
    table = [
        ScheduledJob("clock-check", lambda: clock_check.clock_check_due(ctx), clock_check.LOOK_S, drain=False),
        ScheduledJob("waiting-requests", lambda: waiting.look_due(ctx), tick_s, asked),
        ScheduledJob("quotes", lambda: quoting.quote_due(ctx), tick_s, asked, width=WIDTH),
        ScheduledJob("expiry", lambda: expiry.expire_due(ctx), tick_s, asked),
        ScheduledJob("launches", lambda: launch.send_due(ctx), tick_s, bought, width=WIDTH),
        ScheduledJob("unknown-outcomes", lambda: unknown_outcome.resolve_due(ctx), tick_s, bought, width=WIDTH),
        ScheduledJob("node-sets", lambda: node_sets.broken_sets_due(ctx), tick_s, bought, drain=False),
        ScheduledJob("terminations", lambda: termination.terminate_due(ctx), tick_s, bought, width=WIDTH),
        ScheduledJob("power-actions", lambda: power.switch_due(ctx), tick_s, bought, width=WIDTH),
        ScheduledJob("expiration", lambda: expiration.deadlines_due(ctx), tick_s, (hints.sessions,)),
        ScheduledJob("overspend", lambda: overspend.overspend_due(ctx), overspend.LOOK_S, (hints.spend,), drain=False),
        ScheduledJob("idle", lambda: idle_termination.idle_terminations_due(ctx), liveness.LOOK_S, drain=False),
        ScheduledJob("incidents", lambda: account_incidents.accounts_due(ctx), account_incidents.LOOK_S, drain=False),
        ScheduledJob("graces", lambda: grace.graces_due(ctx), grace.LOOK_S, bought, drain=False),
        ScheduledJob("shared-queues", lambda: shared_queues.shared_queues_due(ctx), shared_queues.LOOK_S, drain=False),
        ScheduledJob(
            "reminders", lambda: operator_reminders.operator_reminders_due(ctx), operator_reminders.LOOK_S, drain=False
        ),
        ScheduledJob("host-keys", lambda: host_keys.keys_due(ctx), host_keys.LOOK_S, drain=False),
        ScheduledJob(
            "gpu-checks", lambda: gpu_checks.checks_due(ctx), boot_s, (hints.logins,), drain=False, width=WIDTH
        ),
        ScheduledJob("machine-keys", lambda: key_writes.key_writes_due(ctx), key_writes.LOOK_S, (hints.machine_keys,)),
        ScheduledJob("resumes", lambda: resume.resumes_due(ctx), resume.LOOK_S, bought, drain=False),
        ScheduledJob("transfers", lambda: transfer.transfers_due(ctx), transfer.LOOK_S, drain=False),
        ScheduledJob("relocations", lambda: progress.migrations_due(ctx), progress.LOOK_S, (hints.sessions,)),
        ScheduledJob("cheaper-machines", lambda: savings.savings_due(ctx), savings.LOOK_S, drain=False),
        ScheduledJob("retained-disks", lambda: retained_disks.disks_due(ctx), retained_disks.LOOK_S, drain=False),
        ScheduledJob("event-order", EventNumbering(ctx).look, NUMBER_EVERY_S, drain=False),
        ScheduledJob("hash-chain", lambda: journal.hash_events_due(ctx), ACCRUE_S),
        ScheduledJob("metering", lambda: metering.accrue_due(ctx), ACCRUE_S, drain=False),
        ScheduledJob("webhooks", lambda: delivery.fan_out(ctx), tick_s, (hints.journal,), drain=False),
        ScheduledJob("webhook-deliveries", lambda: delivery.deliver_due(ctx), tick_s, width=delivery.WIDTH),
        ScheduledJob("webhook-log", lambda: delivery.forget_due(ctx), delivery.FORGET_EVERY_S, drain=False),
        ScheduledJob("run-records", run_recorder.RunRecorder(ctx).look, run_recorder.LOOK_S, drain=False),
        ScheduledJob("digests", lambda: digest.digest_due(ctx), DIGEST_S, drain=False),
        ScheduledJob("true-up", lambda: true_up.reconcile_due(ctx), RECONCILE_S, (hints.clock,), drain=False),
        ScheduledJob("cost-ledger", lambda: shared_ledger.import_due(ctx), ACCRUE_S, drain=False),
        ScheduledJob("rollup", lambda: rollup.roll_due(ctx), ROLL_S),
        ScheduledJob("open-spend", lambda: open_spend.settle_due(ctx), open_spend.LOOK_S),
        ScheduledJob("cleanup", lambda: cleanup.leftovers_due(ctx), cleanup.LOOK_S, (hints.leftovers,), drain=False),
        ScheduledJob("idempotency-keys", lambda: idempotency.forget_due(ctx), idempotency.FORGET_EVERY_S, drain=False),
    ]
    table += _cloud_jobs(ctx)
    if messenger is not None:
        table.append(ScheduledJob("outbox", lambda: dispatch.deliver_due(ctx, messenger), tick_s, shown, width=WIDTH))
    if recover is not None:
        table.append(ScheduledJob("inbox", recover, tick_s, (hints.inbox,), drain=False, width=WIDTH))
    return table
