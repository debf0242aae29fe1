"""Every route for every kind of caller, made from the application itself, so that no route can be forgotten."""

from __future__ import annotations

from typing import Any

from bot.api.app import routes
from bot.api.desk import SCOPE_FIELD, ApiSettings
from bot.services import consumers
from ledger.db import Database
from tests.api.door import ADA, Door, opened
from tests.support.clock import SteppedClock
from tests.support.world import BOB, checked_world

ROUTES = [
    (method.upper(), path.removeprefix("/api/v1"), str(operation[SCOPE_FIELD]))
    for path, methods in routes({}).openapi()["paths"].items()
    for method, operation in methods.items()
    if path.startswith("/api/") and path != "/api/v1/events"  # A stream; its own test reads it.
]
#: A body that every check but the last one takes: what is asked for in it is refused, so that nothing changes.
BODIES: dict[str, dict[str, Any]] = {
    "/requests/{request}/approve": {"offer_id": "vast:0"},
    "/sessions/{session}/extend": {"hours": "soon"},
    "/ssh-key": {"public_key": "none"},
    "/keys": {"name": "!"},
    "/ledger/entries": {"skill": "x", "provider": "x", "action": "x", "amount_usd": "0", "timestamp": "now"},
    "/webhooks": {"url": "http://inside/"},
    "/runs": {"tokens_s": 1},
    "/budgets": {"scope": "nobody", "period": "daily"},
    "/strays/{stray}/adopt": {"hours": 1},
}
#: These would change the session or the request for whoever may; the walks do that.
CHANGES = {
    ("POST", "/requests/{request}/cancel"),
    ("POST", "/sessions/{session}/done"),
    ("POST", "/sessions/{session}/stop"),
    ("POST", "/sessions/{session}/start"),
    ("POST", "/sessions/{session}/restart"),
    ("DELETE", "/sessions/{session}"),
}


async def answered(door: Door, key: str, method: str, path: str, names: dict[str, str]) -> tuple[int, str]:
    body = {"json": BODIES.get(path, {})} if method in ("POST", "PUT") else {}
    answer = await door.call(method, path.format(**names), key, **body)
    said = answer.json()
    return answer.status_code, str(said.get("code", "")) if isinstance(said, dict) else ""


async def test_every_route_for_every_caller(sqlite_db: Database, clock: SteppedClock) -> None:
    async with checked_world(sqlite_db, clock) as w:
        w.tune(approvers=(BOB.id, "operator:ben"))
        async with opened(w, ApiSettings("C0GPU", wrong_keys_per_minute=10_000)) as door:
            keys = {name: await door.key(name) for name in ("atlas", "hermes", "operator:ben", "operator:eve")}
            keys["admin"] = await door.key("operator:root", scopes=("admin",))
            keys["revoked"], keys["anonymous"] = await door.key("zeus"), ""
            await consumers.revoke(w.ctx.db, keys["revoked"].split("_")[1], ADA, clock.now())
            held = await door.asked(keys["atlas"], candidates=["vast"])
            assert (await w.decide(held)).ok
            await w.settle()
            await w.run(40, 20)
            waiting = await door.asked(keys["atlas"])
            names = {
                "request": waiting,
                "session": held,
                "cloud": "vast",
                "key_id": "0" * 12,
                "webhook": f"whk_{'0' * 16}",
                "stray": f"str_{'0' * 16}",
            }
            before = len((await w.books()).events)
            for caller, key in keys.items():
                for method, path, scope in ROUTES:
                    if (method, path) in CHANGES and caller in ("atlas", "operator:ben"):
                        continue
                    status, code = await answered(door, key, method, path, names)
                    right = _right(caller, method, path, scope)
                    assert code in right or str(status) in right, (caller, method, path, status, code, right)
            assert len((await w.books()).events) == before
            assert (await door.request(keys["atlas"], waiting))["state"] == "pending"
            assert (await door.call("DELETE", f"/sessions/{held}", keys["atlas"])).status_code == 202
            await w.settle()


def _right(caller: str, method: str, path: str, scope: str) -> set[str]:
    """The codes (or successes) that a caller may get."""
    of_somebody = "{request}" in path or "{session}" in path
    if caller in ("revoked", "anonymous"):
        return {"unauthenticated"}
    person = caller.startswith("operator:")
    if (scope == "approvals:write" and not person) or (scope == "admin" and caller != "admin"):
        return {"scope_missing"}
    if of_somebody and caller in ("hermes", "operator:eve"):
        return {"unknown_id"}
    if of_somebody and method == "GET":
        return {"200"}
    if of_somebody:
        # Whoever only administers sees everything and ends nothing.
        return {"not_yours"} if (method, path) in CHANGES else {"bad_word", "unknown_offer", "reason_needed"}
    return {
        "200",
        "bad_word",
        "bad_consumer",
        "not_a_key",
        "no_key",
        "unknown_key",
        "bad_url",
        "bad_entry",
        "unknown_webhook",
        "reason_needed",
        "bad_budget",
        *({"not_an_approver"} if path == "/strays/{stray}/adopt" else ()),
    }
