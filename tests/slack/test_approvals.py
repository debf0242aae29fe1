"""Who is asked, why, and where decisions are made, as people see it in Slack."""

from __future__ import annotations

import re
from dataclasses import replace
from decimal import Decimal

from bot.practice.reader import all_text, buttons
from bot.rules.policy.tiers import ApprovalTier
from bot.services.instances import adoption
from bot.services.instances.adoption import Adopt
from ledger.kernel.actor import Actor, ActorKind
from ledger.kernel.states import RequestState
from tests.api.door import opened
from tests.api.test_approvals import approve
from tests.services.runtime.test_recovery_mode import rent
from tests.slack.conftest import Stage
from tests.slack.test_commands import private
from tests.support.world import facts


async def test_a_tier_asks_its_group_and_goes_on_to_the_next(stage: Stage) -> None:
    await stage.replaced(
        approval_groups={"finance": ("U0CAROL",), "directors": ("U0DAVE",)},
        approval_tiers=(ApprovalTier("all", "finance", then=("directors",)),),
    )
    message = await stage.ask()
    told = all_text(message)
    assert "Needs 1 approval from <@U0CAROL> ·" in told
    stage.w.clock.advance(2)
    await stage.settle()
    assert "Tier all: needs 1 approval from finance" in all_text(stage.ws.thread(message)[0])
    await stage.click("bob", message, stage.approve_button(message))
    assert "Only the group finance can do this" in private(stage, "bob").text
    (request,) = (await stage.w.books()).requests
    await stage.command("alice", f"/gpu why {request.id[-6:]}")
    assert "UTC> directors can approve too: <@U0DAVE>" in private(stage, "alice").text
    await stage.command("alice", "/gpu why zzzzzz")
    assert "There is no request" in private(stage, "alice").text
    stage.w.clock.advance(3600)
    await stage.settle()
    pinged = stage.calls("chat.postMessage")[-1]["text"]
    assert "directors can approve it now, too" in pinged
    assert "<@U0CAROL> or <@U0DAVE>: " in pinged
    assert "Needs 1 approval from <@U0CAROL> or <@U0DAVE> ·" in all_text(stage.ws.now(message))
    await stage.click("dave", message, stage.approve_button(message))
    assert "Approved" in all_text(stage.ws.now(message))


async def test_where_slack_only_notifies_nothing_decides_and_a_stale_button_says_where(stage: Stage) -> None:
    message = await stage.ask()
    button = stage.approve_button(message)
    refuse = next(str(one["action_id"]) for one in buttons(message) if str(one["action_id"]).startswith("reject"))
    await stage.replaced(allow_slack_decisions=False)
    for action in (button, refuse):
        await stage.click("bob", message, action)
        assert "You can't approve or reject in Slack here" in private(stage, "bob").text
    assert stage.ws.view("bob") is None
    shown = await stage.ask()
    assert buttons(shown) == []
    assert "gpu-shopper approve" in all_text(shown)
    first = min((await stage.w.books()).requests, key=lambda one: one.created_at)
    assert first.state is RequestState.PENDING
    assert (await stage.w.books()).approvals == ()


async def test_another_listed_option_is_told_as_a_choice(stage: Stage) -> None:
    message = await stage.ask()
    await stage.choose("bob", message)
    said = stage.ws.dm_messages("alice")[-1].text
    assert "Approved: #2 on " in said
    assert "with changes" not in said


async def test_the_dialog_of_changes_speaks_of_offers_as_the_card_does(stage: Stage) -> None:
    card = await stage.ask()
    await stage.click("bob", card, "offers")
    compared = stage.ws.view("bob")
    assert compared is not None
    await stage.click("bob", card, "change")
    dialog = stage.ws.view("bob")
    assert dialog is not None
    fields = {block["block_id"]: block for block in dialog.blocks if block["type"] == "input"}
    listed = fields["offer"]["element"]["options"]
    assert listed == compared.blocks[0]["element"]["options"]
    assert re.fullmatch(r"\w+( · .+)? · \$0\.\d{3}/h · about \$\d\.\d\d", listed[0]["text"]["text"])
    most = listed[0]["description"]["text"].split(" · ")[1].removeprefix("never more than ")
    assert f"never more than {most}" in all_text(card)
    assert fields["cap"]["element"]["placeholder"]["text"] == most
    assert fields["cap"]["hint"]["text"] == "Lower than the “never more than” of the offer."


async def test_a_delegate_shortens_and_the_second_approver_sees_it(stage: Stage) -> None:
    await stage.replaced(two_approvers_above_usd=Decimal("0.01"))
    day = f"{stage.w.clock.now():%Y-%m-%d}"
    for line, said in (
        ("delegate @dave until tomorrow", "is not a day"),
        ("delegate @dave", "through which day"),
        ("delegate nobody until 2026-12-01", "is nobody"),
        (f"delegate @dave until {day} {day}", "one person and one day"),
        ("delegate list now", "takes no words"),
    ):
        outcome = await stage.command("bob", f"/gpu {line}")
        assert said in str(outcome.response), line
    await stage.command("alice", f"/gpu delegate @dave until {day}")
    assert "Only approvers can name a delegate" in private(stage, "alice").text
    await stage.command("bob", f"/gpu delegate @dave until {day}")
    assert "<@U0DAVE> can approve for <@U0BOB>" in private(stage, "bob").text
    await stage.command("carol", "/gpu delegate list")
    assert "<@U0DAVE> can approve for <@U0BOB>" in private(stage, "carol").text
    message = await stage.ask("/gpu provision 1x4090 6h for=x")
    stale = stage.approve_button(message)
    await stage.click("dave", message, "change")
    view = stage.ws.view("dave")
    assert view is not None
    await stage.submit("dave", {"hours": "3h", "cap": "$9000"})
    again = stage.ws.view("dave")
    assert again is not None
    # The same form once more, with what was typed: nothing of a change is lost, and no other form is put in its place.
    assert (again.body["title"]["text"], "this offer never costs more than that" in all_text(again)) == (
        "Approve with changes",
        True,
    )
    assert [one["element"].get("initial_value") for one in again.body["blocks"] if one["type"] == "input"][1:] == [
        "3h",
        "$9000",
    ]
    await stage.submit("dave", {"hours": "9h"})
    longer = stage.ws.view("dave")
    assert longer is not None
    assert "The time can't be above 6 hours" in all_text(longer)
    await stage.submit("dave", {"hours": "3h", "cap": ""})
    shown = all_text(stage.ws.now(message))
    assert "shortened it to 3 h" in shown
    assert "<@U0DAVE> for <@U0BOB>" in shown
    assert "Needs 1 more approval from <@U0CAROL>" in shown
    (request,) = (await stage.w.books()).requests
    await stage.click("carol", message, stale)  # What she clicks is what the message said before.
    assert "changed this after you opened it" in private(stage, "carol").text
    fresh = stage.ws.now(message)
    await stage.click("carol", fresh, stage.approve_button(fresh))
    (grant,) = (await stage.w.books()).grants
    assert grant.hours == "3"
    assert "Approved with changes: 3 hours instead of 6 hours" in stage.ws.dm_messages("alice")[-1].text
    await stage.command("bob", "/gpu delegate off")
    assert "Your delegate can no longer approve for you" in private(stage, "bob").text
    assert request.id == grant.request_id


async def only_dave_is_known(stage: Stage) -> None:
    """Slack has just said who Dave is, and answers nothing more."""
    stage.practice.workspace.faults.clear()
    stage.w.clock.advance(61)  # What Slack said is remembered for a minute.
    people = stage.door.ctx.people
    assert people is not None
    assert (await people.looked_up(Actor(ActorKind.SLACK, "U0DAVE"))).known
    stage.fault("users.info", "error", times=99)


async def test_a_delegate_of_somebody_in_slack_decides_over_rest_as_long_as_slack_knows_them(stage: Stage) -> None:
    w, dave_too, named = stage.w, ("U0DAVE", "operator:dave"), stage.ctx.policy.approvers
    await stage.replaced(same_person=(dave_too,), approvers=(), approver_groups=("S0GPUAPPROVERS",))
    await stage.command("bob", f"/gpu delegate @dave until {w.clock.now():%Y-%m-%d}")
    w.ctx = replace(w.ctx, people=stage.door.ctx.people)
    async with opened(w) as door:  # Bob approves through a user group alone.
        hermes, dave = await door.key("hermes"), await door.key("operator:dave")
        zero = await door.asked(hermes, candidates=["vast"])
        assert [one["id"] for one in (await door.call("GET", "/requests", dave)).json()["items"]] == [zero]
        assert await approve(door, dave, zero) == (200, "approved")
        stage.practice.workspace.usergroups["S0GPUAPPROVERS"].users.remove("U0BOB")
        w.clock.advance(61)  # What Slack said is remembered for a minute.
        assert (await door.call("GET", "/requests", dave)).json()["items"] == []
    await stage.replaced(approvers=named, approver_groups=())
    people = stage.door.ctx.people
    w.ctx = replace(w.ctx, people=people)
    async with opened(w) as door:
        atlas, dave = await door.key("atlas"), await door.key("operator:dave")
        first, second, third = [await door.asked(atlas, candidates=["vast"]) for _ in range(3)]
        assert await approve(door, dave, first) == (200, "approved")
        (vote,) = (await door.request(atlas, first))["approvals"]
        assert (vote["approver"], vote["on_behalf_of"].rpartition("/")[2]) == ("operator:dave", "U0BOB")
        stage.practice.workspace.users["U0BOB"].deleted = True
        w.clock.advance(61)  # What Slack said is remembered for a minute.
        assert await approve(door, dave, second) == (403, "not_an_approver")
        await only_dave_is_known(stage)
        assert await approve(door, dave, second) == (503, "delegator_unknown")
        w.clock.advance(61)
        assert await approve(door, dave, second) == (503, "lookup_failed")
    # The policy names the same person as an operator, too, for whom Slack's silence is no obstacle.
    w.tune(approvers=("U0BOB", "operator:bob"), same_person=(dave_too, ("U0BOB", "operator:bob")))
    async with opened(w) as door:
        await only_dave_is_known(stage)
        assert await approve(door, dave, second) == (200, "approved")
        (vote,) = (await door.request(atlas, second))["approvals"]
        assert vote["on_behalf_of"] == "operator:bob"
        assert (await w.decide(third, Actor(ActorKind.OPERATOR, "bob"))).ok


async def test_a_card_names_both_where_both_are_needed(stage: Stage) -> None:
    one = await stage.ask()
    assert "Needs 1 approval from <@U0BOB> or <@U0CAROL>" in all_text(one)
    await stage.replaced(two_approvers_above_usd=Decimal("0.01"))
    both = await stage.ask("/gpu provision 1x4090 3h for=both")
    assert "Needs 2 approvals from <@U0BOB> and <@U0CAROL>" in all_text(both)


async def test_the_request_of_an_adopted_instance_can_still_be_approved(stage: Stage) -> None:
    """The copy of the ledger knows the request, and not that it was approved and its first instance rented."""
    message = await stage.ask()
    (request,) = (await stage.w.books()).requests
    rent(stage.w, f"gpu-1x4090-{stage.w.ctx.labels.mint(request.id, 1)}")
    await stage.w.run(30, 30)
    (orphan,) = (await stage.w.books()).orphans
    carol = facts(Actor(ActorKind.SLACK, "U0CAROL", "T0PRACTICE"))
    word = Adopt(orphan.id, Decimal(2), carol, Actor.from_ref(request.requester), "it trains", "C0GPU")
    assert (await adoption.adopt_orphan(stage.w.ctx, word)).code == "adopted"
    await stage.click("bob", message, stage.approve_button(message))
    assert "Approved" in all_text(stage.ws.now(message))
    assert {one.state for one in (await stage.w.books()).requests} == {RequestState.APPROVED}
