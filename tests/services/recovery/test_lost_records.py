"""A start beside whose ledger no record is: what is open is asked about, unless the last process has just stopped."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from pathlib import Path

import pytest

from bot.services.runtime import ends_copy
from bot.services.runtime.epoch import NAME as EPOCH
from ledger.queries.ends import forget_replica
from tests.services.recovery.restoring import Copies, Service, lose_records, restarted


async def test_a_request_that_is_open_in_the_copy_is_not_approved_by_the_policy(
    running: Service, copies: Copies
) -> None:
    """It was approved in the lost part, and what it had bought was ended by people."""
    w = running.w
    until = (w.clock.now() + timedelta(days=1)).date()
    w.tune(auto_approve_below_usd=Decimal(5), auto_approve_signed_by="operator:ada", auto_approve_until=until)
    request_id = str((await w.ask(candidates=("vast",))).data["request_id"])
    copy = await copies.take(*running.databases)
    await running.run(30)
    assert (await w.end(request_id)).ok
    await running.run(30)
    lose_records(running.folder)
    async with restarted(running, copy) as later:
        await later.run(30)
        assert (await later.differences())[0].startswith("Nothing shows how old the ledger is")
        assert (later.pages, len(w.engine.creates)) == (["ledger/older"], 1)


@pytest.mark.parametrize(("pause_s", "asks"), [(30, False), (90, True)])
async def test_a_start_right_after_a_clean_stop_needs_no_record(
    running: Service, tmp_path: Path, pause_s: int, *, asks: bool
) -> None:
    """The folder of the process before went with its container, and the ledger is the same one."""
    w = running.w
    await w.approved(candidates=("vast",))
    await running.dog.probe()
    async with w.ctx.db.write() as tx:
        await forget_replica(tx, "first")
    w.clock.advance(pause_s)
    fresh = tmp_path / "fresh"
    fresh.mkdir(mode=0o700)
    async with restarted(running, w.ctx.db.url.render_as_string(hide_password=False), "next", folder=fresh) as later:
        assert bool(await later.differences()) is asks


async def test_a_process_that_is_killed_right_after_the_first_request_finds_its_own_ledger(
    running: Service,
) -> None:
    """Nothing had been written of that request outside the ledger, but an epoch was there since the start."""
    await running.w.ask(candidates=("vast",))
    async with restarted(running, running.w.ctx.db.url.render_as_string(hide_password=False)) as later:
        assert await later.differences() == []


@pytest.mark.parametrize("lost", [(), (EPOCH,), (ends_copy.NAME,)])
async def test_records_of_an_empty_ledger_do_not_prove_one_that_was_used_before(
    running: Service, copies: Copies, tmp_path: Path, lost: tuple[str, ...]
) -> None:
    """A service that ran before its ledger was put back has written records that name nothing."""
    empty = await copies.take(*running.databases)
    await running.w.ask(candidates=("vast",))
    copy = await copies.take(*running.databases)
    running.w.clock.advance(120)
    fresh = tmp_path / "fresh"
    fresh.mkdir(mode=0o700)
    async with restarted(running, empty, folder=fresh) as first:
        await first.run(30)
        assert await first.differences() == []
    for name in lost:
        (fresh / name).unlink()
    async with restarted(running, copy, folder=fresh) as later:
        assert (await later.differences())[0].startswith("Nothing shows how old the ledger is")
    async with restarted(running, empty, folder=fresh) as again:
        assert await again.differences() == []
