"""Requests that wait, at a terminal: asking, approving in advance, revoking, and repeating a request."""

from __future__ import annotations

from bot.cli.access.settings import operator
from bot.rules.jobs.stored import job_of
from bot.services.access import api_keys
from bot.services.access.api_keys import NewKey
from ledger.kernel.ids import short_id
from ledger.kernel.states import GrantState, RequestState
from tests.cli.test_doors import Terminal, elsewhere, terminal

__all__ = ["elsewhere", "terminal"]

WAITS = ("provision", "4090", "2h", "--below", "0.01", "--budget", "50", "--until", "6h")


async def newest(t: Terminal) -> str:
    return (await t.w.books()).requests[-1].id


async def test_limits_are_approved_in_advance_and_revoked(terminal: Terminal) -> None:
    t = terminal
    atlas = await api_keys.create(t.w.ctx.db, t.w.ctx.labels, NewKey("atlas", "UCAROL"), operator(), t.w.clock.now())
    t.far(str(atlas.data["token"]))
    said = await t.good(*WAITS)
    assert " waits for 1× RTX4090 at $0.010/h or less until " in said
    request_id = await newest(t)
    t.far()
    shown = await t.good("request", request_id)
    assert "It never costs more than $50.00." in shown
    assert "waiting for an offer" in await t.good("requests", "--waiting")
    code, _, err = await t.run("approve", request_id)
    assert code == 2
    assert f"gpu-shopper approve {short_id(request_id)} --max-usd 50" in err
    code, _, _ = await t.run("approve", request_id, "--max-usd", "49")
    assert code == 2
    done = await t.good("approve", request_id, "--max-usd", "50")
    assert "You approved it in advance: at most $0.010/h and $50.00 in all." in done
    assert " up to $50.00." in await t.good("request", request_id)
    assert "You revoked your approval in advance" in await t.good("revoke", request_id)
    assert [row.state for row in (await t.w.books()).advances] == [GrantState.VOID]


async def test_a_request_is_repeated(terminal: Terminal) -> None:
    t = terminal
    t.near()
    await t.good("provision", "4090", "2h")
    first = await newest(t)
    assert f"Again as {short_id(first)}." in await t.good("again")
    assert f"Again as {short_id(first)}." in await t.good("again", short_id(first))
    rows = (await t.w.books()).requests
    assert [row.state for row in rows] == [RequestState.QUOTING] * 3
    assert len({job_of(row.job) for row in rows}) == 1
