"""Bills above the approved rate over REST: an administrator lists and confirms them, with the amount and a reason."""

from __future__ import annotations

from decimal import Decimal
from typing import cast

from bot.services.billing import true_up
from ledger.engine.db import Database
from providers.contract import Provider
from tests.api.door import opened
from tests.services.billing.test_true_up import Billed, times
from tests.support.clock import SteppedClock
from tests.support.world import checked_world


async def test_a_bill_is_listed_and_confirmed_by_an_administrator(sqlite_db: Database, clock: SteppedClock) -> None:
    async with checked_world(sqlite_db, clock) as w, opened(w) as door:
        request_id = await w.running(candidates=("vast",))
        w.clock.advance(3600)
        await w.settle()
        await w.end(request_id)
        await w.run(150, 15)
        spent = w.bill()
        w.use({"vast": cast("Provider", Billed(w.ctx.providers["vast"], times(Decimal(4))))})
        w.clock.advance(3 * 86_400)
        assert await true_up.reconcile_due(w.ctx) == 0
        admin, other = await door.key("operator:root", scopes=("admin",)), await door.key()
        assert (await door.call("GET", "/bills", other)).status_code == 403
        (bill,) = (await door.call("GET", "/bills", admin)).json()
        assert abs(Decimal(bill["billed_usd"]) - 4 * spent) < Decimal("0.001")
        assert Decimal(bill["booked_usd"]) <= Decimal(bill["most_usd"]) < Decimal(bill["billed_usd"])
        path, body = f"/bills/{bill['id']}/confirm", {"amount": bill["billed_usd"], "reason": "the invoice says so"}
        assert (await door.call("POST", path, other, json=body)).status_code == 403
        wrong = await door.call("POST", path, admin, json=body | {"amount": "1000"})
        assert wrong.json()["code"] == "amount_mismatch"
        done = await door.call("POST", path, admin, json=body)
        assert (done.status_code, done.json()["code"]) == (200, "bill_confirmed")
        assert (await door.call("GET", "/bills", admin)).json() == []
        assert abs((await w.session(bill["session_id"])).accrued_usd - 4 * spent) < Decimal("0.001")
        w.use({"vast": w.ctx.providers["vast"].inner})  # type: ignore[attr-defined]
        w.clock.advance(60)
        await true_up.reconcile_due(w.ctx)  # The cloud takes it back, and so does the ledger.
