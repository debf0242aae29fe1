"""The way in: keys, scopes, rates, sizes and shapes, before and behind the routes."""

from __future__ import annotations

import pytest
from sqlalchemy import text
from starlette.types import Message

from bot.api.app import build_api
from bot.api.dependencies import ApiSettings, Dependencies
from bot.api.limits import SharedLimiter
from bot.services.access import api_keys
from ledger.engine.db import Database
from tests.api.door import ADA, DOCUMENT, JOB, Door, code_of, opened
from tests.support.clock import SteppedClock
from tests.support.world import checked_world

PATHS = [
    (method.upper(), path.removeprefix("/api/v1"))
    for path, methods in DOCUMENT["paths"].items()
    for method in methods
    if path.startswith("/api/") and path != "/api/v1/events"  # A stream; its own test reads it.
]


async def test_without_a_working_key_every_route_says_the_same(sqlite_door: Door) -> None:
    door = sqlite_door
    over = await door.key("hermes")
    await api_keys.revoke(door.w.ctx.db, over.split("_")[1], ADA, door.w.clock.now())
    asked = await door.asked(await door.key())
    seen = set()
    for method, path in [*PATHS, ("GET", "/nothing"), ("POST", "/sessions/x/y")]:
        real = path.replace("{request}", asked).replace("{session}", asked).replace("{key_id}", over.split("_")[1])
        for key in ("", over):
            answer = await door.call(method, real, key, content=b"{not json")
            assert (answer.status_code, code_of(answer)) == (401, "unauthenticated"), (method, path)
            seen.add((answer.text, answer.headers["www-authenticate"]))
            door.w.clock.advance(3)  # Guesses are counted.
    assert len(seen) == 1


@pytest.mark.parametrize(
    "header",
    ["Basic {}", "{}", "Bearer", "Bearer {} x", "bearer gpuk_", "Bearer \u00e9", "Bearer " + "x" * 600],
)
async def test_a_key_is_a_bearer_token(sqlite_door: Door, header: str) -> None:
    key = await sqlite_door.key()
    headers = {b"Authorization": header.format(key).encode("latin-1")}
    answer = await sqlite_door.http.get("/api/v1/requests", headers=headers)
    assert (answer.status_code, code_of(answer)) == (401, "unauthenticated")
    assert key not in answer.text
    assert (await sqlite_door.http.get(f"/api/v1/requests?key={key}")).status_code == 401
    good = await sqlite_door.http.get("/api/v1/requests", headers={"Authorization": f"bearer  {key}"})
    assert good.status_code == 200


async def test_a_key_does_what_its_scopes_say(sqlite_door: Door) -> None:
    door = sqlite_door
    narrow = await door.key("atlas", scopes=("market:read",))
    assert (await door.call("GET", "/profiles", narrow)).status_code == 200
    for method, path in PATHS:
        real = path.replace("{request}", "req_0000").replace("{session}", "ses_0000").replace("{cloud}", "vast")
        if path.startswith(("/inventory", "/plans", "/compare", "/profiles")):
            continue
        answer = await door.call(method, real.replace("{key_id}", "0" * 12), narrow, content=b"{not json")
        # A body that cannot be read is said first; nothing is done with it.
        assert (answer.status_code, code_of(answer)) in ((403, "scope_missing"), (422, "invalid")), (method, path)
        answer = await door.call(method, real.replace("{key_id}", "0" * 12), narrow, json={})
        assert (answer.status_code, code_of(answer)) == (403, "scope_missing"), (method, path)
    overseer = await door.key("operator:ada", scopes=("admin",))
    assert (await door.call("GET", "/requests", overseer)).status_code == 200
    refused = await door.call("POST", "/requests/req_0000/approve", overseer, json={"offer_id": "vast:1"})
    assert code_of(refused) == "scope_missing"


async def test_what_comes_in_holds_nothing_unknown_and_names_the_field(sqlite_door: Door) -> None:
    door, key = sqlite_door, await sqlite_door.key()
    for body, field in (
        ({**JOB, "gpus": 2}, "gpus"),
        ({**JOB, "resources": {"gpu": {"nmae": "4090"}}}, "resources.gpu.Gpu.nmae"),
        ({**JOB, "hours": "soon"}, "hours"),
        ({**JOB, "candidates": ["autodl"]}, "candidates"),
    ):
        answer = await door.call("POST", "/sessions", key, json=body)
        assert answer.status_code == 422
        assert field in [one["field"] for one in answer.json()["fields"]], answer.text
    assert code_of(answer) == "bad_word"
    unknown = await door.call("GET", "/inventory?gpus=4090", key)
    assert (unknown.status_code, code_of(unknown)) == (422, "invalid")
    for content in (b"{", b"[]", b"\xff", b"null", b"", b'{"hours": 1e999}', b"}\xfa("):
        answer = await door.call("POST", "/sessions", key, content=content)
        assert (answer.status_code, code_of(answer)) == (422, "invalid"), content
    nothing, patched = await door.call("GET", "/nothing", key), await door.call("PATCH", "/sessions", key)
    assert code_of(nothing) == "not_found"
    assert nothing.json()["detail"].startswith("There is no such route; most begin with /api/v1.")
    assert code_of(patched) == "method_not_allowed"
    assert patched.json()["detail"].startswith("This route takes GET, POST, not PATCH.")
    assert (await door.w.books()).requests == ()


async def test_a_body_has_a_size(sqlite_door: Door) -> None:
    key = await sqlite_door.key()

    async def endless() -> object:
        for _ in range(100):
            yield b" " * 1024

    for content in (b" " * 70_000, endless()):
        answer = await sqlite_door.call("POST", "/sessions", key, content=content)
        assert (answer.status_code, code_of(answer)) == (413, "body_too_large")
        assert "64 KiB" in answer.json()["detail"]


async def test_calls_are_counted_per_key(sqlite_db: Database, clock: SteppedClock) -> None:
    async with checked_world(sqlite_db, clock) as w, opened(w, ApiSettings("C0GPU", calls_per_minute=3)) as door:
        atlas, hermes = await door.key("atlas"), await door.key("hermes")
        left = [(await door.call("GET", "/profiles", atlas)).headers["ratelimit-remaining"] for _ in range(3)]
        assert left == ["2", "1", "0"]
        refused = await door.call("GET", "/profiles", atlas)
        assert (refused.status_code, code_of(refused)) == (429, "rate_limited")
        assert refused.headers["retry-after"] == "20"
        assert (await door.call("GET", "/profiles", hermes)).status_code == 200
        clock.advance(20)
        assert (await door.call("GET", "/profiles", atlas)).status_code == 200
        assert (await door.call("GET", "/profiles", atlas)).status_code == 429


async def test_wrong_keys_are_counted_per_address(sqlite_db: Database, clock: SteppedClock) -> None:
    async with checked_world(sqlite_db, clock) as w, opened(w, ApiSettings(wrong_keys_per_minute=2)) as door:
        key = await door.key()
        answers = [await door.call("GET", "/profiles", "gpuk_wrong") for _ in range(3)]
        assert [one.status_code for one in answers] == [401, 401, 429]
        # Behind a load balancer all have one address, so guesses keep out nobody who has a key, or shows none.
        assert (await door.call("GET", "/profiles", key)).status_code == 200
        assert (await door.call("GET", "/profiles")).status_code == 401
        clock.advance(31)
        assert (await door.call("GET", "/profiles", "gpuk_wrong")).status_code == 401


async def test_an_error_of_ours_is_an_incident_and_says_nothing(
    sqlite_door: Door, caplog: pytest.LogCaptureFixture
) -> None:
    key = await sqlite_door.key()
    async with sqlite_door.w.ctx.db.write() as tx:
        await tx.execute(text("ALTER TABLE ssh_keys RENAME TO mislaid"))
    answer = await sqlite_door.call("GET", "/ssh-keys", key)
    async with sqlite_door.w.ctx.db.write() as tx:
        await tx.execute(text("ALTER TABLE mislaid RENAME TO ssh_keys"))
    assert (answer.status_code, code_of(answer)) == (500, "internal")
    assert "ssh_keys" not in answer.text
    incident = answer.json()["detail"].split()[-1].rstrip(".")
    assert any(incident in line and "ssh_keys" in line for line in caplog.text.split("ERROR"))


@pytest.mark.both_databases
async def test_the_same_call_twice_does_it_once(door: Door) -> None:
    atlas, hermes = await door.key("atlas"), await door.key("hermes")
    same = {"Idempotency-Key": "order-1"}
    first = await door.call("POST", "/sessions", atlas, json=JOB, headers=same)
    again = await door.call("POST", "/sessions", atlas, json=JOB, headers=same)
    assert (first.status_code, again.status_code, again.json()) == (202, 202, first.json())
    assert (again.headers["idempotency-replayed"], again.headers["location"]) == ("true", first.headers["location"])
    other = await door.call("POST", "/sessions", atlas, json={**JOB, "hours": 3}, headers=same)
    assert (other.status_code, code_of(other)) == (409, "idempotency_mismatch")
    theirs = await door.call("POST", "/sessions", hermes, json=JOB, headers=same)
    assert theirs.json()["request_id"] != first.json()["request_id"]
    missing = await door.call("POST", "/sessions", atlas, json=JOB, headers={"Idempotency-Key": ""})
    assert missing.status_code == 422
    assert len((await door.w.books()).requests) == 2
    # A refusal changed nothing, so the same call may succeed once the reason is gone.
    door.w.use({})
    await door.w.settle()


async def test_pages_hold_everything_once(door: Door) -> None:
    key = await door.key("operator:ben")
    ids = []
    for _ in range(4):
        ids.append(await door.asked(key))
        door.w.clock.advance(1)
    found: list[str] = []
    path = "/requests?limit=2"
    for _ in range(4):
        page = (await door.call("GET", path, key)).json()
        found += [one["id"] for one in page["items"]]
        if page["next_cursor"] is None:
            break
        # What comes in meanwhile is on a page before, and moves nothing.
        if len(found) == 2:
            door.w.clock.advance(1)
            await door.asked(key)
        path = f"/requests?limit=2&cursor={page['next_cursor']}"
    assert found == ids[::-1]
    assert (await door.call("GET", "/requests?waiting=true&limit=100", key)).json()["next_cursor"] is None
    assert (await door.call("GET", "/requests?cursor=1", key)).status_code == 422


async def test_prices_that_did_not_change_are_not_sent_again(sqlite_door: Door) -> None:
    door, key = sqlite_door, await sqlite_door.key()
    first = await door.call("GET", "/inventory?gpu=4090&max_price=0.80", key)
    assert first.status_code == 200
    assert all(one["gpu"] == "RTX4090" for one in first.json()["items"])
    in_words = await door.call("GET", "/inventory?words=4090&max_price=0.80", key)
    assert in_words.json()["items"] == first.json()["items"]
    wrong = (await door.call("GET", "/inventory?words=frobnicate", key)).json()
    assert (wrong["code"], wrong["fields"][0]["field"]) == ("bad_word", "")
    door.w.clock.advance(5)
    known = {"If-None-Match": f'W/"x", {first.headers["etag"]}'}
    again = await door.call("GET", "/inventory?gpu=4090&max_price=0.80", key, headers=known)
    assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", first.headers["etag"])
    other = await door.call("GET", "/inventory?gpu=3090", key, headers=known)
    assert other.status_code == 200
    door.w.clock.advance(120)
    assert (await door.call("GET", "/inventory?gpu=4090&max_price=0.80", key, headers=known)).status_code == 200


async def test_keys_of_programs_by_rest_and_of_people_on_the_server(sqlite_door: Door) -> None:
    door = sqlite_door
    admin = await door.key("operator:ada", scopes=("admin",))
    made = await door.call("POST", "/keys", admin, json={"name": "hermes", "owner": "UBEN"})
    assert made.status_code == 201
    token = made.json()["token"]
    assert (await door.call("GET", "/profiles", token)).status_code == 200
    for body, code in (
        ({"name": "operator:mallory", "owner": ""}, "only_programs"),
        ({"name": "hermes", "owner": "UBEN", "scopes": ["approvals:write"]}, "scope_for_people"),
        ({"name": "hermes", "owner": "UEVE"}, "other_owner"),
    ):
        assert code_of(await door.call("POST", "/keys", admin, json=body)) == code
    listed = (await door.call("GET", "/keys", admin)).json()
    assert {one["actor"]: one["state"] for one in listed} == {"consumer:hermes": "active", "operator:ada": "active"}
    assert token.split("_", 2)[2] not in str(listed)
    assert (await door.call("DELETE", f"/keys/{made.json()['key_id']}", admin)).json()["code"] == "key_revoked"
    assert (await door.call("GET", "/profiles", token)).status_code == 401


async def test_replicas_count_together(pg_db: Database, clock: SteppedClock) -> None:
    settings = ApiSettings("C0GPU", calls_per_minute=20)
    async with checked_world(pg_db, clock) as w, opened(w, settings) as one, opened(w.replica(), settings) as two:
        key = await one.key()
        answers = [await (one, two)[n % 2].call("GET", "/profiles", key) for n in range(24)]
        assert [answer.status_code for answer in answers].count(200) == 20
        refused = answers[-1]
        assert (code_of(refused), refused.headers["retry-after"]) == ("rate_limited", "3")
        clock.advance(30)
        again = [await (one, two)[n % 2].call("GET", "/profiles", key) for n in range(12)]
        assert [answer.status_code for answer in again].count(200) == 10
        # While the ledger cannot be asked each counts for itself.
        async with pg_db.write() as tx:
            await tx.execute(text("ALTER TABLE turns RENAME TO mislaid"))
        alone = SharedLimiter(pg_db, clock, 1)
        assert [(await alone.take("k")).allowed for _ in range(2)] == [True, False]
        await two.w.ctx.db.close()


async def test_a_length_that_is_too_large_is_refused_before_a_byte_is_read(sqlite_door: Door) -> None:
    key, answered = await sqlite_door.key(), []

    async def unread() -> Message:
        raise AssertionError("the body was read")

    async def send(message: Message) -> None:
        answered.append(message.get("status"))

    headers = [(b"authorization", f"Bearer {key}".encode()), (b"content-length", b"70000")]
    scope = {"type": "http", "method": "POST", "path": "/api/v1/sessions", "headers": headers, "query_string": b""}
    app = build_api(Dependencies(sqlite_door.w.ctx), {})
    await app(scope, unread, send)
    assert answered == [413, None]
