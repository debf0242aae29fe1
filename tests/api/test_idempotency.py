"""Every POST that can spend takes an Idempotency-Key: the same call again does nothing and is answered the same."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from sqlalchemy import update

from bot.services.runtime import recovery_mode
from ledger.engine.db import Database
from ledger.kernel.states import SessionState
from ledger.models import ApiAnswer
from tests.api.door import DOCUMENT, JOB, Door, code_of, opened
from tests.services.runtime.test_recovery_mode import rowless
from tests.support.clock import SteppedClock
from tests.support.world import BOB, checked_world

#: POSTs that take no key, and why sending one twice spends nothing.
NEVER_SPEND = {
    "/api/v1/plans": "only computes",
    "/api/v1/compare": "only computes",
    "/api/v1/requests/{request}/reject": "ends a request; a key is taken and not needed",
    "/api/v1/requests/{request}/cancel": "ends a request",
    "/api/v1/requests/{request}/revoke": "withdraws an approval in advance",
    "/api/v1/requests/{request}/share": "names a person, who is named already the second time",
    "/api/v1/sessions/{session}/shares": "names a person, who is named already the second time",
    "/api/v1/sessions/{session}/transfer": "offers what is offered already the second time",
    "/api/v1/sessions/{session}/transfer/accept": "is answered that the session is theirs already",
    "/api/v1/sessions/{session}/transfer/decline": "finds the offer closed",
    "/api/v1/sessions/{session}/done": "ends a session, or stops its machine",
    "/api/v1/sessions/{session}/stop": "stops a machine",
    "/api/v1/sessions/{session}/token": "makes a token in the place of the one before, which no answer may keep",
    "/api/v1/budgets": "sets a limit, which is the same limit the second time",
    "/api/v1/ledger/entries": "notes what was spent elsewhere, once for each id or content",
    "/api/v1/keys": "makes a key",
    "/api/v1/webhooks": "names an address",
    "/api/v1/webhooks/{webhook}/test": "sends a message",
    "/api/v1/webhooks/{webhook}/rotate": "makes a secret",
    "/api/v1/webhooks/{webhook}/replay": "sends messages",
    "/api/v1/orphans/{orphan}/condemn": "ends an instance",
    "/api/v1/recover": "looks",
    "/api/v1/recover/accept": "accepts the ledger, which a second call finds accepted",
    "/api/v1/bills/{bill}/confirm": "corrects the ledger, which then agrees with the bill",
    "/api/v1/unreachable/gone": "closes rows, which a second call finds closed",
    "/api/v1/runs": "notes a rate",
    "/agent/v1/checkin": "is a report, whose number counts up",
}
REJECT = "/requests/{request}/reject"
#: A move needs a run that trains and saves, so its own test sends it twice: tests/services/relocation/test_doors.py.
MIGRATE = "/api/v1/sessions/{session}/migrate"
#: These clouds rent out no volumes, so its own test sends it twice: tests/api/rentals/test_volume_routes.py.
VOLUMES = "/api/v1/volumes"
SPEND = {
    path
    for path, methods in DOCUMENT["paths"].items()
    for one in methods.get("post", {}).get("parameters", [])
    if one["name"] == "Idempotency-Key" and one["required"]
}


def test_every_post_either_takes_a_key_or_cannot_spend() -> None:
    posts = {path for path, methods in DOCUMENT["paths"].items() if "post" in methods}
    assert posts == SPEND | NEVER_SPEND.keys()
    assert SPEND.isdisjoint(NEVER_SPEND)


class Caller:
    """Sends each call three times: as it is, again, and with something else under the same key."""

    def __init__(self, door: Door) -> None:
        self.door = door
        self.seen: set[str] = set()

    async def post(self, key: str, template: str, body: Any, other: Any, **names: str) -> dict[str, Any]:
        """What the first was answered; `other` is another body, or another path where there is none."""
        path = template.format(**names)
        self.seen.add(f"/api/v1{template}")
        sent: dict[str, Any] = {} if body is None else {"json": body}
        same = {"Idempotency-Key": f"once-{len(self.seen)}"}
        missing = await self.door.call("POST", path, key, **sent, headers={"Idempotency-Key": ""})
        assert (missing.status_code, code_of(missing)) == (422, "invalid"), path
        first = await self.door.call("POST", path, key, **sent, headers=same)
        assert first.status_code in (200, 202), (path, first.text)
        before = await self._ledger()
        again = await self.door.call("POST", path, key, **sent, headers=same)
        assert (again.status_code, again.json()) == (first.status_code, first.json()), path
        assert again.headers["idempotency-replayed"] == "true"
        assert again.headers["location"] == first.headers["location"] == first.json()["url"]
        await self._forget_the_answer()  # As if the process had been killed before it could keep it.
        again = await self.door.call("POST", path, key, **sent, headers=same)
        assert (again.status_code, again.json()) == (first.status_code, first.json()), path
        assert await self._ledger() == before, path
        if body is None:
            wrong = await self.door.call("POST", other.format(**names), key, headers=same)
        else:
            wrong = await self.door.call("POST", path, key, json=other, headers=same)
        assert (wrong.status_code, code_of(wrong)) == (409, "idempotency_mismatch"), path
        assert await self._ledger() == before, path
        found: dict[str, Any] = first.json()
        return found

    async def _forget_the_answer(self) -> None:
        async with self.door.w.ctx.db.write() as tx:
            await tx.execute(update(ApiAnswer).values(status=None, answer=None))

    async def _ledger(self) -> tuple[int, ...]:
        books = await self.door.w.books()
        return tuple(map(len, (books.events, books.requests, books.approvals, books.grants, books.sessions)))


async def test_the_same_call_again_is_answered_the_same_and_does_nothing(
    sqlite_db: Database, clock: SteppedClock
) -> None:
    async with checked_world(sqlite_db, clock) as w:
        w.tune(approvers=(BOB.id, "operator:ben"), break_glass=("operator:eve",), break_glass_usd=Decimal(3))
        async with opened(w) as door:
            atlas, ben, caller = await door.key("atlas"), await door.key("operator:ben"), Caller(door)
            keep = {"hours": "2h", "owner": "operator:ida", "reason": "training of last night"}
            orphan = (await rowless(w)).id
            kept = await caller.post(ben, "/orphans/{orphan}/adopt", keep, {**keep, "hours": "3h"}, orphan=orphan)
            assert kept["code"] == "adopted"
            async with w.ctx.db.read() as tx:
                assert not await recovery_mode.is_on(tx)

            job = {**JOB, "candidates": ["vast"]}
            asked = await caller.post(atlas, "/sessions", job, {**job, "hours": 3})
            await w.settle()
            waiting = await door.request(ben, asked["request_id"])
            yes = {"offer_id": waiting["options"][0]["offer_id"], "quote_version": waiting["quote_version"]}
            await caller.post(
                ben, "/requests/{request}/approve", yes, {**yes, "reason": "another"}, request=waiting["id"]
            )
            await w.settle()
            await w.run(40, 20)
            repeated = {"request": waiting["id"]}
            copied = await caller.post(atlas, "/requests/again", repeated, {"request": waiting["id"][-8:]})
            assert copied["request_id"] != waiting["id"]
            no, dear = await door.asked(atlas, candidates=["vast"]), {"reason": "use the cluster"}
            await caller.post(ben, REJECT, dear, {"reason": "too dear"}, request=no)
            keyless = {"Authorization": f"Bearer {ben}"}
            again = await door.http.post(f"/api/v1/requests/{no}/reject", headers=keyless, json=dear)
            assert code_of(again) == "already_rejected"

            eve = await door.key("operator:eve")
            path, why = "/requests/{request}/break-glass", {"reason": "the demo is at nine"}
            alone = await door.asked(eve, candidates=["vast"])
            assert (await caller.post(eve, path, why, {"reason": "x"}, request=alone))["code"] == "break_glass"

            (session,) = (await door.call("GET", "/sessions", atlas)).json()["items"]
            name = {"session": str(session["id"])}
            more = {"hours": "90m"}
            await caller.post(atlas, "/sessions/{session}/extend", more, {"hours": "2h"}, **name)
            other = "/sessions/{session}/start"
            await caller.post(atlas, "/sessions/{session}/restart", None, other, **name)
            await w.run(40, 20)
            assert (await door.call("POST", f"/sessions/{session['id']}/stop", atlas)).status_code == 202
            await w.run(60, 20)
            await caller.post(atlas, other, None, "/sessions/{session}/restart", **name)
            await w.run(60, 20)
            view = await w.view(waiting["id"])
            assert view.session is not None
            assert view.session.state is SessionState.RUNNING
            row = view.instances[-1]
            w.clouds[row.cloud].disturb(str(row.ref), "offline")
            await w.run(60, 30)
            await caller.post(atlas, "/sessions/{session}/grace", {"choice": "wait"}, {"choice": "give_up"}, **name)
            assert {*caller.seen, MIGRATE, VOLUMES} == {*SPEND, f"/api/v1{REJECT}"}
