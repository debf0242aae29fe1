"""Results of a queue's commands: the first report counts, and every machine of a session knows all of them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from ledger.engine.db import Database
from ledger.kernel.states import InstanceState, SessionState
from ledger.models import Instance
from ledger.queries.jobs.command_results import EarlierResults, add_results, earlier_results, results_of
from tests.support import rows
from tests.support.clock import START

MINUTE = timedelta(minutes=1)


def report(of: Instance, number: int, exit_code: int | None, gpu: int = 0) -> dict[str, Any]:
    """What an instance reports of one command."""
    times = {"started_at": START, "ended_at": START + MINUTE, "recorded_at": START + MINUTE}
    facts = {"gpu": gpu, "exit_code": exit_code, "attempts": 1, "log_tail": f"exit {exit_code}"}
    return {"session_id": of.session_id, "number": number, "instance_id": of.id, **facts, **times}


async def test_a_result_that_is_reported_again_stays_as_it_was(db: Database) -> None:
    async with db.write() as tx:
        first = await rows.instance(tx, InstanceState.GONE, of=await rows.session(tx, SessionState.RUNNING))
        second, stranger = await rows.replacement(tx, first), await rows.instance(tx)
        await add_results(tx, [report(first, 2, None), report(first, 1, 0)])
        await add_results(tx, [report(second, 1, 1, gpu=3), report(second, 3, 0, gpu=3)])
        await add_results(tx, [report(stranger, 1, 9)])
        await add_results(tx, [])
    async with db.read() as tx:
        stored = await results_of(tx, first.session_id)
        assert [(row.number, row.exit_code, row.instance_id, row.gpu, row.log_tail) for row in stored] == [
            (1, 0, first.id, 0, "exit 0"),
            (2, None, first.id, 0, "exit None"),
            (3, 0, second.id, 3, "exit 0"),
        ]
        assert [row.ended_at for row in stored] == [START + MINUTE] * 3
        assert [row.exit_code for row in await results_of(tx, stranger.session_id)] == [9]
        assert await results_of(tx, "ses_none") == []


async def test_each_machine_of_a_session_knows_the_results_of_all(db: Database) -> None:
    async with db.write() as tx:
        first = await rows.instance(tx, InstanceState.GONE, of=await rows.session(tx, SessionState.RUNNING))
        second = await rows.replacement(tx, first)
        bare, unread = await rows.instance(tx), await rows.instance(tx)
        for number, exit_code in ((1, 0), (4, 1), (5, None)):
            await rows.command_result(tx, first, number, exit_code)
        await rows.command_result(tx, second, 2)
        await rows.command_result(tx, unread, 1)
    async with db.read() as tx:
        # A command whose end nobody saw counts as failed.
        whole = EarlierResults(frozenset({1, 2, 4, 5}), failed=2)
        assert await earlier_results(tx, [first.id, second.id, bare.id]) == {first.id: whole, second.id: whole}
        assert await earlier_results(tx, []) == {}
