"""Triggers, response_urls, view hashes, rate limits, retries and faults: what breaks bots on the real platform."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from slack_sdk.errors import SlackApiError
from slack_sdk.web.async_client import AsyncWebClient

from bot.clock import TravelClock
from bot.practice.app import Practice
from bot.practice.driver import Driver
from bot.practice.faults import SlackFault
from bot.practice.limits import PER_MINUTE
from bot.practice.workspace import Workspace
from tests.practice.echo_app import BOT_TOKEN, EchoApp, modal, plain
from tests.practice.test_web_api import error_of

HOME = {"type": "home", "blocks": [{"type": "divider"}]}


@pytest.fixture
def client(practice: Practice) -> AsyncWebClient:
    return AsyncWebClient(token=BOT_TOKEN, base_url=practice.api_url)


# ── triggers and views ───────────────────────────────────────────────────────────────────────────


async def test_a_trigger_works_once_and_for_three_seconds(client: AsyncWebClient, workspace: Workspace) -> None:
    trigger = workspace.new_trigger("U0ALICE")
    await client.views_open(trigger_id=trigger, view=modal())
    assert (await error_of(client.views_open(trigger_id=trigger, view=modal())))["error"] == "exchanged_trigger_id"
    late = workspace.new_trigger("U0ALICE")
    await workspace.travel(3.5)
    assert (await error_of(client.views_open(trigger_id=late, view=modal())))["error"] == "expired_trigger_id"


async def test_a_stack_holds_three_views(client: AsyncWebClient, workspace: Workspace, practice: Practice) -> None:
    async def push() -> Any:
        return await client.views_push(trigger_id=workspace.new_trigger("U0ALICE"), view=modal())

    assert (await error_of(push()))["error"] == "not_found"
    await client.views_open(trigger_id=workspace.new_trigger("U0ALICE"), view=modal())
    await push()
    third = (await push())["view"]
    assert third["previous_view_id"] != third["root_view_id"]
    assert (await error_of(push()))["error"] == "push_limit_reached"
    top = await practice.driver.as_("alice").view()
    practice.workspace.request_url = "http://127.0.0.1:9/"
    await practice.driver.as_("alice").close(top, everything=True)
    assert practice.driver.view_stack("alice") == []


async def test_a_stale_hash_is_a_conflict(client: AsyncWebClient, workspace: Workspace) -> None:
    view = (await client.views_open(trigger_id=workspace.new_trigger("U0ALICE"), view=modal(external_id="mine")))[
        "view"
    ]
    await client.views_update(view_id=view["id"], hash=view["hash"], view=modal(external_id="mine"))
    data = await error_of(client.views_update(view_id=view["id"], hash=view["hash"], view=modal()))
    assert data["error"] == "hash_conflict"
    await client.views_update(external_id="mine", view=modal(title=plain("By name")))
    home = (await client.views_publish(user_id="U0ALICE", view=HOME))["view"]
    await client.views_publish(user_id="U0ALICE", view=HOME, hash=home["hash"])
    data = await error_of(client.views_publish(user_id="U0ALICE", view=HOME, hash=home["hash"]))
    assert data["error"] == "hash_conflict"


async def test_invalid_views_say_why(client: AsyncWebClient, workspace: Workspace) -> None:
    no_submit = {key: value for key, value in modal().items() if key != "submit"}
    data = await error_of(client.views_open(trigger_id=workspace.new_trigger("U0ALICE"), view=no_submit))
    assert "submit is required" in data["errors"][0]
    huge = {"type": "home", "blocks": [{"type": "rich_text", "elements": _many_words()}] * 60}
    data = await error_of(client.views_publish(user_id="U0ALICE", view=huge))
    assert data["error"] == "view_too_large"


def _many_words() -> list[dict[str, Any]]:
    return [{"type": "rich_text_section", "elements": [{"type": "text", "text": "x" * 2900}] * 2}]


# ── response_url ─────────────────────────────────────────────────────────────────────────────────


async def post_to(url: str, **body: Any) -> tuple[int, str]:
    async with httpx.AsyncClient(trust_env=False) as http:
        answer = await http.post(url, json=body)
        return answer.status_code, answer.text if answer.status_code == 200 else answer.json()["error"]


async def test_a_response_url_takes_five_posts(practice: Practice, workspace: Workspace) -> None:
    url = workspace.new_response_url("U0ALICE", "C0GENERAL")
    for number in range(5):
        assert await post_to(url, text=str(number)) == (200, "ok")
    assert await post_to(url, text="6") == (404, "used_url")
    assert len(practice.driver.ephemerals("alice")) == 5


async def test_a_response_url_lives_thirty_minutes(practice: Practice, workspace: Workspace) -> None:
    url = workspace.new_response_url("U0ALICE", "C0GPU")
    await workspace.travel(1801)
    assert await post_to(url, text="late") == (404, "expired_url")
    assert await post_to(url[:-4] + "zzzz", text="x") == (404, "invalid_url")


async def test_a_response_url_replaces_deletes_and_goes_public(practice: Practice, client: AsyncWebClient) -> None:
    ws, workspace = practice.driver, practice.workspace
    posted = await client.chat_postMessage(channel="C0GPU", text="one")
    url = workspace.new_response_url("U0ALICE", "C0GPU", posted["ts"])
    await post_to(url, text="two", replace_original=True)
    assert [m.text for m in ws.channel_messages()] == ["two"]
    await post_to(url, text="in a thread", response_type="in_channel", thread_ts=posted["ts"])
    assert [m.text for m in ws.thread(ws.channel_messages()[0])] == ["in a thread"]
    await post_to(url, delete_original=True)
    assert ws.channel_messages() == []
    assert await post_to(url, delete_original=True) == (404, "message_not_found")
    assert await post_to(url, text="new", replace_original="true") == (200, "ok")
    fresh = workspace.new_response_url("U0ALICE", "C0GENERAL")
    await post_to(fresh, text="everybody", response_type="in_channel")
    assert [m.text for m in ws.channel_messages("#general")] == ["everybody"]
    assert await post_to(fresh) == (400, "no_text")


async def test_a_response_url_takes_forms_and_refuses_nonsense(practice: Practice, workspace: Workspace) -> None:
    url = workspace.new_response_url("U0ALICE", "C0GPU")
    async with httpx.AsyncClient(trust_env=False) as http:
        assert (await http.post(url, data={"payload": '{"text": "from a form"}'})).status_code == 200
        assert (await http.post(url, data={"payload": "[]"})).json()["error"] == "invalid_payload"
        broken = await http.post(url, content=b"{", headers={"content-type": "application/json"})
        assert (broken.status_code, broken.json()["error"]) == (400, "invalid_payload")
    assert practice.driver.ephemerals("alice")[0].text == "from a form"


async def test_an_ack_that_cannot_be_shown_is_told_to_the_person(ws: Driver, echo: EchoApp) -> None:
    echo.answer = {}

    async def too_long(ack: Any) -> None:
        await ack("x" * 40_001)

    echo.bolt._async_listeners.clear()
    echo.bolt.command("/gpu")(too_long)
    await ws.as_("alice").command("/gpu help")
    assert 'could not be shown: "msg_too_long"' in ws.notices("alice")[0].text


# ── rate limits ──────────────────────────────────────────────────────────────────────────────────


async def test_strict_rates_answer_429_with_retry_after(client: AsyncWebClient, workspace: Workspace) -> None:
    workspace.limits.strict = True
    await client.chat_postMessage(channel="C0GPU", text="1")
    await client.chat_postMessage(channel="U0BOB", text="another channel")
    with pytest.raises(SlackApiError) as caught:
        await client.chat_postMessage(channel="C0GPU", text="2")
    assert caught.value.response.status_code == 429
    assert caught.value.response.headers["Retry-After"] == "1"
    await workspace.travel(1)
    await client.chat_postMessage(channel="C0GPU", text="2")
    for _ in range(PER_MINUTE[2]):
        await client.users_list()
    assert (await error_of(client.users_list()))["error"] == "ratelimited"
    assert (await client.users_info(user="U0BOB"))["ok"]


# ── faults ───────────────────────────────────────────────────────────────────────────────────────


async def test_a_lost_reply_has_its_effect(client: AsyncWebClient, practice: Practice, workspace: Workspace) -> None:
    workspace.faults.add(SlackFault("api", "chat.postMessage", "lose_reply"))
    client.retry_handlers.clear()
    with pytest.raises(Exception, match=r"(?i)payload|disconnected|expecting|json"):
        await client.chat_postMessage(channel="C0GPU", text="did it arrive?")
    assert [m.text for m in practice.driver.channel_messages()] == ["did it arrive?"]
    await client.chat_postMessage(channel="C0GPU", text="did it arrive?")
    assert [len(group) for group in practice.driver.duplicates("#gpu")] == [2]


async def test_ordered_answers(client: AsyncWebClient, workspace: Workspace) -> None:
    client.retry_handlers.clear()
    workspace.faults.add(SlackFault("api", "*", "http_500"))
    workspace.faults.add(SlackFault("api", "auth.test", "error", error="account_inactive"))
    workspace.faults.add(SlackFault("api", "auth.test", "rate_limited", seconds=7))
    workspace.faults.add(SlackFault("api", "auth.test", "delay", seconds=0.01))
    with pytest.raises(SlackApiError) as caught:
        await client.auth_test()
    assert caught.value.response.status_code == 500
    assert (await error_of(client.auth_test()))["error"] == "account_inactive"
    with pytest.raises(SlackApiError) as caught:
        await client.auth_test()
    assert caught.value.response.headers["Retry-After"] == "7"
    assert (await client.auth_test())["ok"]
    workspace.faults.add(SlackFault("api", "auth.test", "http_500", times=9))
    workspace.faults.clear()
    assert (await client.auth_test())["ok"]


@pytest.mark.parametrize(("where", "kind"), [("moon", "lose"), ("api", "duplicate"), ("delivery", "http_500")])
def test_a_fault_that_does_not_exist_is_refused(where: str, kind: str) -> None:
    with pytest.raises(ValueError, match="fault"):
        SlackFault(where, "*", kind)


async def test_duplicate_deliveries_carry_the_same_signature(ws: Driver, echo: EchoApp, workspace: Workspace) -> None:
    workspace.faults.add(SlackFault("delivery", "slash_commands", "duplicate"))
    assert (await ws.as_("alice").command("/gpu help")).ok
    signatures = {headers["x-slack-signature"] for headers in echo.headers}
    assert (len(echo.headers), len(signatures)) == (2, 1)


async def test_late_lost_and_reordered_deliveries(
    ws: Driver, echo: EchoApp, workspace: Workspace, practice: Practice
) -> None:
    alice = ws.as_("alice")
    workspace.faults.add(SlackFault("delivery", "slash_commands", "lose"))
    assert (await alice.command("/gpu quiet lost")).error == "operation_timeout"
    workspace.faults.add(SlackFault("delivery", "slash_commands", "reorder"))
    assert (await alice.command("/gpu quiet first")).error == "operation_timeout"
    assert (await alice.command("/gpu quiet second")).ok
    workspace.faults.add(SlackFault("delivery", "slash_commands", "late", seconds=200))
    assert (await alice.command("/gpu quiet late")).error == "operation_timeout"
    await workspace.travel(200)
    await practice.courier.settle()
    texts = [body["text"] for kind, body in echo.seen if kind == "command"]
    assert texts == ["quiet second", "quiet first", "quiet late"]


async def test_what_is_held_back_is_given_up_at_the_end(practice: Practice, workspace: Workspace) -> None:
    workspace.faults.add(SlackFault("delivery", "slash_commands", "reorder"))
    workspace.faults.add(SlackFault("delivery", "slash_commands", "late", seconds=900))
    await practice.driver.as_("alice").command("/gpu quiet first")
    await practice.driver.as_("alice").command("/gpu quiet second")
    await practice.courier.aclose()
    assert workspace.log == []


async def test_events_are_tried_four_times(
    ws: Driver, echo: EchoApp, workspace: Workspace, practice: Practice, clock: TravelClock
) -> None:
    workspace.signing_secret = "another"
    await ws.as_("alice").open_home()
    for tries in (2, 3, 4):
        await ws.until(lambda wanted=tries: len(echo.headers) >= wanted)  # type: ignore[misc]
        await ws.until(lambda wanted=tries: len([r for r in workspace.log if r.name == "event"]) >= wanted)  # type: ignore[misc]
        await workspace.travel({2: 60, 3: 300, 4: 0}[tries])
    await practice.courier.settle()
    assert [h.get("x-slack-retry-num") for h in echo.headers] == [None, "1", "2", "3"]
    assert {h.get("x-slack-retry-reason") for h in echo.headers[1:]} == {"http_error"}
    bodies = [r.request["event_id"] for r in workspace.log if r.name == "event"]
    assert len(set(bodies)) == 1


async def test_an_unreachable_app_is_a_failed_connection(ws: Driver, workspace: Workspace, practice: Practice) -> None:
    workspace.request_url = "http://127.0.0.1:9/"
    await ws.as_("alice").open_home()
    await ws.until(lambda: len(workspace.log) >= 2)
    assert workspace.log[-1].response["error"] == "dispatch_failed"


async def test_only_a_travelling_clock_travels(workspace: Workspace) -> None:
    heard: list[float] = []

    async def hook(seconds: float) -> None:
        heard.append(seconds)

    workspace.on_travel.append(hook)
    await workspace.travel(60)
    assert heard == [60]
    due = iter([None, 90.0, 0.2, 90_000.0])
    began = workspace.clock.now()

    async def due_in() -> float | None:
        return next(due)

    workspace.due_in, heard = due_in, []
    await workspace.travel(1000)
    assert heard == [600, 90, 1, 309]  # One stride, what is due, what is due at once, and what is left.
    assert 1000 <= (workspace.clock.now() - began).total_seconds() < 1010
    from_base = workspace.clock
    assert isinstance(from_base, TravelClock)
    workspace.clock = from_base._base
    with pytest.raises(TypeError, match="cannot travel"):
        await workspace.travel(1)
