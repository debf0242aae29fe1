"""A machine that is shared, as its people see it in Slack."""

from __future__ import annotations

import pytest
from sqlalchemy import update

from bot.practice.model import ChatMessage
from bot.practice.reader import all_text, buttons
from bot.rules.jobs.stored import job_of
from ledger.kernel.checkpoint_step import CheckpointStep
from ledger.models import Instance
from tests.slack.conftest import Stage


def heard(stage: Stage, who: str) -> ChatMessage:
    """The last answer that only this person sees."""
    return stage.ws.ephemerals(who)[-1]


@pytest.mark.slow
async def test_whom_a_machine_is_shared_with_reads_how_to_connect_and_ends_nothing(stage: Stage) -> None:
    message = await stage.ask("/gpu provision 1x4090 2h share=<@U0CAROL|carol>")
    (request,) = (await stage.w.books()).requests
    await stage.command("alice", f"/gpu share {request.id[-6:]} <@U0DAVE|dave>")
    assert "Their SSH keys go onto its machine." in heard(stage, "alice").text
    assert "shares request" in stage.ws.dm_messages("dave")[-1].text
    assert "<@U0ALICE> with <@U0CAROL>, <@U0DAVE>" in all_text(stage.message())
    await stage.click("bob", message, stage.approve_button(message))
    await stage.w.run(60)
    ready = stage.ws.dm_messages("dave")[-1]
    assert "The *1× RTX4090* that <@U0ALICE> shares with you at " in ready.text
    assert ("Connect: `ssh -p" in ready.text, buttons(ready)) == (True, [])
    await stage.command("dave", "/gpu list")
    assert "<@U0ALICE> with <@U0CAROL>, <@U0DAVE>" in all_text(heard(stage, "dave"))
    await stage.command("dave", f"/gpu status {request.id[-6:]}")
    theirs = heard(stage, "dave")
    assert "Connect: `ssh -p" in all_text(theirs)
    assert [b["text"]["text"] for b in buttons(theirs)] == ["Details"]
    await stage.command("dave", f"/gpu terminate {request.id[-6:]} now")
    assert "Only its owner or an approver can end this session." in heard(stage, "dave").text
    await stage.command("alice", f"/gpu terminate {request.id[-6:]} now")
    await stage.w.run(150, 15)
    assert stage.ws.dm_messages("dave")[-1].text == "The *1× RTX4090* of <@U0ALICE> has ended."


KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl me@laptop"


@pytest.mark.slow
async def test_a_session_is_offered_and_accepted_by_a_button(stage: Stage) -> None:
    message = await stage.ask("/gpu provision 1x4090 2h")
    (request,) = (await stage.w.books()).requests
    await stage.click("bob", message, stage.approve_button(message))
    await stage.w.run(60)
    short = request.id[-6:]
    await stage.command("dave", f"/gpu key add {KEY}")
    await stage.command("alice", f"/gpu transfer {short} <@U0DAVE|dave>")
    assert f"Session {short} is offered to <@U0DAVE>. The offer expires " in heard(stage, "alice").text
    offer = stage.ws.dm_messages("dave")[-1]
    assert "<@U0ALICE> offers you the *1× RTX4090* of <@U0ALICE> at " in offer.text
    accept, decline = buttons(offer)
    assert [one["text"]["text"] for one in (accept, decline)] == ["Accept", "Decline"]
    await stage.command("dave", f"/gpu status {short}")
    await stage.click("dave", offer, accept["action_id"])
    await stage.w.run(30)
    said = [one.text for one in (*stage.ws.dm_messages("dave"), *stage.ws.ephemerals("dave"))]
    assert any(f"Session {short} is yours now." in text for text in said), said
    assert any(text.endswith("is yours now.") for text in said)
    assert any(" is ready" in text for text in said)
    assert "<@U0DAVE>" in all_text(stage.message())
    assert any(f"Session {short} is now <@U0DAVE>'s." in one.text for one in stage.ws.dm_messages("alice"))
    await stage.command("alice", f"/gpu terminate {short} now")
    assert "Only its owner or an approver can end this session." in heard(stage, "alice").text
    await stage.command("dave", f"/gpu transfer {short} <@U0ALICE|alice>")
    await stage.command("alice", f"/gpu transfer {short} decline")
    assert "is declined" in heard(stage, "alice").text
    assert any("declined session" in one.text for one in stage.ws.dm_messages("dave"))


async def test_who_has_nothing_to_do_with_a_session_reads_and_repeats_its_facts_only(stage: Stage) -> None:
    message = await stage.ask('/gpu provision 1x4090 2h run="python canary_train.py"')
    (request,) = (await stage.w.books()).requests
    await stage.click("bob", message, stage.approve_button(message))
    await stage.w.run(60)
    async with stage.ctx.db.write() as tx:
        waits = {"gate_note": "s3://canary-bucket/run has no save yet", "checkpoint_step": CheckpointStep.HELD}
        await tx.execute(update(Instance).values(**waits))
    await stage.command("dave", f"/gpu status {request.id[-6:]}")
    page = heard(stage, "dave")
    assert "*1× RTX4090*" in page.text
    (details,) = buttons(page)
    await stage.click("dave", page, details["action_id"])
    await stage.command("dave", f"/gpu again {request.id[-6:]}")
    shown = [all_text(one) for one in (*stage.ws.ephemerals("dave"), *stage.ws.dm_messages("dave"))]
    assert not [text for text in shown if "canary" in text], shown
    repeated = (await stage.w.books()).requests[-1]
    assert (repeated.id != request.id, job_of(repeated.job).gpu, job_of(repeated.job).hours) == (
        True, job_of(request.job).gpu, job_of(request.job).hours
    )  # fmt: skip
    assert (job_of(request.job).run, job_of(repeated.job).run) == ("python canary_train.py", None)


@pytest.mark.slow
async def test_who_is_only_offered_a_session_reads_its_facts_in_slack(stage: Stage) -> None:
    message = await stage.ask('/gpu provision 1x4090 2h run="python canary_train.py"')
    (request,) = (await stage.w.books()).requests
    await stage.click("bob", message, stage.approve_button(message))
    await stage.w.run(60)
    short = request.id[-6:]
    await stage.command("alice", f"/gpu transfer {short} <@U0DAVE|dave>")
    async with stage.ctx.db.write() as tx:
        waits = {"gate_note": "s3://canary-bucket/run has no save yet", "checkpoint_step": CheckpointStep.HELD}
        await tx.execute(update(Instance).values(**waits))
    await stage.command("dave", f"/gpu status {short}")
    page = heard(stage, "dave")
    assert "*1× RTX4090*" in page.text
    assert "Ends " in page.text
    (details,) = buttons(page)
    await stage.click("dave", page, details["action_id"])
    await stage.command("dave", f"/gpu again {short}")
    assert f"Session {short} is only offered to you. Accept it first:" in heard(stage, "dave").text
    for line in (f"audit {short}", f"why {short}", f"logs {short}", "list", "history"):
        await stage.command("dave", f"/gpu {line}")
    shown = [all_text(one) for one in (*stage.ws.ephemerals("dave"), *stage.ws.dm_messages("dave"))]
    assert not [text for text in shown if "canary" in text or "Connect: " in text], shown
    await stage.command("alice", f"/gpu status {short}")
    assert "canary-bucket" in all_text(heard(stage, "alice"))
    assert len((await stage.w.books()).requests) == 1
