"""Prepare the ledger and the policy of a process; while that fails, only end what must end, and say why."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import replace

from starlette.types import ASGIApp

from bot.api.health import ends_only
from bot.end_watch import EndWatch
from bot.services.recovery.detection import check_at_start
from bot.services.runtime.context import Context
from bot.services.sessions.end_watchdog import FORGOTTEN
from bot.settings import PolicyFileError, PolicyNotGuarded, Settings
from bot.wiring import build_context, close
from ledger.kernel.clock import Clock
from ledger.queries.audit import ping
from ledger.queries.ends import note_replica
from migrations import run as schema

#: The start is tried again this often while its cause lasts.
AGAIN_S = 5.0
#: A database server that gives no reply for this long cannot be reached.
REPLY_S = 20.0

log = logging.getLogger(__name__)


class NotNow(RuntimeError):
    """Say that this process can't work now, but may later; the message is the cause, for `/readyz` and operators."""


async def prepared(settings: Settings, clock: Clock, watch: EndWatch, *, migrate: bool) -> Context:
    """Build the context on a ledger with the newest schema that takes writes, and compare that with its records.

    Raises `NotNow` when the cause may pass, `SchemaError` or `ValueError` when somebody must change something first.
    """
    try:
        ctx = replace(build_context(settings, clock), epoch=watch.epoch)
    except PolicyNotGuarded as error:
        raise NotNow("others can change the policy file") from error
    except PolicyFileError as error:
        raise NotNow("the policy file is broken") from error
    except OSError as error:
        raise NotNow("the ledger's file cannot be made") from error
    cause = "the ledger cannot be reached"
    try:
        async with asyncio.timeout(REPLY_S):
            await ping(ctx.db)
        cause = "the ledger takes no writes"
        await (schema.upgrade(ctx.db) if migrate else schema.require_newest(ctx.db))
        now = clock.now()
        async with ctx.db.write() as tx:
            await note_replica(tx, watch.me, now, now - FORGOTTEN)
        await check_at_start(ctx, watch.copied(), watch.me)
    except (Exception, asyncio.CancelledError) as error:
        await close(ctx)
        if isinstance(error, schema.SchemaError | asyncio.CancelledError):
            raise
        raise NotNow(cause) from error
    return ctx


async def prepared_in_time(
    prepare: Callable[[], Awaitable[Context]],
    watch: EndWatch,
    serving: Callable[[ASGIApp], AbstractAsyncContextManager[None]],
    stopping: asyncio.Event,
) -> Context | None:
    """Return the context; serve ends only until the cause is gone. None: the process was stopped before that.

    Where no earlier process left a copy nothing can be overdue, and the cause ends this start as an error.
    """
    try:
        return await prepare()
    except NotNow as error:
        if not watch.has_copy:
            raise (error.__cause__ or error) from None
        cause = error
    watch.start()
    await watch.first_look()
    log.error("serving ends only: %s", cause)
    watch.page(
        "start",
        f"GPU Shopper started, but {cause}. It only ends what was approved until now; it takes no requests and no "
        "approvals. It starts to work as soon as the cause is gone.",
    )
    async with serving(ends_only(str(cause), lambda: watch.healthy)):
        while not stopping.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout(AGAIN_S):
                    await stopping.wait()
                return None
            try:
                ctx = await prepare()
            except NotNow as again:
                log.warning("serving ends only: %s", again)
                continue
            watch.page("start/over", "GPU Shopper works normally again.")
            watch.take_up(ctx.policy, ctx.timing)
            return ctx
    return None
