"""The walk as people meet it in Slack: by command, by form, by Socket Mode, and what they read at each step."""

from __future__ import annotations

import re

import pytest

from bot.practice.reader import all_text, button_texts
from bot.practice.remote import RemoteDriver
from ledger.kernel.states import RequestState, SessionState
from tests.support.script import ASK, Play, play, with_all_fields

#: The whole product serves in this process, at the pace of the real clock.
pytestmark = pytest.mark.slow


async def test_a_walk_by_command(p: Play) -> None:
    ws, screens = p.ws, p.screens
    outcome = await ws.as_("alice").command(ASK)
    assert re.fullmatch(r"Asking \d clouds…", outcome.response["text"])
    offers = await screens.offers()
    text = all_text(offers)
    for words in (
        "1× RTX4090 for 2 hours",
        "<@U0ALICE>",
        "*Waiting for approval*",
        "fine-tune",
        "on-demand",
        "*about $",
        "never more than $",
        "Needs 1 approval from <@U0BOB> or <@U0CAROL>",
        "expires <!date^",
    ):
        assert words in text
    assert button_texts(offers)[-2:] == ["Reject…", "Add SSH key…"]
    assert "provisioned" not in text.lower()

    await ws.as_("dave").click(offers, "approve:1")
    await screens.told("dave", "Only approvers can do this")
    await ws.as_("alice").click(offers, "approve:1")
    await screens.told("alice", "You can't approve your own request")
    assert ws.now(offers).version == offers.version
    assert p.creates == []

    await ws.as_("bob").click(offers, "approve:1")
    approved = await screens.shows(offers, "*Approved* by <@U0BOB>")
    assert button_texts(approved) == []
    ready = await screens.wrote("alice", "is ready")
    assert re.search(r"`ssh -p \d+ root@127\.0\.0\.1`", all_text(ready))
    for words in ("confirmed instance", "Reachable over SSH", "*Ready*"):
        await screens.shows(offers, words)
    assert len(p.alive()) == 1

    await ws.as_("dave").command(f"/gpu terminate {(await p.books()).sessions[0].id}")
    await screens.told("dave", "Only its owner or an approver can end this session.")
    assert len(p.alive()) == 1
    await ws.as_("alice").click(ready, "End it now")
    await screens.wrote("alice", "You'll be notified when its cloud no longer lists it")
    await screens.shows(offers, "*Ended*")
    await screens.wrote("alice", "* ended.")
    assert p.alive() == []
    assert len(ws.channel_messages()) == 1


async def test_a_walk_by_form(p: Play) -> None:
    alice = p.ws.as_("alice")
    await alice.command("/gpu provision")
    form = await alice.view()
    assert form.title == "Request GPUs"
    empty = await alice.submit(form, {"gpu": None, "hours": None})
    assert set(empty.errors) == {"gpu", "hours"}
    form = await with_all_fields(p.ws, "alice")
    chosen = {"gpu": "RTX4090", "hours": "90m"}
    wrong = await alice.submit(form, {**chosen, "typed": "RTX 9999", "max": "-5"})
    assert set(wrong.errors) == {"typed", "max"}
    assert "negative" in wrong.errors["max"]
    fields = {**chosen, "typed": "", "max": "$20", "clouds": ["vast"], "for": "evaluation"}
    sent = await alice.submit(form, fields)
    assert sent.ok
    assert p.ws.view("alice") is None
    offers = await p.screens.offers()
    text = all_text(offers)
    for words in ("1× RTX4090 for 1.5 hours", "evaluation", "Vast · "):
        assert words in text
    assert "RunPod" not in text
    await p.ws.as_("carol").click(offers, "offers")
    dialog = await p.ws.as_("carol").view()
    other = dialog.blocks[0]["element"]["options"][1]["value"]
    await p.ws.as_("carol").submit(dialog, {"offer": other})
    await p.screens.shows(offers, "*Approved* by <@U0CAROL>")
    await p.screens.wrote("alice", "ssh -p")
    await p.ended()
    assert [row.state for row in (await p.books()).requests] == [RequestState.APPROVED]


async def test_the_walk_over_socket_mode() -> None:
    async with play(socket_mode=True) as p:
        assert p.running.practice.workspace.request_url is None
        offers = await p.asked()
        await p.ws.as_("dave").click(offers, "approve:1")
        await p.screens.told("dave", "Only approvers can do this")
        await p.ws.as_("bob").click(offers, "Reject…")
        dialog = await p.ws.as_("bob").view()
        await p.ws.as_("bob").close(dialog)
        await p.ws.as_("bob").click(offers, "approve:1")
        await p.screens.wrote("alice", "ssh -p")
        await p.ended()
        assert p.alive() == []


async def test_a_rejection_has_a_reason_and_the_last_word(p: Play) -> None:
    ws, screens = p.ws, p.screens
    offers = await p.asked()
    await ws.as_("dave").click(offers, "reject")
    await screens.told("dave", "Only approvers can do this")
    await ws.as_("alice").click(offers, "reject")
    await screens.told("alice", "Cancel it instead")
    assert (ws.view("dave"), ws.view("alice")) == (None, None)

    bob = ws.as_("bob")
    await bob.click(offers, "reject")
    dialog = await bob.view()
    assert (await bob.submit(dialog, {"reason": ""})).errors == {"reason": "Please complete this required field."}
    assert "Say why" in (await bob.submit(dialog, {"reason": " \t \u202e"})).errors["reason"]
    assert (await bob.submit(dialog, {"reason": "Use the <!here> A100 that is idle"})).ok
    closed = await screens.shows(offers, "*Rejected* by <@U0BOB>")
    assert button_texts(closed) == []
    assert "Use the <!here> A100 that is idle" in all_text(closed)
    reply = await screens.replied(offers, "rejected by <@U0BOB>")
    assert "&lt;!here&gt;" in reply.text
    assert "<!here>" not in reply.text

    await ws.as_("carol").click(offers, "approve:1")
    await screens.told("carol", "already rejected")
    assert p.creates == []
    assert (await p.books()).sessions == ()


async def test_a_deleted_message_is_shown_again(p: Play) -> None:
    offers = await p.asked()
    async with RemoteDriver(p.running.url) as administrator:
        await administrator.delete_message(offers)
    request = (await p.books()).requests[0]
    await p.ws.as_("alice").command(f"/gpu cancel {request.id}")
    again = await p.screens.posted("*Cancelled* by <@U0ALICE>")
    assert again.ts != offers.ts
    assert len(p.ws.channel_messages()) == 1


async def test_where_the_bot_is_not_a_member_the_requester_gets_the_message(p: Play) -> None:
    await p.ws.as_("alice").command(ASK, channel="#general")
    shown = await p.screens.wrote("alice", "I could not post this in <#C0GENERAL>")
    assert any(text.startswith("Approve $") for text in button_texts(shown))
    assert p.ws.channel_messages("#general") == []


async def test_a_guest_of_another_workspace_is_told_no(p: Play) -> None:
    outcome = await p.ws.as_("erin").command(ASK)
    assert "Only members of the workspace" in outcome.response["text"]
    offers = await p.asked()
    await p.ws.as_("erin").click(offers, "approve:1")
    await p.ws.as_("bob").click(offers, "approve:1")
    await p.screens.wrote("alice", "ssh -p")
    books = await p.books()
    assert {vote.approver for vote in books.approvals} == {"slack:T0PRACTICE/U0BOB"}
    assert len(books.requests) == 1
    await p.ended()
    assert [row.state for row in (await p.books()).sessions] == [SessionState.TERMINATED]
