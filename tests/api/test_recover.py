"""Recovery over REST from an empty ledger: one of what runs is ended, one is kept, and its owner has its cost."""

from __future__ import annotations

from decimal import Decimal

import pytest

from bot.rules.access.scopes import Scope
from bot.rules.instances.ledger_age import AgeEvidence, LedgerAge, age_text
from bot.rules.instances.recovery_mode import recovery_notice
from bot.services.runtime import older_ledger, recovery_mode
from ledger.engine.db import Database
from ledger.kernel.ids import new_id
from ledger.kernel.states import InstanceState, RequestState
from providers.sandbox.clock import SandboxTiming
from tests.api.door import opened
from tests.api.test_approvals import approve
from tests.services.runtime.test_recovery_mode import rent
from tests.support.clock import SteppedClock
from tests.support.world import BOB, checked_world


async def test_from_an_empty_ledger_one_is_ended_and_one_is_its_owners(
    sqlite_db: Database, clock: SteppedClock
) -> None:
    async with checked_world(sqlite_db, clock, sandbox=SandboxTiming.quick()) as w:
        w.tune(approvers=(BOB.id, "operator:ben"))
        refs = [rent(w, f"gpu-1x4090-{w.ctx.labels.mint(new_id('req', clock.now()), n)}") for n in range(2)]
        clock.advance(3600)
        async with opened(w) as door:
            root = await door.key("operator:root", scopes=(Scope.ADMIN,))
            ben, ida = await door.key("operator:ben"), await door.key("operator:ida")
            found = (await door.call("POST", "/recover", root)).json()["waiting"]
            assert sorted(one["ref"] for one in found) == sorted(refs)
            keep, drop = found
            over = await door.call("POST", f"/orphans/{drop['id']}/condemn", root, json={"reason": "nobody's"})
            assert over.json()["code"] == "condemned"
            assert await recovery_mode.now_on(w.ctx.db)
            word = {"hours": "2h", "owner": "operator:ida", "reason": "it trains"}
            kept = await door.call("POST", f"/orphans/{keep['id']}/adopt", ben, json=word)
            assert kept.json()["code"] == "adopted", kept.text
            assert not await recovery_mode.now_on(w.ctx.db)
            # The hour before it was adopted is its owner's cost, and nobody else's.
            mine = (await door.call("GET", "/costs?mine=true", ida)).json()
            assert abs(Decimal(mine["today_usd"]) - Decimal(keep["price_usd_h"])) < Decimal("0.02")
            assert Decimal((await door.call("GET", "/costs?mine=true", ben)).json()["today_usd"]) == 0
            await w.run(150, 15)
            assert [one.ref for one in w.instances() if one.alive] == [keep["ref"]]
            session = kept.json()["url"].rpartition("/")[2]
            assert (await door.call("DELETE", f"/sessions/{session}", ida)).status_code == 202
            await w.run(150, 15)
            assert w.alive() == []


@pytest.mark.parametrize("decision", ["approve", "reject"])
async def test_the_request_of_an_adopted_instance_can_still_be_decided(
    sqlite_db: Database, clock: SteppedClock, decision: str
) -> None:
    """The copy of the ledger knows the request, and not that it was approved and its first instance rented."""
    async with checked_world(sqlite_db, clock, sandbox=SandboxTiming.quick()) as w:
        w.tune(approvers=(BOB.id, "operator:ben"))
        async with opened(w) as door:
            ben, atlas = await door.key("operator:ben"), await door.key("atlas")
            request_id = await door.asked(atlas)
            ref = rent(w, f"gpu-1x4090-{w.ctx.labels.mint(request_id, 1)}")
            await w.run(30, 30)
            (orphan,) = (await w.books()).orphans
            word = {"hours": "2h", "owner": "operator:ida", "reason": "it trains"}
            kept = await door.call("POST", f"/orphans/{orphan.id}/adopt", ben, json=word)
            assert kept.json()["code"] == "adopted", kept.text
            if decision == "reject":
                answer = await door.call("POST", f"/requests/{request_id}/reject", ben, json={"reason": "it runs"})
                assert (answer.status_code, answer.json()["code"]) == (200, "rejected")
                return
            assert await approve(door, ben, request_id) == (200, "approved")
            await w.run(60, 20)
            rows = (await w.books()).instances
            assert [(one.ref == ref, one.n, one.state) for one in rows] == [
                (True, 1, InstanceState.LIVE),
                (False, 2, InstanceState.LIVE),
            ]
            assert rows[1].label == w.ctx.labels.mint(request_id, 2)
            assert len(w.alive()) == 2


async def test_an_older_ledger_is_named_and_accepted_by_administrators_alone(
    sqlite_db: Database, clock: SteppedClock
) -> None:
    async with checked_world(sqlite_db, clock, sandbox=SandboxTiming.quick()) as w, opened(w) as door:
        root, ida = await door.key("operator:root", scopes=(Scope.ADMIN,)), await door.key("operator:ida")
        assert (await door.call("POST", "/recover", root)).json()["older"] == []
        refused = await door.call("POST", "/recover/accept", root, json={})
        assert (refused.status_code, refused.json()["code"]) == (409, "not_older")
        request_id = await w.approved(candidates=("runpod",))
        clock.advance(1)
        async with w.ctx.db.write() as tx:
            await older_ledger.contradicted(tx, clock.now())
        found = (await door.call("POST", "/recover", root)).json()
        assert found["older"] == [age_text(LedgerAge(AgeEvidence.CONTRADICTED))]
        assert found["paused"] == recovery_notice(0, is_older=True)
        await w.run(60, 20)
        assert w.engine.creates == []
        assert (await door.call("POST", "/recover/accept", ida, json={})).status_code == 403
        accepted = await door.call("POST", "/recover/accept", root, json={})
        assert accepted.json()["code"] == "ledger_accepted", accepted.text
        assert "1 approved launch was cancelled" in accepted.json()["sentence"]
        assert (await door.call("POST", "/recover/accept", root, json={})).status_code == 409
        await w.run(60, 20)
        assert (await w.view(request_id)).request.state is RequestState.UNAVAILABLE
        assert w.engine.creates == []
