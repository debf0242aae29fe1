"""Budgets and costs over REST: one's own, and everybody's for a key that sees everything."""

from __future__ import annotations

from decimal import Decimal

from bot.services.runtime.commands import FinishSession
from bot.services.sessions import service
from tests.api.door import Door, code_of
from tests.support.world import ALICE, facts


async def test_costs_are_ones_own_or_everybodys(sqlite_door: Door) -> None:
    door, w = sqlite_door, sqlite_door.w
    atlas, root = await door.key(), await door.key("operator:root", scopes=("admin",))
    request_id = await w.running(candidates=("vast",))
    assert (await service.done(w.ctx, FinishSession(request_id, facts(ALICE)))).ok
    await w.run(150, 15)
    booked = (await w.session((await door.request(root, request_id))["session_id"])).accrued_usd
    everything = (await door.call("GET", "/costs", root)).json()
    assert Decimal(everything["month_usd"]) == booked > 0
    assert sum(Decimal(one["usd"]) for one in everything["groups"]["cloud"]) == booked
    finished = everything["finished"]
    assert (finished["runs"], finished["successes"], Decimal(finished["spent_usd"])) == (1, 1, booked)
    for key, query in ((atlas, ""), (root, "?mine=true")):
        own = (await door.call("GET", f"/costs{query}", key)).json()
        assert Decimal(own["month_usd"]) == 0
    assert (await door.call("GET", "/budgets", atlas)).json() == []
    # A name that no program can have is refused like a wrong word, and is no error of ours.
    for key in (atlas, root):
        nobody = await door.call("GET", "/costs?consumer=at/las", key)
        assert (nobody.status_code, code_of(nobody)) == (422, "bad_consumer")
    hermes = await door.key("hermes", "operator:hugo")
    for key, name, period in (
        (atlas, "atlas", "month"),
        (root, "atlas", "year"),
        (await door.key("operator:ada"), "atlas", "day"),
    ):
        own = await door.call("GET", f"/costs?consumer={name}&period={period}", key)
        assert (own.status_code, Decimal(own.json()["month_usd"])) == (200, Decimal(0))
    refused = await door.call("GET", "/costs?consumer=atlas", hermes)
    assert (refused.status_code, code_of(refused)) == (403, "not_yours")


async def test_a_month_as_a_file_and_as_a_statement(sqlite_door: Door) -> None:
    door = sqlite_door
    atlas, root = await door.key(), await door.key("operator:root", scopes=("admin",))
    for key in (atlas, root):
        file = await door.call("GET", "/costs/focus?month=2026-02", key)
        assert (file.status_code, file.headers["content-type"].partition(";")[0]) == (200, "text/csv")
        assert file.text.startswith("BilledCost,BillingAccountId,")
        assert 'filename="focus-2026-02.csv"' in file.headers["content-disposition"]
    wrong = await door.call("GET", "/costs/focus?month=2026-13", root)
    assert (wrong.status_code, code_of(wrong)) == (422, "invalid")
    refused = await door.call("GET", "/costs/statement?team=ml", atlas)
    assert (refused.status_code, code_of(refused)) == (403, "scope_missing")
    unknown = await door.call("GET", "/costs/statement?team=ml", root)
    assert (unknown.status_code, code_of(unknown)) == (404, "unknown_team")
