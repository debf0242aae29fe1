"""Replacements that wait for their resume point, and those that have one."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest
from sqlalchemy import select

from bot.rules.jobs.job import JobRequest
from bot.rules.jobs.stored import job_of
from ledger.core.writes import Tx
from ledger.engine.db import Database
from ledger.kernel.grant import GrantKind
from ledger.kernel.states import OPEN_INSTANCE, GrantState, InstanceState, RequestState, SessionState
from ledger.models import Approval, GrantRow, Instance, Request, ResumePoint, Session
from ledger.queries.jobs.resume_points import (
    PlaceBeside,
    add_resume_point,
    places_beside,
    resume_sentences,
    resume_states,
    unresumed,
)
from tests.support import rows
from tests.support.clock import START

JOB = replace(rows.JOB, run="python train.py", checkpoint="s3://runs/a")


async def lost(tx: Tx, job: JobRequest = JOB) -> Instance:
    """The first machine of a session, which is gone."""
    session = await rows.session(tx, SessionState.RUNNING, of=await rows.request(tx, RequestState.APPROVED, job=job))
    return await rows.instance(tx, InstanceState.GONE, of=session)


async def replacing(tx: Tx, of: Instance, state: InstanceState = InstanceState.LIVE, n: int = 2) -> Instance:
    """A replacement of a machine under its own kind of grant."""
    request = await tx.get_one(Request, of.request_id)
    first = await tx.get_one(GrantRow, of.grant_id)
    by = await tx.get_one(Approval, first.approval_id)
    under = await rows.grant(tx, request, GrantState.USED, by=by, kind=GrantKind.REPLACE, seq=n)
    return await rows.instance(tx, state, of=await tx.get_one(Session, of.session_id), under=under, n=n)


def point(of: Instance, path: str = "s3://runs/a/step-10", **values: Any) -> dict[str, Any]:
    """From where a replacement continues: half an hour of work is lost."""
    facts = {"step": 10, "size_bytes": 1_000, "saved_at": START, "lost_at": START, "lost_usd": Decimal("0.2")}
    ids = {"instance_id": of.id, "session_id": of.session_id, "lost_instance_id": "ins_lost", "path": path}
    return {**ids, **facts, "lost_s": 1_800, "said": f"Continues from {path}.", "found_at": START} | values


async def test_open_replacements_wait_for_a_resume_point(db: Database) -> None:
    async with db.write() as tx:
        open_ones = [await replacing(tx, await lost(tx), state) for state in sorted(OPEN_INSTANCE)]
        for state in set(InstanceState) - OPEN_INSTANCE:
            await replacing(tx, await lost(tx), state)
        await rows.replacement(tx, await lost(tx))  # It is a new create: nothing was lost.
        resumed = await replacing(tx, await lost(tx))
        assert await add_resume_point(tx, **point(resumed))
    async with db.read() as tx:
        waiting = await unresumed(tx)
        assert [one.instance.id for one in waiting] == [row.id for row in open_ones]
        assert {job_of(one.job) for one in waiting} == {JOB}


async def test_the_oldest_replacements_come_first(db: Database) -> None:
    async with db.write() as tx:
        first = await lost(tx, rows.JOB)
        replacements = [await replacing(tx, first, n=n) for n in range(2, 7)]
    async with db.read() as tx:
        assert [one.instance.id for one in await unresumed(tx)] == [row.id for row in replacements]


async def test_a_replacement_has_a_resume_point_or_waits_for_it(db: Database) -> None:
    async with db.write() as tx:
        first = await lost(tx)
        waits, resumed, unread = [await replacing(tx, await lost(tx)) for _ in range(3)]
        for row in (resumed, unread):
            await add_resume_point(tx, **point(row))
    async with db.read() as tx:
        states = await resume_states(tx, [first.id, waits.id, resumed.id])
        assert set(states) == {waits.id, resumed.id}
        assert states[waits.id] is None
        stored = states[resumed.id]
        assert stored is not None
        assert (stored.instance_id, stored.path, stored.step, stored.lost_usd) == (
            resumed.id,
            "s3://runs/a/step-10",
            10,
            Decimal("0.2"),
        )
        ids = [first.id, waits.id, resumed.id]
        assert await resume_sentences(tx, ids) == {resumed.id: "Continues from s3://runs/a/step-10."}
        assert (await resume_states(tx, []), await resume_sentences(tx, [])) == ({}, {})


async def test_the_first_resume_point_of_a_replacement_stays(db: Database) -> None:
    async with db.write() as tx:
        row = await replacing(tx, await lost(tx))
        assert await add_resume_point(tx, **point(row))
        assert not await add_resume_point(tx, **point(row, "s3://runs/a/step-20", step=20))
    async with db.read() as tx:
        (stored,) = await tx.scalars(select(ResumePoint))
        assert (stored.path, stored.step) == ("s3://runs/a/step-10", 10)


@pytest.mark.parametrize("place", ["s3://runs/my_run", "s3://runs/my_run/"])
async def test_places_below_a_save_are_found_and_no_others(db: Database, place: str) -> None:
    async with db.write() as tx:
        below = ("s3://runs/my_run/r2/step-30", "s3://runs/my_run/r3")
        beside = ("s3://runs/my_run", "s3://runs/my_run2/r2", "s3://runs/myxrun/r2", "s3://other/runs/my_run/r2", "")
        machines = [await replacing(tx, await lost(tx), n=n) for n in range(2, 2 + len(below))]
        for row, path in zip(machines, below, strict=True):
            await add_resume_point(tx, **point(row, path, step=30 if row is machines[0] else None))
        for path in beside:
            await add_resume_point(tx, **point(await replacing(tx, await lost(tx)), path))
        silent = await replacing(tx, await lost(tx), n=9)
        await add_resume_point(tx, **point(silent, f"{below[0]}/more"))
        await rows.node(tx, machines[0], report={"lowest_step": 31, "step": 40})
        await rows.node(tx, machines[1])
    async with db.read() as tx:
        assert await places_beside(tx, place) == [
            PlaceBeside(machines[0].request_id, 2, 30, 31),
            PlaceBeside(machines[1].request_id, 3, None, None),
            PlaceBeside(silent.request_id, 9, 10, None),
        ]
