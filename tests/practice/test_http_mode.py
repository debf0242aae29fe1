"""A real Bolt app on signed HTTP requests."""

from __future__ import annotations

import asyncio

import pytest

from bot.practice.act import NothingToClick
from bot.practice.app import Practice
from bot.practice.driver import Driver
from bot.practice.inputs import NoSuchField
from bot.practice.reader import all_text, button_texts
from tests.practice.echo_app import EchoApp, modal, plain


async def test_a_command_is_answered_only_to_the_person(ws: Driver, echo: EchoApp) -> None:
    outcome = await ws.as_("alice").command("/gpu hello @bob & #gpu <!channel>")
    assert outcome.ok
    assert outcome.status == 200
    answer = (await ws.until(lambda: ws.ephemerals("alice")))[-1]
    assert answer.text.startswith("echo: hello <@U0BOB|bob> &amp; <#C0GPU|gpu> &lt;!channel&gt;")
    assert ws.ephemerals("bob") == []
    assert ws.channel_messages("#gpu") == []


async def test_the_ack_body_is_shown(ws: Driver) -> None:
    await ws.as_("alice").command("/gpu help")
    assert [m.text for m in ws.ephemerals("alice")] == ["at once"]


@pytest.mark.slow
async def test_an_app_that_does_not_ack_is_a_timeout(ws: Driver, practice: Practice) -> None:
    practice.workspace.ack_limit_s = 0.2
    outcome = await ws.as_("alice").command("/gpu silence")
    assert (outcome.ok, outcome.error) == (False, "operation_timeout")
    assert ws.notices("alice")[-1].text == '/gpu failed with the error "operation_timeout".'


async def test_an_app_that_crashes_is_a_failed_dispatch(ws: Driver) -> None:
    outcome = await ws.as_("alice").command("/gpu crash")
    assert (outcome.error, outcome.status) == ("dispatch_failed", 500)


async def test_an_unreachable_app_is_a_failed_dispatch(ws: Driver, practice: Practice) -> None:
    practice.workspace.request_url = "http://127.0.0.1:9/slack/events"
    outcome = await ws.as_("alice").command("/gpu help")
    assert (outcome.error, outcome.status) == ("dispatch_failed", None)


@pytest.mark.parametrize(("line", "error"), [("/gpuu help", "invalid_command"), ("/gpu help", "not_in_threads")])
async def test_the_platform_refuses_some_commands_itself(ws: Driver, echo: EchoApp, line: str, error: str) -> None:
    thread = "1.1" if error == "not_in_threads" else None
    outcome = await ws.as_("alice").command(line, thread_ts=thread)
    assert outcome.error == error
    assert echo.seen == []
    assert len(ws.notices("alice")) == 1


async def test_a_wrong_secret_is_refused_by_the_app(ws: Driver, practice: Practice) -> None:
    practice.workspace.signing_secret = "another"
    outcome = await ws.as_("alice").command("/gpu help")
    assert (outcome.error, outcome.status) == ("dispatch_failed", 401)


async def test_click_updates_the_message_threads_and_writes_to_the_person(ws: Driver, echo: EchoApp) -> None:
    await ws.as_("alice").command("/gpu offer")
    offer = (await ws.until(lambda: ws.channel_messages("#gpu")))[0]
    assert button_texts(offer) == ["Approve", "Reject"]
    assert "*1x H100* for $2.10/h" in all_text(offer)

    assert (await ws.as_("bob").click(offer, "Approve")).ok
    reply = (await ws.until(lambda: ws.dm_messages("bob")))[0]
    assert reply.text == "You approved it"
    final = ws.now(offer)
    assert final.text == "Approved by <@U0BOB>"
    assert final.is_edited
    assert button_texts(final) == []
    assert [m.text for m in ws.thread(offer)] == ["Placing it"]
    assert ws.duplicates() == []
    payload = next(body for kind, body in echo.seen if kind == "approve")
    assert payload["actions"][0]["value"] == "r1"
    assert payload["container"]["message_ts"] == offer.ts
    assert payload["team"]["id"] == payload["user"]["team_id"]


async def test_a_stale_screen_can_still_be_clicked_but_the_new_one_has_no_button(ws: Driver, echo: EchoApp) -> None:
    await ws.as_("alice").command("/gpu offer")
    offer = (await ws.until(lambda: ws.channel_messages("#gpu")))[0]
    await ws.as_("bob").click(offer, "approve")
    await ws.until(lambda: ws.now(offer).is_edited)
    assert (await ws.as_("carol").click(offer, "approve")).ok
    with pytest.raises(NothingToClick, match="there is none"):
        await ws.as_("carol").click(ws.now(offer), "approve")
    assert [kind for kind, _ in echo.seen].count("approve") == 2


async def test_refusal_through_the_response_url_is_private(ws: Driver) -> None:
    await ws.as_("alice").command("/gpu offer")
    offer = (await ws.until(lambda: ws.channel_messages("#gpu")))[0]
    await ws.as_("dave").click(offer, "Reject")
    refusal = (await ws.until(lambda: ws.ephemerals("dave")))[0]
    assert refusal.text == "You may not decide this"
    assert not ws.now(offer).is_edited


async def test_clicks_by_people_who_see_nothing_are_refused(ws: Driver) -> None:
    with pytest.raises(LookupError, match="erin is not in #general"):
        await ws.as_("erin").command("/gpu help", channel="#general")
    with pytest.raises(LookupError, match="nobody is called 'zoe'"):
        ws.as_("zoe")
    with pytest.raises(LookupError, match="no channel is called"):
        ws.channel_messages("#nowhere")


async def test_a_modal_is_opened_filled_in_and_submitted(ws: Driver, echo: EchoApp) -> None:
    await ws.as_("alice").command("/gpu ask")
    view = await ws.as_("alice").view()
    assert view.title == "Ask"
    with pytest.raises(NoSuchField, match="there are reason, hours"):
        await ws.as_("alice").submit(view, {"colour": "red"})
    with pytest.raises(LookupError, match="no option '3'; there are 1, 2"):
        await ws.as_("alice").submit(view, {"reason": "x", "hours": "3"})
    empty = await ws.as_("alice").submit(view, {})
    assert (empty.error, empty.errors) == ("not_filled_in", {"reason": "Please complete this required field."})
    long = await ws.as_("alice").submit(view, {"Reason": "x" * 21})
    assert "at most 20" in long.errors["reason"]
    assert echo.seen[-1][0] == "command"

    assert (await ws.as_("alice").submit(view, {"reason": "training", "hours": "Two hours"})).ok
    assert ws.view("alice") is None
    state = echo.seen[-1][1]["view"]["state"]["values"]
    assert state["reason"]["reason"]["value"] == "training"
    assert state["hours"]["hours"]["selected_option"]["value"] == "2"


async def test_answers_to_a_submission(ws: Driver, echo: EchoApp) -> None:
    alice = ws.as_("alice")
    await alice.command("/gpu ask")
    view = await alice.view()
    echo.answer = {"response_action": "errors", "errors": {"reason": "Say more"}}
    refused = await alice.submit(view, {"reason": "x"})
    assert (refused.ok, refused.errors) == (False, {"reason": "Say more"})
    echo.answer = {"response_action": "errors", "errors": {"no_such_block": "?"}}
    assert (await alice.submit(view)).error == "invalid_app_response"
    echo.answer = {"response_action": "push", "view": modal(title=plain("Top"))}
    await alice.submit(view, {"reason": "y"})
    assert [v.title for v in ws.view_stack("alice")] == ["Ask", "Top"]
    echo.answer = {"response_action": "update", "view": modal(title=plain("Changed"))}
    top = await alice.view()
    await alice.submit(top, {"reason": "z"})
    assert [v.title for v in ws.view_stack("alice")] == ["Ask", "Changed"]
    echo.answer = {"response_action": "clear"}
    await alice.submit(top)
    assert ws.view("alice") is None


async def test_buttons_in_a_modal_and_closing_it(ws: Driver, echo: EchoApp) -> None:
    alice = ws.as_("alice")
    await alice.command("/gpu ask")
    view = await alice.view()
    assert (await alice.click(view, "More", values={"reason": "half written"})).ok
    two = await ws.until(lambda: (v := ws.view("alice")) and v.title == "Two" and v)
    assert two
    assert two.id == view.id
    assert two.hash != view.hash
    assert two.state["reason"]["reason"]["value"] == "half written"
    assert (await alice.close(two)).ok
    assert echo.seen[-1][0] == "closed"
    with pytest.raises(LookupError, match="has no view"):
        await alice.submit(two)


async def test_the_home_tab_and_messages_are_events(ws: Driver, echo: EchoApp) -> None:
    await ws.as_("alice").open_home()
    home = await ws.until(lambda: ws.home("alice"))
    assert home
    assert "Nothing is running" in all_text(home)
    await ws.as_("alice").say("hello <!channel>")
    await ws.until(lambda: any(kind == "message" for kind, _ in echo.seen) or None)
    assert echo.seen[-1][1]["text"] == "hello &lt;!channel&gt;"


async def test_until_says_what_is_on_the_screens(ws: Driver) -> None:
    await ws.as_("alice").say("look here")
    with pytest.raises(TimeoutError, match="look here"):
        await ws.until(lambda: False, timeout_s=0.05)


async def test_two_clicks_at_once_both_arrive(ws: Driver, echo: EchoApp) -> None:
    await ws.as_("alice").command("/gpu offer")
    offer = (await ws.until(lambda: ws.channel_messages("#gpu")))[0]
    await asyncio.gather(ws.as_("bob").click(offer, "reject"), ws.as_("carol").click(offer, "reject"))
    assert {body["user"]["name"] for kind, body in echo.seen if kind == "reject"} == {"bob", "carol"}
