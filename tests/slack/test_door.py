"""The walk of a request through Slack, as the people in it see it."""

from __future__ import annotations

import re
from decimal import Decimal

from bot.practice.reader import all_text, button_texts, buttons
from bot.slack.app import SlackApp
from ledger.kernel.ids import short_id
from ledger.kernel.request_kind import RequestKind
from tests.slack import signing
from tests.slack.conftest import Stage, words_before_the_buttons
from tests.slack.test_commands import KEY, PRIVATE


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
        "fine-tune &lt;!channel&gt;",
        "*Waiting for approval*",
        "on-demand",
        "*about $",
        "never more than $",
        "ends by itself after 2 h",
        "Needs 1 approval from <@U0BOB> or <@U0CAROL>",
        "expires <!date^",
    ):
        assert part in told, part
    assert "<!channel>" not in message.text
    shown = buttons(message)
    assert shown[0]["text"]["text"].startswith("Approve $")
    assert len({b["action_id"] for b in shown}) == len(shown) > 2
    assert [b["action_id"] for b in shown[1:]] == ["offers", "change", "reject", "addkey"]
    assert words_before_the_buttons(message) <= 60
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
    assert "operator ada signed for that until" in told
    assert "Approved by the policy" in stage.ws.dm_messages("alice")[0].text


async def test_from_the_click_to_the_end(stage: Stage) -> None:
    message = await stage.ask()
    await stage.click("bob", message, stage.approve_button(message))
    now = stage.ws.now(message)
    assert buttons(now) == []
    assert "Approved* by <@U0BOB>" in all_text(now)
    await stage.w.run(120)
    ready = all_text(stage.ws.now(message))
    for part in ("confirmed instance", "Reachable over SSH", "*Ready*", "Ends <!date^", "so far"):
        assert part in ready, part
    direct = stage.ws.dm_messages("alice")[-1]
    assert "ssh -p" in direct.text
    assert "/h" in direct.text
    assert not any("ready" in reply.text for reply in stage.ws.thread(message))  # Its owner reads it directly.
    await stage.click("alice", direct, "End it now")
    assert "Ending session" in stage.ws.dm_messages("alice")[-1].text
    await stage.w.run(300)
    assert stage.w.alive() == []
    ended = all_text(stage.ws.now(message))
    assert "Terminated" in ended
    assert stage.ws.now(message).text.count("Ended on request") == 1
    assert "Total: $" in ended
    assert "How each total is made" in stage.ws.thread(message)[-1].text
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
    assert "launch nothing else meanwhile" in told
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
    assert "this offer never costs more than that" in all_text(stage.ws.view("bob") or view)
    await stage.submit("bob", {"amount": amount, "cap": amount})
    assert f"never more than {amount}" in all_text(stage.ws.now(message))


async def test_two_approvers(stage: Stage) -> None:
    await stage.replaced(two_approvers_above_usd=Decimal(0))
    message = await stage.ask()
    await stage.click("bob", message, stage.approve_button(message))
    waiting = stage.ws.now(message)
    assert "<@U0BOB> · Needs 1 more approval from <@U0CAROL> ·" in all_text(waiting)
    assert "You approved the request" in stage.ws.ephemerals("bob")[-1].text
    assert len([b for b in buttons(waiting) if b["action_id"].startswith("approve")]) == 1
    await stage.click("bob", waiting, stage.approve_button(waiting))
    assert "already" in stage.ws.ephemerals("bob")[-1].text
    await stage.click("carol", waiting, stage.approve_button(waiting))
    assert "Approved* by <@U0BOB> and <@U0CAROL>" in all_text(stage.ws.now(message))


async def test_more_than_twelve_hours_is_one_decision_on_the_same_card(stage: Stage) -> None:
    await stage.command("alice", "/gpu provision 1x4090 20h")
    (card,) = stage.ws.channel_messages()
    assert "*20 h is above the 12-hour limit*: approving includes the override." in all_text(card)
    assert words_before_the_buttons(card) <= 60
    approve = stage.approve_button(card)
    rows = {one.kind: short_id(one.id) for one in (await stage.w.books()).requests}
    request, override = rows[RequestKind.PROVISION], rows[RequestKind.OVERRIDE_12H]
    await stage.command("alice", "/gpu list")
    listed = stage.ws.ephemerals("alice")[-1].text
    assert (listed.count(" · waiting for approval · "), request in listed, override in listed) == (1, True, False)
    await stage.as_("alice").open_home()
    opened = await stage.ws.until(lambda: stage.ws.home("alice"))
    assert opened is not None
    home = all_text(opened)
    assert (request in home, override in home) == (True, False)
    named = f"12-hour override of request {request}"
    await stage.command("alice", f"/gpu status {override}")
    assert stage.ws.ephemerals("alice")[-1].text == f"*{named}*, approved with it."
    await stage.command("alice", f"/gpu why {override}")
    why = stage.ws.ephemerals("alice")[-1].text
    assert why.startswith(f"{named}, approved with it. 20 hours in all is above 12 hours, which needs")
    assert "must be approved first" not in why
    assert re.fullmatch(r"Approve 20 h \(\$\d+\.\d\d\)", button_texts(card)[0])
    await stage.click("alice", card, approve)
    said = stage.ws.ephemerals("alice")[-1].text
    assert said == "You can't approve your own request. Ask an approver: <@U0BOB>, <@U0CAROL>."
    await stage.click("bob", card, approve)
    assert "Approved* by <@U0BOB>" in all_text(stage.ws.now(card))
    assert "12-hour override by <@U0BOB>." in all_text(stage.ws.now(card))
    assert len(stage.ws.channel_messages()) == 1
    assert sorted(one.approver for one in (await stage.w.books()).approvals) == ["slack:T0PRACTICE/U0BOB"] * 2


async def test_another_offer_is_chosen_in_a_dialog_and_a_large_amount_is_typed_there(stage: Stage) -> None:
    card = await stage.ask("/gpu provision 8xH100 10h")
    await stage.click("bob", card, "offers")
    dialog = stage.ws.view("bob")
    assert dialog is not None
    options = dialog.blocks[0]["element"]["options"]
    assert 1 <= len(options) <= 10
    assert all(len(one["text"]["text"]) <= 75 and " · about $" in one["text"]["text"] for one in options)
    assert [one["description"]["text"].partition(" · ")[0] for one in options[:1]] == ["recommended"]
    assert all("never more than $" in one["description"]["text"] for one in options)
    approve = button_texts(card)[0].removeprefix("Approve ")
    assert f"about {approve}" in options[0]["text"]["text"]  # What the card approves is what stands first.
    assert [b["block_id"] for b in dialog.blocks if b["type"] == "input"] == ["offer"]
    chosen = options[1]["value"]
    await stage.as_("bob").click(dialog, "offer:pick", value=chosen)
    await stage.settle()
    asking = stage.ws.view("bob")
    assert asking is not None
    label = next(b["label"]["text"] for b in asking.blocks if b.get("block_id") == "amount")
    amount = label.removeprefix("Type ").removesuffix(" to confirm")
    assert f"about {amount}" in options[1]["text"]["text"]
    wrong = await stage.submit("bob", {"offer": chosen, "amount": "a lot"})
    assert set(wrong.errors) == {"amount"}
    assert (await stage.w.books()).approvals == ()
    await stage.submit("bob", {"offer": chosen, "amount": amount})
    (vote,) = (await stage.w.books()).approvals
    assert (vote.confirmed_usd, stage.ws.view("bob")) == (Decimal(amount[1:].replace(",", "")), None)


async def test_whoever_cannot_approve_compares_the_offers_and_reads_who_can(stage: Stage) -> None:
    card = await stage.ask()
    others = int(button_texts(card)[1].removeprefix("Other offers (").removesuffix(")"))
    for who in ("alice", "dave"):
        before = len(stage.ws.ephemerals(who))
        await stage.click(who, card, "offers")
        dialog = stage.ws.view(who)
        assert dialog is not None
        assert "submit" not in dialog.body
        assert all_text(dialog).count("never more than $") == others + 1
        assert all_text(dialog).count("recommended") == 1
        assert "Only an approver can approve one of them: <@U0BOB> or <@U0CAROL>." in all_text(dialog)
        assert [block["type"] for block in dialog.blocks] == ["section"] * (others + 1) + ["context"]
        assert len(stage.ws.ephemerals(who)) == before
    await stage.click("bob", card, stage.approve_button(card))
    await stage.click("alice", card, "offers")
    assert "already approved by <@U0BOB>" in stage.ws.ephemerals("alice")[-1].text
    await stage.click("carol", card, "offers")
    assert "already approved" in stage.ws.ephemerals("carol")[-1].text


async def test_guests_compare_the_offers_of_their_own_requests_only(stage: Stage) -> None:
    card = await stage.ask()
    stage.practice.workspace.users["U0DAVE"].is_guest = True
    stage.w.clock.advance(61)  # What Slack said is remembered for a minute.
    await stage.click("dave", card, "offers")
    assert "Guests can't use GPU Shopper" in stage.ws.ephemerals("dave")[-1].text
    await stage.replaced(guests_may_request=True)
    await stage.click("dave", card, "offers")
    assert "their own requests only" in stage.ws.ephemerals("dave")[-1].text
    assert stage.ws.view("dave") is None
    own = await stage.ask(who="dave")
    await stage.click("dave", own, "offers")
    assert stage.ws.view("dave") is not None


async def test_an_offer_of_a_quote_that_was_replaced_is_not_approved(stage: Stage) -> None:
    card = await stage.ask()
    await stage.click("carol", card, "offers")
    dialog = stage.ws.view("carol")
    assert dialog is not None
    old = dialog.blocks[0]["element"]["options"][0]["value"]
    (request,) = (await stage.w.books()).requests
    for option in (await stage.w.view(request.id)).options:
        stage.w.clouds[option.cloud].withdraw(option.offer_key)
    await stage.click("bob", card, stage.approve_button(card))
    await stage.submit("carol", {"offer": old})
    assert "have changed" in stage.ws.ephemerals("carol")[-1].text
    assert {one.approver for one in (await stage.w.books()).approvals} == {"slack:T0PRACTICE/U0BOB"}


async def test_who_has_no_key_adds_it_from_the_card_before_anything_is_bought(stage: Stage) -> None:
    card = await stage.ask()
    await stage.click("alice", card, "addkey")
    refused = await stage.submit("alice", {"key": PRIVATE})
    assert "private key" in refused.errors["key"]
    await stage.submit("alice", {"key": KEY})
    assert "is registered" in stage.ws.ephemerals("alice")[-1].text
    now = stage.ws.now(card)
    assert "no SSH key" not in all_text(now)
    assert "addkey" not in [b["action_id"] for b in buttons(now)]


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
    assert "No offer fits now" in all_text(message)
    assert "above the highest price" in all_text(message)
    assert buttons(message) == []


async def test_the_form_asks_like_the_words(stage: Stage) -> None:
    await stage.command("alice", "/gpu provision")
    form = stage.ws.view("alice")
    assert form is not None
    await stage.click("alice", form, "More options")
    refused = await stage.submit("alice", {"typed": "RTX 9999", "max": "free"})
    assert set(refused.errors) == {"typed", "max"}
    assert stage.ws.channel_messages() == []
    values = {"gpu": "RTX4090", "hours": "6h", "typed": "", "max": "$50", "for": "from the form"}
    await stage.submit("alice", values)
    assert stage.ws.view("alice") is None
    card = all_text(stage.message())
    for said in ("RTX4090 for 6 hours", "from the form"):
        assert said in card


async def test_the_form_is_sent_as_it_is_proposed(stage: Stage) -> None:
    await stage.command("alice", "/gpu provision")
    await stage.submit("alice", {"for": "evaluate the reranker"})
    assert "for 2 hours" in all_text(stage.message())
    assert "“evaluate the reranker”" in all_text(stage.message())


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


async def test_the_second_approver_reads_who_was_first(stage: Stage) -> None:
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
