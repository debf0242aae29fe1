"""Prepare the ledger and the policy of a process; while that fails, only end what must end, and say why."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import replace
from pathlib import Path

from starlette.types import ASGIApp

from bot.api.health import ends_only
from bot.end_watch import EndWatch
from bot.label_key import LabelKeyMissing, require_label_key
from bot.services.recovery.detection import check_at_start
from bot.services.runtime.context import Context
from bot.services.sessions.end_watchdog import FORGOTTEN
from bot.settings import (
    ENV_FILE,
    PolicyFileError,
    PolicyNotGuarded,
    Settings,
    private_directory,
    refuse_loose,
)
from bot.settings.identity import IdentityError
from bot.wiring import build_context, build_labels, close
from ledger.engine.db import DatabaseUrlError
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
    """Say that this process can't work now, but may later; the message is the cause, for `/readyz` and operators.

    `advice` says more to operators alone. `ledger_refused`: the ledger may be open, but this program can't work on it.
    """

    def __init__(self, cause: str, advice: str = "", *, ledger_refused: bool = False) -> None:
        super().__init__(cause)
        self.advice, self.ledger_refused = advice, ledger_refused


def refuse_loose_modes(settings: Settings) -> None:
    """Raise `ValueError` when other users of this machine could read `.env`, the ledger or the label key."""
    if ENV_FILE.is_file():
        refuse_loose(ENV_FILE)
    private_directory(settings.identity_dir)
    file = settings.sqlite_file
    if file is not None:
        for path in (file, Path(f"{file}-wal"), Path(f"{file}-shm")):
            if path.exists():
                refuse_loose(path)


async def prepared(settings: Settings, clock: Clock, watch: EndWatch, *, migrate: bool) -> Context:
    """Build the context on a ledger with the newest schema that takes writes, and compare that with its records.

    Raises `NotNow`, whose own cause is the `SchemaError`, `ValueError` or other error that stopped it.
    """
    ctx = replace(await _built(settings, clock), epoch=watch.epoch)
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
        if isinstance(error, asyncio.CancelledError):
            raise
        if isinstance(error, schema.SchemaError):
            raise NotNow("the ledger has another schema", str(error), ledger_refused=True) from error
        raise NotNow(cause) from error
    return ctx


async def _built(settings: Settings, clock: Clock) -> Context:
    """Build the context. Raises `NotNow` for what somebody may mend while this process runs."""
    try:
        refuse_loose_modes(settings)
    except ValueError as error:
        raise NotNow("others can reach its files", str(error)) from error
    except OSError as error:
        raise NotNow("its files cannot be read", str(error)) from error
    await _require_label_key(settings)
    try:
        return build_context(settings, clock)
    except PolicyNotGuarded as error:
        raise NotNow("others can change the policy file") from error
    except PolicyFileError as error:
        raise NotNow("the policy file is broken") from error
    except DatabaseUrlError:
        raise  # The settings are read once, so this process can't wait for another one.
    except ValueError as error:
        raise NotNow("its settings cannot be used", str(error)) from error


async def _require_label_key(settings: Settings) -> None:
    """Raise `NotNow` where the label key can't be read or is gone. Only a deployment's first process makes one."""
    try:
        async with asyncio.timeout(REPLY_S):
            await require_label_key(settings)
    except LabelKeyMissing as error:
        raise NotNow("the label key is missing", error.advice) from error
    except DatabaseUrlError:
        raise
    except IdentityError as error:
        raise NotNow("the label key cannot be used", str(error)) from error
    except Exception as error:
        raise NotNow("the ledger cannot be reached") from error
    try:
        build_labels(settings)  # Made before two threads read it.
    except (ValueError, OSError) as error:
        raise NotNow("the label key cannot be used", str(error)) from error


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
    watch.refuse(_why_refused(cause))
    watch.start()
    await watch.first_look()
    log.error("serving ends only: %s. %s", cause, cause.advice)
    watch.page(
        "start",
        f"GPU Shopper started, but {cause}. It only ends what was approved until now; it takes no requests and no "
        f"approvals. It starts to work as soon as the cause is gone. {cause.advice}".strip(),
    )
    async with serving(ends_only(lambda: str(cause), lambda: watch.healthy)):
        while not stopping.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout(AGAIN_S):
                    await stopping.wait()
                return None
            try:
                ctx = await prepare()
            except NotNow as error:
                cause = error
                watch.refuse(_why_refused(cause))
                log.warning("serving ends only: %s", cause)
                continue
            watch.refuse("")
            watch.page("start/over", "GPU Shopper works normally again.")
            watch.take_up(ctx.policy, ctx.timing)
            return ctx
    return None


def _why_refused(cause: NotNow) -> str:
    """Return why the end watchdog may not use the ledger; "" where it may try."""
    return str(cause) if cause.ledger_refused else ""
