"""The walk of a request through Slack, as the people in it see it."""

from __future__ import annotations

from decimal import Decimal

from bot.practice.reader import all_text, button_texts, buttons
from bot.slack.app import SlackApp
from tests.slack import signing
from tests.slack.conftest import Stage


async def test_offers_are_shown_with_everything_to_decide_on(stage: Stage) -> None:
    outcome = await stage.as_("alice").command('/gpu provision 1x4090 2h for="fine-tune <!channel>"')
    assert outcome.ok
    asking = f"Asking {len(stage.ctx.providers)} clouds…"
    assert any(asking in told.text for told in stage.ws.ephemerals("alice"))
    await stage.settle()
    message = stage.message()
    told = all_text(message)
    for part in (
        "1× RTX4090 for 2 hours",
        "<@U0ALICE>",
        "fine-tune <!channel>",
        "Needs 1 approval",
        "<@U0BOB>",
        "<@U0CAROL>",
        "Expires <!date^",
        "expected total",
        "reliability",
        "on-demand",
        "*Price* (quote 1, from the ledger)",
    ):
        assert part in told, part
    assert "<!channel>" not in message.text
    assert message.blocks[-1]["elements"][0]["text"].startswith("*Price*")
    shown = buttons(message)
    assert shown[0]["text"]["text"].startswith("Approve #1 ")
    assert len({b["action_id"] for b in shown}) == len(shown) > 2
    assert shown[-1]["text"]["text"] == "Reject…"
    assert [b.get("style") for b in shown].count("primary") == 1
    assert message.metadata is not None
    assert message.metadata["event_payload"]["id"].startswith("ntf_")


async def test_what_the_policy_approves_by_itself_is_shown_and_told(stage: Stage) -> None:
    until = stage.w.clock.now().date()
    await stage.replaced(
        auto_approve_below_usd=Decimal(5), auto_approve_signed_by="operator:ada", auto_approve_until=until
    )
    message = await stage.ask("/gpu provision 1x4090 2h max=$3")
    told = all_text(message)
    assert buttons(message) == []
    assert "Approved* by the policy" in told
    assert "operator:ada signed for that until" in told
    assert "Approved by the policy" in stage.ws.dm_messages("alice")[0].text


async def test_from_the_click_to_the_end(stage: Stage) -> None:
    message = await stage.ask()
    await stage.click("bob", message, stage.approve_button(message))
    now = stage.ws.now(message)
    assert buttons(now) == []
    assert "Approved* by <@U0BOB>" in all_text(now)
    await stage.w.run(120)
    ready = all_text(stage.ws.now(message))
    for part in ("confirmed instance", "as reported by the cloud", "Reachable over SSH", "*Ready*", "It ends <!date^"):
        assert part in ready, part
    direct = stage.ws.dm_messages("alice")[-1]
    assert "ssh -p" in direct.text
    assert "/h" in direct.text
    assert any("is ready at" in reply.text for reply in stage.ws.thread(message))
    await stage.click("alice", direct, "End it now")
    assert "Ending session" in stage.ws.dm_messages("alice")[-1].text
    await stage.w.run(300)
    assert stage.w.alive() == []
    ended = all_text(stage.ws.now(message))
    assert "Ended" in ended
    assert "It cost" in ended
    assert " ended" in stage.ws.thread(message)[-1].text
    assert "Total: $" in stage.ws.dm_messages("alice")[-1].text
    assert stage.ws.duplicates() == []
    assert await stage.w.violations() == []


async def test_nothing_says_provisioned_before_the_cloud_confirmed(stage: Stage) -> None:
    message = await stage.ask()
    stage.w.arm("create_lands_late", after_s=200)
    await stage.click("bob", message, stage.approve_button(message))
    told = all_text(stage.ws.now(message))
    assert "Approved* by" in told
    assert "*Outcome unknown*" in told
    assert "Searching for the instance" in told
    assert "confirmed instance" not in told
    assert "Ready" not in told
    await stage.w.run(400)
    assert "confirmed instance" in all_text(stage.ws.now(message))


async def test_outsiders_and_the_requester_are_refused_privately(stage: Stage) -> None:
    message = await stage.ask()
    approve = stage.approve_button(message)
    for who, word in (("dave", "Only approvers can do this"), ("alice", "your own request"), ("erin", "")):
        await stage.click(who, message, approve)
        await stage.click(who, message, "reject")
        if word:
            assert word in stage.ws.ephemerals(who)[-1].text
    assert button_texts(stage.ws.now(message)) == button_texts(message)
    assert stage.ws.channel_messages() == [stage.ws.now(message)]
    assert stage.w.alive() == []


async def test_a_rejection_needs_a_reason_and_shows_it(stage: Stage) -> None:
    message = await stage.ask()
    await stage.click("bob", message, "reject")
    view = stage.ws.view("bob")
    assert view is not None
    assert view.body["callback_id"] == "reject"
    refused = await stage.submit("bob", {"reason": "   "})
    assert not refused.ok
    await stage.submit("bob", {"reason": "too <dear> *really*"})
    now = stage.ws.now(message)
    assert buttons(now) == []
    assert "*Rejected* by <@U0BOB>" in all_text(now)
    assert "too <dear> *really*" in all_text(now)
    thread = stage.ws.thread(message)
    assert "rejected by <@U0BOB>" in thread[-1].text
    assert "too &lt;dear&gt; ∗really∗" in thread[-1].text


async def test_an_amount_above_the_limit_is_typed(stage: Stage) -> None:
    message = await stage.ask("/gpu provision 8xH100 10h")
    await stage.click("bob", message, stage.approve_button(message))
    view = stage.ws.view("bob")
    assert view is not None
    assert "Expected total" in all_text(view)
    assert stage.w.instances() == []
    unreadable = await stage.submit("bob", {"amount": "yes"})
    assert not unreadable.ok
    await stage.submit("bob", {"amount": "1.00"})
    again = stage.ws.view("bob")
    assert again is not None
    assert again.id != view.id
    assert "You typed $1.00" in all_text(again)
    label = next(b["label"]["text"] for b in again.body["blocks"] if b.get("block_id") == "amount")
    await stage.submit("bob", {"amount": label.removeprefix("Type ").removesuffix(" to confirm")})
    assert stage.ws.view("bob") is None
    assert "Approved* by <@U0BOB>" in all_text(stage.ws.now(message))


async def test_a_lower_cap_is_kept(stage: Stage) -> None:
    message = await stage.ask("/gpu provision 8xH100 10h")
    await stage.click("bob", message, stage.approve_button(message))
    view = stage.ws.view("bob")
    assert view is not None
    label = next(b["label"]["text"] for b in view.body["blocks"] if b.get("block_id") == "amount")
    amount = label.removeprefix("Type ").removesuffix(" to confirm")
    await stage.submit("bob", {"amount": amount, "cap": "$999,999"})
    assert "The limit can't be above the worst case" in all_text(stage.ws.view("bob") or view)
    await stage.submit("bob", {"amount": amount, "cap": amount})
    assert f"and {amount} in all" in all_text(stage.ws.now(message))


async def test_two_approvers(stage: Stage) -> None:
    await stage.replaced(two_approvers_above_usd=Decimal(0))
    message = await stage.ask()
    await stage.click("bob", message, stage.approve_button(message))
    waiting = stage.ws.now(message)
    assert "1 of 2 approvals" in all_text(waiting)
    assert "You approved the request" in stage.ws.ephemerals("bob")[-1].text
    assert len([b for b in buttons(waiting) if b["action_id"].startswith("approve")]) == 1
    await stage.click("bob", waiting, stage.approve_button(waiting))
    assert "already" in stage.ws.ephemerals("bob")[-1].text
    await stage.click("carol", waiting, stage.approve_button(waiting))
    assert "Approved* by <@U0BOB> and <@U0CAROL>" in all_text(stage.ws.now(message))


async def test_more_hours_are_asked_for_first(stage: Stage) -> None:
    await stage.command("alice", "/gpu provision 1x4090 20h")
    offers, override = stage.ws.channel_messages()
    assert "More than 12 hours" in all_text(override)
    assert [b["action_id"] for b in buttons(offers)] == ["reject"]
    await stage.click("bob", override, "approve:time")
    assert "The time is allowed by <@U0BOB>" in all_text(stage.ws.now(override))
    ready = stage.ws.now(offers)
    await stage.click("bob", ready, stage.approve_button(ready))
    assert "Approved* by <@U0BOB>" in all_text(stage.ws.now(offers))


async def test_expiry_takes_the_buttons_away(stage: Stage) -> None:
    message = await stage.ask()
    stage.w.clock.advance(stage.ctx.policy.request_ttl_s + 1)
    await stage.settle()
    now = stage.ws.now(message)
    assert buttons(now) == []
    assert "*Expired*" in all_text(now)
    await stage.click("bob", message, stage.approve_button(message))
    assert "expired" in stage.ws.ephemerals("bob")[-1].text


async def test_nothing_to_offer_says_why(stage: Stage) -> None:
    message = await stage.ask("/gpu provision 1x4090 2h price=$0.001")
    assert "Nothing to offer" in all_text(message)
    assert "above the highest price" in all_text(message)
    assert buttons(message) == []


async def test_the_form_asks_like_the_words(stage: Stage) -> None:
    await stage.command("alice", "/gpu provision")
    refused = await stage.submit("alice", {"typed": "RTX 9999", "hours": "0"})
    assert not refused.ok
    assert stage.ws.channel_messages() == []
    await stage.submit("alice", {"typed": "4090", "hours": "2h", "for": "from the form"})
    assert stage.ws.view("alice") is None
    assert "from the form" in all_text(stage.message())


async def test_two_doors_in_one_channel_never_post_twice(stage: Stage) -> None:
    other = SlackApp(stage.ctx, stage.settings)
    await other.start()
    try:
        message = await stage.ask()
        await stage.click("bob", message, stage.approve_button(message))
        await stage.w.run(120)
        assert await other.recover(stage.w.clock.now()) == 0
    finally:
        await other.stop()
    assert stage.ws.duplicates() == []


async def test_whoever_comes_second_reads_who_was_first(stage: Stage) -> None:
    message = await stage.ask()
    await stage.click("bob", message, stage.approve_button(message))
    await stage.click("carol", message, stage.approve_button(message))
    assert stage.ws.ephemerals("carol")[-1].text == "This request was already approved by <@U0BOB>."
    await stage.click("carol", message, "reject")
    assert "already approved" in stage.ws.ephemerals("carol")[-1].text


async def test_a_button_of_nobody(stage: Stage) -> None:
    for action in ("approve:1", "reject"):
        button = {"type": "button", "action_id": action, "value": "made-up"}
        payload = {
            "type": "block_actions",
            "team": {"id": "T0PRACTICE"},
            "user": {"id": "U0BOB"},
            "channel": {"id": "C0GPU"},
            "actions": [button],
        }
        body = signing.payload_body(payload)
        answer = await signing.post(stage.door.asgi, body, signing.headers(body, stage.w.clock))
        assert answer.status_code == 200
        await stage.settle()
        assert "no longer exists" in stage.ws.ephemerals("bob")[-1].text


async def test_the_dialog_comes_too_late_to_open_again(stage: Stage) -> None:
    message = await stage.ask("/gpu provision 8xH100 10h")
    await stage.click("bob", message, stage.approve_button(message))
    stage.fault("views.open", "error", error="expired_trigger_id")
    await stage.submit("bob", {"amount": "1.00"})
    told = stage.ws.ephemerals("bob")[-1].text
    assert "You typed $1.00" in told
    assert "click *Approve* again" in told
