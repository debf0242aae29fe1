"""The whole walk by REST alone: a program asks, a person decides, it runs, it ends; and who may see what meanwhile."""

from __future__ import annotations

from decimal import Decimal
from typing import Any, cast

from bot.slack.blocks.request import request_message
from bot.slack.blocks.request_details import request_details
from ledger.engine.db import Database
from ledger.kernel.states import RequestState
from tests.api.door import JOB, Door, code_of, opened
from tests.support.clock import SteppedClock
from tests.support.proxy_provider import Noting, noting
from tests.support.world import BOB, checked_world

LINE = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl me@laptop"
OTHER_LINE = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJdD7y3aLq454yWBdwLWbieU1ebz9/cu7/QEXn9OIeZJ me@desk"


async def approve(door: Door, key: str, request_id: str, **changes: Any) -> Any:
    shown = await door.request(key, request_id)
    body = {"offer_id": shown["options"][0]["offer_id"], "quote_version": shown["quote_version"], **changes}
    return await door.call("POST", f"/requests/{request_id}/approve", key, json=body)


async def test_the_walk_by_rest_alone(db: Database, clock: SteppedClock) -> None:
    async with checked_world(db, clock) as w:
        w.tune(approvers=(BOB.id, "operator:ben"))
        async with opened(w) as door:
            atlas, ben = await door.key("atlas"), await door.key("operator:ben")
            request_id = await door.asked(atlas)
            shown = await door.request(atlas, request_id)
            assert (shown["state"], shown["requester"]) == ("pending", "consumer:atlas")
            assert shown["waiting"]["approvers"] == [BOB.id, "operator:ben"]
            # The same numbers and the same rule as the messages in Slack.
            view = await w.view(request_id)
            spoken = request_message(view, w.ctx.policy).text + request_details(view, w.ctx.policy).text
            assert [Decimal(one["expected_usd"]) for one in shown["options"]] == [o.expected_usd for o in view.options]
            assert shown["waiting"]["rule"] in spoken
            assert "API key atlas asks for" in spoken

            refused = await door.call("POST", f"/requests/{request_id}/approve", atlas, json={"offer_id": "vast:1"})
            assert (refused.status_code, code_of(refused)) == (403, "scope_missing")
            assert not w.engine.creates
            approved = await approve(door, ben, request_id)
            assert (approved.status_code, approved.json()["code"]) == (200, "approved")
            again = await approve(door, ben, request_id)
            assert (again.status_code, code_of(again)) == (409, "already_approved")
            await w.settle()
            await w.run(40, 20)

            (session,) = (await door.call("GET", "/sessions", atlas)).json()["items"]
            assert (session["state"], session["owner"]) == ("running", "consumer:atlas")
            assert session["ssh"]["command"].startswith("ssh ")
            (grant,) = (await w.books()).grants
            assert Decimal(session["policy"]["total_cap_usd"]) == grant.total_cap_usd
            assert Decimal(session["policy"]["price_cap_usd_h"]) == grant.price_cap_usd_h
            assert (await door.call("GET", f"/sessions/{session['id']}", ben)).json()["ssh"] is None
            ended = await door.call("DELETE", f"/sessions/{session['id']}", atlas)
            assert (ended.status_code, ended.json()["code"]) == (202, "terminating")
            await w.run(150, 15)
            over = (await door.call("GET", f"/sessions/{session['id']}", atlas)).json()
            assert over["state"] == "terminated"
            assert Decimal(over["cost_usd"]) == (await w.session(session["id"])).accrued_usd
            assert w.alive() == []


async def test_the_click_in_slack_decides_what_a_program_asked(door: Door) -> None:
    atlas = await door.key()
    request_id = await door.asked(atlas)
    assert (await door.w.decide(request_id)).code == "approved"
    await door.w.settle()
    shown = await door.request(atlas, request_id)
    assert (shown["state"], shown["decided_by"], shown["waiting"]) == ("approved", BOB.ref, None)
    assert shown["session_id"]


async def test_nobody_approves_what_their_own_program_asked(db: Database, clock: SteppedClock) -> None:
    """Ada answers for atlas, and Bob in Slack is the same person as operator:bob."""
    async with checked_world(db, clock) as w:
        w.tune(approvers=(BOB.id, "operator:ada", "operator:bob"), same_person=((BOB.id, "operator:bob"),))
        async with opened(w) as door:
            atlas, ada = await door.key("atlas"), await door.key("operator:ada")
            hermes, bob = await door.key("hermes", BOB.id), await door.key("operator:bob")
            of_ada, of_bob = await door.asked(atlas), await door.asked(hermes)
            for key, request_id in ((ada, of_ada), (bob, of_bob)):
                refused = await approve(door, key, request_id)
                assert (refused.status_code, code_of(refused)) == (403, "requester")
            assert (await w.decide(of_bob)).code == "requester"
            own = await door.asked(ada)
            assert code_of(await approve(door, ada, own)) == "requester"
            assert (await approve(door, bob, of_ada)).status_code == 200
            assert w.engine.creates == []
            # The owner of a program may withdraw and end what it holds.
            cancelled = await door.call("POST", f"/requests/{of_bob}/cancel", bob, json={"reason": "not now"})
            assert cancelled.json()["code"] == "cancelled"
            session = (await door.request(ada, of_ada))["session_id"]
            assert (await door.call("DELETE", f"/sessions/{session}", ada)).status_code == 202
            await w.settle()


async def test_what_is_somebody_elses_does_not_exist(door: Door) -> None:
    atlas, hermes = await door.key("atlas"), await door.key("hermes", "operator:hugo")
    request_id = await door.w.running()
    session = (await door.w.view(request_id)).session
    assert session is not None
    own = await door.asked(atlas)
    for key in (atlas, hermes):
        for method, path in (
            ("GET", f"/requests/{request_id}"),
            ("POST", f"/requests/{request_id}/cancel"),
            ("GET", f"/sessions/{session.id}"),
            ("DELETE", f"/sessions/{session.id}"),
        ):
            answer = await door.call(method, path, key, **({"json": {}} if method == "POST" else {}))
            assert (answer.status_code, code_of(answer)) == (404, "unknown_id"), (method, path)
            missing = path.replace(request_id, "req_0000000000000000").replace(session.id, "ses_0000000000000000")
            nothing = await door.call(method, missing, key, **({"json": {}} if method == "POST" else {}))
            # Nothing tells that it is there: the sentence is the same but for the id that was sent.
            assert nothing.json()["detail"].replace("0000000000000000", "") == answer.json()["detail"].replace(
                path.split("/")[2].rpartition("_")[2], ""
            )
    assert [one["id"] for one in (await door.call("GET", "/requests", atlas)).json()["items"]] == [own]
    assert (await door.call("GET", "/requests", hermes)).json()["items"] == []
    assert (await door.call("GET", "/sessions", atlas)).json()["items"] == []
    assert (await door.w.view(request_id)).request.state is RequestState.APPROVED
    overseer = await door.key("operator:ada", scopes=("admin",))
    assert {one["id"] for one in (await door.call("GET", "/requests", overseer)).json()["items"]} == {own, request_id}


async def test_more_hours_than_the_cap_open_an_override(door: Door) -> None:
    atlas = await door.key()
    request_id = await door.asked(atlas, hours=13)
    shown = await door.request(atlas, request_id)
    override = await door.request(atlas, shown["override_id"])
    assert (override["kind"], override["parent_id"], override["state"]) == ("override_12h", request_id, "pending")
    assert "13 hours" in shown["waiting"]["rule"]


async def test_a_key_of_its_own_for_one_machine(sqlite_db: Database, clock: SteppedClock) -> None:
    async with checked_world(sqlite_db, clock) as w:
        w.wrap("vast", noting)
        async with opened(w) as door:
            atlas = await door.key()
            registered = await door.call("PUT", "/ssh-keys", atlas, json={"public_key": OTHER_LINE})
            assert registered.json()["code"] == "key_added"
            for more, sent in (({"ssh_public_key": LINE}, LINE), ({}, OTHER_LINE)):
                request_id = await door.asked(atlas, candidates=["vast"], **more)
                assert "public_key" not in (await door.request(atlas, request_id))["job"]
                assert (await w.decide(request_id)).ok
                await w.settle()
                specs = cast("Noting", w.ctx.providers["vast"]).specs
                assert specs[-1].public_keys == (sent.rpartition(" ")[0],)
            refused = await door.call(
                "POST", "/sessions", atlas, json={**JOB, "ssh_public_key": "-----BEGIN PRIVATE KEY"}
            )
            assert (refused.status_code, code_of(refused)) == (422, "private_key")
            assert refused.json()["fields"][0]["field"] == "ssh_public_key"
