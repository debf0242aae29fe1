"""A running session over REST: more time is decided by people, and who may do what is the same as in Slack."""

from __future__ import annotations

from datetime import datetime, timedelta
from decimal import Decimal
from typing import cast

from bot.api.schemas.requests import RequestSummary
from bot.api.schemas.sessions import SessionOut
from bot.cli.terminal.views import request_list, session_details, session_list
from bot.rules.access.sight import Sight
from bot.rules.values.phrases import rate, unreconciled
from bot.services.billing.true_up import range_of
from bot.services.checkpoints.hold import disk_rate
from bot.services.plans.run_history import record_run
from bot.services.sessions.service import status
from bot.slack.blocks.request import CardFacts
from bot.slack.blocks.session import session_ready_and_ended
from bot.slack.blocks.session.status import status as slack_status
from ledger.engine.db import Database
from ledger.kernel.states import InstanceState
from providers.contract import Provider
from tests.api.door import ADA, JOB, Door, code_of, opened
from tests.support.clock import SteppedClock
from tests.support.proxy_provider import Silent
from tests.support.world import BOB, checked_world


async def running(door: Door, key: str, **changes: object) -> str:
    """A session that runs; returns its id."""
    request_id = await door.asked(key, candidates=["vast"], **changes)
    assert (await door.w.decide(request_id)).ok
    await door.w.settle()
    await door.w.run(40, 20)
    (session,) = (await door.call("GET", "/sessions", key)).json()["items"]
    assert session["state"] == "running"
    return str(session["id"])


async def test_more_time_is_asked_for_and_approved_over_rest(db: Database, clock: SteppedClock) -> None:
    async with checked_world(db, clock) as w:
        w.tune(approvers=(BOB.id, "operator:ben"))
        async with opened(w) as door:
            atlas, ben = await door.key("atlas"), await door.key("operator:ben")
            session = await running(door, atlas)
            before = (await door.call("GET", f"/sessions/{session}", atlas)).json()["deadline"]
            body = {"hours": "90m", "reason": "one more epoch"}
            same = {"Idempotency-Key": "more"}
            asked = await door.call("POST", f"/sessions/{session}/extend", atlas, json=body, headers=same)
            assert (asked.status_code, asked.json()["code"]) == (202, "extension_requested")
            again = await door.call("POST", f"/sessions/{session}/extend", atlas, json=body, headers=same)
            assert again.json() == asked.json()
            shown = await door.request(ben, asked.json()["request_id"])
            assert (shown["kind"], shown["state"], shown["requester"]) == ("extend", "pending", "consumer:atlas")
            approve = {"offer_id": shown["options"][0]["offer_id"], "quote_version": shown["quote_version"]}
            approve |= {"hours": "30m", "cap_usd": "0.10", "digest": shown["waiting"]["digest"]}
            approved = await door.call("POST", f"/requests/{shown['id']}/approve", ben, json=approve)
            assert approved.json()["code"] == "approved"
            await w.settle()
            after = (await door.call("GET", f"/sessions/{session}", atlas)).json()
            assert datetime.fromisoformat(after["deadline"]) - datetime.fromisoformat(before) == timedelta(minutes=30)
            assert Decimal(after["hours"]) == Decimal("2.5")
            (vote,) = (await door.request(ben, shown["id"]))["approvals"]
            assert (vote["hours"], Decimal(vote["total_cap_usd"])) == ("0.5", Decimal("0.1"))
            for hours, code in (("soon", "bad_word"), ("", "bad_word"), ("-2h", "bad_word")):
                refused = await door.call("POST", f"/sessions/{session}/extend", atlas, json={"hours": hours})
                assert (refused.status_code, code_of(refused)) == (422, code)
            assert (await door.call("DELETE", f"/sessions/{session}", atlas)).status_code == 202
            await w.settle()


async def test_stopped_started_and_done_over_rest(sqlite_door: Door) -> None:
    door = sqlite_door
    atlas, hermes = await door.key("atlas"), await door.key("hermes", "operator:hugo")
    session = await running(door, atlas)
    for path in ("extend", "done", "stop", "start", "restart"):
        refused = await door.call("POST", f"/sessions/{session}/{path}", hermes, json={"hours": 1})
        assert refused.status_code in (404, 422), path
        refused = await door.call("POST", f"/sessions/{session}/{path}", hermes, json={"hours": 1, "x": 1})
        assert refused.status_code in (404, 422), path
    refused = await door.call("POST", f"/sessions/{session}/done", atlas, json={"storage": "sell"})
    assert (refused.status_code, code_of(refused)) == (422, "invalid")
    for odd in (0, 1, "false", "no", None):
        refused = await door.call("POST", f"/sessions/{session}/done", atlas, json={"succeeded": odd})
        assert (refused.status_code, code_of(refused)) == (422, "invalid"), odd
    stopped = await door.call("POST", f"/sessions/{session}/stop", atlas)
    assert stopped.status_code == 202, stopped.text
    await door.w.run(60, 20)
    assert (await door.call("GET", f"/sessions/{session}", atlas)).json()["state"] == "stopped"
    started = await door.call("POST", f"/sessions/{session}/start", atlas)
    assert started.status_code == 202, started.text
    await door.w.run(60, 20)
    assert (await door.w.books()).instances[0].state is InstanceState.LIVE
    done = await door.call("POST", f"/sessions/{session}/done", atlas, json={"succeeded": False})
    assert done.status_code == 202, done.text
    await door.w.run(150, 15)
    over = (await door.call("GET", f"/sessions/{session}", atlas)).json()
    assert (over["state"], over["end_code"]) == ("terminated", "work_failed")


async def test_who_answers_for_a_program_asks_for_it(sqlite_door: Door) -> None:
    door = sqlite_door
    atlas, ada = await door.key("atlas"), await door.key("operator:ada")
    eve = await door.key("operator:eve")
    mine = await door.asked(ada, consumer="atlas")
    assert (await door.request(atlas, mine))["requester"] == "consumer:atlas"
    assert (await door.request(atlas, await door.asked(atlas, consumer="atlas")))["requester"] == "consumer:atlas"
    for key, consumer in ((eve, "atlas"), (atlas, "hermes"), (ada, "nobody")):
        refused = await door.call("POST", "/sessions", key, json={**JOB, "consumer": consumer})
        assert (refused.status_code, code_of(refused)) == (403, "not_yours")
        assert f"`gpu-shopper keys create {consumer}`" in refused.json()["detail"]


async def test_what_a_silent_cloud_charged_reads_the_same_at_every_door(
    sqlite_db: Database, clock: SteppedClock
) -> None:
    async with checked_world(sqlite_db, clock) as w:
        w.use({"vast": cast("Provider", Silent(w.ctx.providers["vast"]))})
        async with opened(w) as door:
            atlas = await door.key("atlas")
            session = await running(door, atlas)
            live = (await door.call("GET", f"/sessions/{session}", atlas)).json()
            assert (live["unreconciled"], live["low_usd"], live["high_usd"]) == (False, None, None)
            w.clock.advance(1800)
            assert (await door.call("DELETE", f"/sessions/{session}", atlas)).status_code == 202
            await w.run(150, 15)
            between = await range_of(w.ctx, session)
            assert between is not None
            one = SessionOut.model_validate((await door.call("GET", f"/sessions/{session}", atlas)).json())
            (same,) = (await door.call("GET", "/sessions?live=false", atlas)).json()["items"]
            assert SessionOut.model_validate(same) == one
            assert (one.unreconciled, one.low_usd, one.high_usd) == (True, *between)
            said = unreconciled(*between)
            assert said in session_details(one).sentences
            found, view = await status(w.ctx, session), await w.session(session)
            facts = CardFacts(cost_usd=view.accrued_usd)
            page = slack_status(found, w.ctx.policy, facts, w.clock.now(), Sight.OWN, mine=True, between=between)
            assert said in page.text
            assert said in session_ready_and_ended.ended(view, view.accrued_usd, between=between).text


async def test_a_measured_run_names_its_session_to_its_owner_only(sqlite_door: Door) -> None:
    door = sqlite_door
    atlas, hermes = await door.key("atlas"), await door.key("hermes")
    root = await door.key("operator:root", scopes=("admin",))
    session = await running(door, atlas)
    row = await door.w.session(session)
    db, words = door.w.ctx.db, ("model=1B", "tokens=30M", "seq=2048", "batch=64")
    now = door.w.clock.now()
    assert (await record_run(db, words, "RTX4090", 1, Decimal(9000), ADA, now, session=row.session)).ok
    for key, expected in ((atlas, session), (hermes, ""), (root, session)):
        (run,) = (await door.call("GET", "/runs", key)).json()
        assert (run["session_id"], run["gpu"], float(run["measured_tokens_s"])) == (expected, "RTX4090", 9000.0)
        assert run["request_id"] == (row.session.request_id if expected else "")


async def test_a_list_of_requests_says_what_became_of_the_approved_ones(sqlite_door: Door) -> None:
    door = sqlite_door
    atlas = await door.key()

    async def states() -> tuple[str | None, str]:
        (item,) = (await door.call("GET", "/requests", atlas)).json()["items"]
        listed = request_list([RequestSummary.model_validate(item)])
        one = await door.request(atlas, item["id"])
        assert one["session_state"] == item["session_state"]
        return item["session_state"], str(listed.rows[0][1])

    request_id = await door.asked(atlas, candidates=["vast"])
    assert await states() == (None, "waiting for approval")
    assert (await door.w.decide(request_id)).ok
    await door.w.settle()
    await door.w.run(40, 20)
    assert await states() == ("running", "running")
    (session,) = (await door.call("GET", "/sessions", atlas)).json()["items"]
    assert (await door.call("DELETE", f"/sessions/{session['id']}", atlas)).status_code == 202
    await door.w.run(200, 20)
    assert await states() == ("terminated", "ended")


async def test_a_stopped_machine_has_the_price_of_its_disk_alone(sqlite_door: Door) -> None:
    door = sqlite_door
    atlas = await door.key()
    session = await running(door, atlas)
    assert (await door.call("POST", f"/sessions/{session}/stop", atlas)).status_code == 202
    await door.w.run(120, 20)
    shown = SessionOut.model_validate((await door.call("GET", f"/sessions/{session}", atlas)).json())
    assert (shown.state, shown.disk) == ("stopped", None)
    row = (await door.w.books()).instances[0]
    assert shown.now_usd_h == disk_rate(row) != shown.price_usd_h
    listed = session_list([shown]).rows[0]
    assert rate(disk_rate(row)) in listed
    assert rate(row.price_usd_h) not in listed
    assert f"{rate(disk_rate(row))} (its disk)" in str(session_details(shown))
