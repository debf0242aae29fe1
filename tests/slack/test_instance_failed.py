"""What people read when an instance fails that they count on, in each state of it."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from bot.practice.reader import all_text, buttons
from bot.slack.blocks.session.instance_failed import found, interrupted
from ledger.kernel.states import InstanceState, NotificationKind, OrphanState, RequestState, SessionState
from ledger.models import Instance, Orphan, Request, Session
from tests.slack.conftest import Stage
from tests.slack.test_notifier import tell
from tests.support import rows
from tests.support.clock import START

ASKER = "slack:T1/U0ALICE"


def row(state: InstanceState, **columns: Any) -> Instance:
    facts = {"id": "ins_1", "cloud": "vast", "offer": {"spot": False}, "status": "running", "outcome": "It <broke>."}
    return Instance(state=state, **(facts | columns))


def said(of: Instance, session: SessionState = SessionState.RUNNING, **more: Any) -> str:
    request = Request(state=more.pop("request", RequestState.APPROVED), requester=ASKER)
    held = Session(state=session, gpu="RTX4090", gpu_count=1, nodes=1)
    return interrupted(request, held, of, more.get("newest", of), more.get("given_up"), own=more.get("own", True)).text


def test_trouble_says_what_is_wrong_and_until_when_it_may_come_back() -> None:
    text = said(row(InstanceState.LIVE, status="offline", trouble_at=START), given_up=START)
    assert "Your *1× RTX4090* at vast does not work now. The cloud lost contact with the machine." in text
    assert "If it is not back by" in text
    spot = row(InstanceState.LIVE, status="stopped", trouble_at=START, offer={"spot": True})
    assert "pays more for its GPU" in said(spot)
    assert "unless" not in said(spot)


def test_what_passed_meanwhile_is_said_to_work() -> None:
    assert "works again" in said(row(InstanceState.LIVE))


@pytest.mark.parametrize(
    ("session", "request_state", "newest", "then"),
    [
        (SessionState.RUNNING, RequestState.APPROVED, None, "The next approved option replaces it"),
        (SessionState.QUEUED, RequestState.PENDING, None, "New offers need an approval"),
        (SessionState.PROVISIONING, RequestState.APPROVED, "ins_2", "at vast, replaces it"),
        (SessionState.TERMINATING, RequestState.APPROVED, None, "It is not replaced"),
    ],
)
def test_an_end_says_why_and_what_comes_next(
    session: SessionState, request_state: RequestState, newest: str | None, then: str
) -> None:
    ending = row(InstanceState.TERMINATING)
    text = said(
        ending, session, request=request_state, newest=row(InstanceState.READY, id=newest) if newest else ending
    )
    assert "is ending. It &lt;broke&gt;." in text
    assert then in text


def test_a_loss_is_told_to_the_channel_with_its_person() -> None:
    text = said(row(InstanceState.GONE), own=False)
    assert text.startswith(":warning: <@U0ALICE> the *1× RTX4090* at vast has ended.")


def test_what_came_back_says_that_it_costs() -> None:
    held = Session(state=SessionState.QUEUED, gpu="RTX4090", gpu_count=1, nodes=1)
    stray = Orphan(state=OrphanState.QUARANTINED, price_usd_h=Decimal("0.4"), reason="It <landed> late.")
    assert "Your *1× RTX4090*" in found(held, row(InstanceState.GONE), stray, own=True).text
    assert "its cloud lists it again" in found(held, row(InstanceState.GONE), stray, own=False).text


def test_an_orphan_says_whose_it_is_why_and_what_becomes_of_it() -> None:
    held = Session(state=SessionState.RUNNING, gpu="RTX4090", gpu_count=1, nodes=1)
    for state, what in (
        (OrphanState.SEEN, "will be terminated within minutes"),
        (OrphanState.CONDEMNED, "being terminated"),
    ):
        stray = Orphan(state=state, price_usd_h=Decimal("0.4"), reason="It <landed> late.")
        text = found(held, row(InstanceState.TOMBSTONE), stray, own=True).text
        assert "($0.400/h) has the label of your *1× RTX4090*. It &lt;landed&gt; late." in text
        assert what in text


async def test_owner_and_thread_are_told(stage: Stage) -> None:
    async with stage.ctx.db.write() as tx:
        request = await rows.request(tx, RequestState.APPROVED, channel="C0GPU", requester=ASKER, due_at=None)
        session = await rows.session(tx, SessionState.RUNNING, of=request)
        instance = await rows.instance(
            tx, InstanceState.TERMINATING, of=session, outcome="The cloud lost contact.", due_at=None
        )
    subject = f"{session.id}/{instance.id}"
    for place in ("C0GPU", "U0ALICE"):
        await tell(stage, NotificationKind.SESSION_INTERRUPTED, subject, place)
    await stage.settle()
    told = [all_text(message) for message in stage.ws.channel_messages()]
    assert any("is ending. The cloud lost contact." in text for text in told)
    async with stage.ctx.db.write() as tx:
        stray = await rows.stray(tx, OrphanState.QUARANTINED, of=instance)
    await tell(stage, NotificationKind.SESSION_INTERRUPTED, f"{subject}/{stray.id}", "C0GPU")
    await stage.settle()
    assert any("counted as lost" in all_text(message) for message in stage.ws.channel_messages())


async def test_what_does_not_exist_is_given_up(stage: Stage) -> None:
    await tell(stage, NotificationKind.SESSION_INTERRUPTED, "ses_none/ins_none", "U0ALICE")
    await stage.settle()
    books = await stage.w.books()
    (note,) = [note for note in books.notifications if note.kind is NotificationKind.SESSION_INTERRUPTED]
    assert "there is no instance" in note.error


async def test_a_machine_in_grace_has_buttons_and_says_whose_cause_it_is(stage: Stage) -> None:
    card = await stage.ask("/gpu provision 1x4090 2h clouds=vast for=fine-tune")
    await stage.click("bob", card, stage.approve_button(card))
    await stage.w.run(60, 20)
    instance = (await stage.w.books()).instances[0]
    stage.w.clouds["vast"].disturb(str(instance.ref), "credit_gone")
    await stage.w.run(60, 30)
    (asked,) = [message for message in stage.ws.dm_messages("alice") if "stopped your machine" in all_text(message)]
    text = all_text(asked)
    assert "Vast stopped your machine because the team's credit there is used up." in text
    assert "The operators were asked to pay." in text
    assert "What would be lost: a disk without a copy." in text
    assert "Waiting costs $" in text
    assert "stopped by its cloud" in all_text(stage.ws.now(card)).lower()
    wait, replaces, gives_up = buttons(asked)
    assert [one["text"]["text"] for one in (wait, replaces, gives_up)] == ["Wait", "Replace, keep the disk", "Give up"]
    await stage.click("alice", asked, str(wait["action_id"]))
    asked = stage.ws.now(asked)
    assert "<@U0ALICE> chose: wait." in all_text(asked)
    assert "Wait" not in [one["text"]["text"] for one in buttons(asked)]
    reply = await stage.command("alice", "/gpu list")
    assert "stopped by its cloud, in grace" in str(reply) + "".join(map(all_text, stage.ws.ephemerals("alice")))
    await stage.click("alice", asked, str(gives_up["action_id"]))
    await stage.w.run(180, 30)
    assert (await stage.w.books()).sessions[0].end_code == "asked"
    assert buttons(stage.ws.now(asked)) == []
