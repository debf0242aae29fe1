"""Why, delegates, changes and break-glass by REST: the same service and the same refusals as at every door."""

from __future__ import annotations

from decimal import Decimal

from ledger.engine.db import Database
from tests.api.door import Door, code_of, opened
from tests.support.clock import SteppedClock
from tests.support.world import BOB, checked_world


async def approve(door: Door, key: str, request_id: str, **changes: object) -> tuple[int, str]:
    shown = await door.request(key, request_id)
    body = {"offer_id": shown["options"][0]["offer_id"], "digest": shown["waiting"]["digest"], **changes}
    answer = await door.call("POST", f"/requests/{request_id}/approve", key, json=body)
    return answer.status_code, answer.json()["code"]


async def test_a_delegate_sees_shortens_and_loses_it_at_once(sqlite_db: Database, clock: SteppedClock) -> None:
    async with checked_world(sqlite_db, clock) as w:
        w.tune(approvers=(BOB.id, "operator:ben"), two_approvers_above_usd=Decimal("0.10"))
        async with opened(w) as door:
            atlas, ben, eve = [await door.key(name) for name in ("atlas", "operator:ben", "operator:eve")]
            request_id = await door.asked(atlas, hours=6)
            path = f"/requests/{request_id}"
            assert code_of(await door.call("GET", path, eve)) == "unknown_id"
            why = (await door.call("GET", f"{path}/why", atlas)).json()
            assert why["required"] == 2
            assert "Needs 2 approvals" in why["sentences"][0]
            given = {"delegate": "operator:eve", "until": f"{clock.now():%Y-%m-%d}"}
            assert code_of(await door.call("PUT", "/delegations", eve, json=given)) == "not_an_approver"
            assert (await door.call("PUT", "/delegations", ben, json=given)).json()["code"] == "delegated"
            (held,) = (await door.call("GET", "/delegations", eve)).json()
            assert (held["delegator"], held["delegate"]) == ("operator:ben", "operator:eve")
            assert await approve(door, eve, request_id, hours="soon") == (422, "bad_word")
            assert await approve(door, eve, request_id, hours="7h") == (422, "hours_raised")
            assert await approve(door, eve, request_id, hours="3h") == (200, "first_of_two")
            assert await approve(door, ben, request_id) == (409, "already_voted")
            shown = await door.request(atlas, request_id)
            assert Decimal(shown["waiting"]["hours"]) == 3
            (vote,) = shown["approvals"]
            assert (vote["approver"], vote["on_behalf_of"], vote["hours"]) == ("operator:eve", "operator:ben", "3")
            assert (await door.call("DELETE", "/delegations", ben)).json()["code"] == "delegation_ended"
            assert code_of(await door.call("GET", path, eve)) == "unknown_id"


async def test_who_is_named_starts_at_once_and_programs_never(sqlite_db: Database, clock: SteppedClock) -> None:
    async with checked_world(sqlite_db, clock) as w:
        w.tune(break_glass=("operator:eve", "consumer:atlas"), break_glass_usd=Decimal(3))
        async with opened(w) as door:
            weak = await door.key("operator:eve", scopes=("requests:read", "requests:write"))
            path = f"/requests/{await door.asked(weak)}/break-glass"
            refused = await door.call("POST", path, weak, json={"reason": "the demo is down"})
            assert (refused.status_code, code_of(refused)) == (403, "scope_missing")
            for name, code in (("atlas", "scope_missing"), ("operator:eve", "break_glass")):
                key = await door.key(name)
                path = f"/requests/{await door.asked(key)}/break-glass"
                answer = await door.call("POST", path, key, json={"reason": "the demo is down"})
                assert answer.json()["code"] == code
            assert [one.approver for one in (await w.books()).approvals] == ["operator:eve"]
