"""What is wrong with an account is one message to operators, and its machines start again when it is over."""

from __future__ import annotations

from decimal import Decimal

import pytest

from bot.services.sessions import account_incidents
from ledger.kernel.states import GrantState, InstanceState, RequestState, SessionState
from ledger.kernel.steps.grace import Cause
from ledger.models import Instance, Notification
from providers.sandbox.vast.sandbox import VastSandbox
from tests.support.world import ALICE, World


def vast(w: World) -> VastSandbox:
    cloud = w.clouds["vast"]
    assert isinstance(cloud, VastSandbox)
    return cloud


def set_credit(w: World, left_usd: str) -> None:
    """Pay, or spend, so that so much is left now."""
    account = vast(w).account
    account.credit_usd = account.spent_usd() + Decimal(left_usd)


async def gone(w: World) -> Instance:
    """Use up the credit, so that everything there stops."""
    row = (await w.books()).instances[0]
    assert row.ref is not None
    vast(w).disturb(row.ref, "credit_gone")
    await w.run(60, 30)
    return (await w.books()).instances[0]


async def pages(w: World, what: str) -> list[Notification]:
    notes = (await w.books()).notifications
    return [note for note in notes if note.kind == "operator.page" and note.subject.endswith(f"/{what}")]


async def test_machines_start_again_by_themselves_when_the_account_is_paid(w: World) -> None:
    await w.running(candidates=("vast",), hours=Decimal(6))
    row = await gone(w)
    assert (row.state, row.status) == (InstanceState.LIVE, "stopped")
    (grace,) = (await w.books()).graces
    assert (grace.cause, grace.account_code, grace.at_risk) == ("account", "insufficient_funds", "disk")
    (page,) = await pages(w, "account")
    assert "The team's credit at Vast is used up. Waiting there: 1 machine (" in page.body["text"]
    assert "Pay at https://cloud.vast.ai/billing/." in page.body["text"]
    # Launches there pause, and say why.
    other = str((await w.ask(candidates=("vast",))).data["request_id"])
    await w.settle()
    request = (await w.view(other)).request
    assert request.state is RequestState.UNAVAILABLE
    assert "the account has no credit" in request.outcome
    await w.run(3 * 3600, 600)
    assert ((await w.books()).instances[0].state, len(w.alive())) == (InstanceState.LIVE, 1)
    set_credit(w, "500")
    await w.run(300, 30)
    books = await w.books()
    assert (books.instances[0].status, books.instances[0].wanted) == ("running", None)
    assert books.graces[0].outcome == "recovered"
    assert {grant.state for grant in books.grants if grant.kind == "start"} == {GrantState.USED}
    assert books.sessions[0].state is SessionState.RUNNING
    (page,) = await pages(w, "account")
    assert page.body["text"].startswith("The team's account at Vast can be used again.")
    told = [note.body.get("text", "") for note in books.notifications if note.destination == ALICE.id]
    assert any("works again. Waiting cost $" in text for text in told)


async def test_machines_without_credit_end_at_their_approved_end_at_the_latest(w: World) -> None:
    await w.running(candidates=("vast",), hours=Decimal(2))
    await gone(w)
    await w.run(2 * 3600, 600)
    await w.run(300, 30)
    books = await w.books()
    assert (books.sessions[0].state, books.sessions[0].end_code) == (SessionState.TERMINATED, "reservation_over")
    assert books.graces[0].outcome == "ended"
    assert books.graces[0].spent_usd <= books.graces[0].limit_usd
    assert w.alive() == []


async def test_a_balance_that_pays_for_few_hours_is_announced_before_it_is_used_up(w: World) -> None:
    await w.running(candidates=("vast",), hours=Decimal(6))
    await w.run(120, 60)
    assert await pages(w, "runway") == []
    set_credit(w, "2")
    await w.run(120, 60)
    (page,) = await pages(w, "runway")
    assert "The balance of $" in page.body["text"]
    assert "of what runs there" in page.body["text"]
    version = page.version
    await w.run(600, 120)
    assert (await pages(w, "runway"))[0].version == version  # Not at every look.
    assert await pages(w, "account") == []


async def test_a_cloud_that_gives_no_answer_is_no_incident(w: World) -> None:
    await w.running(candidates=("vast",))
    w.arm("user_503", "vast", times=None)
    w.clock.advance(120)
    assert await account_incidents.accounts_due(w.ctx) == 0
    assert await pages(w, "account") == []
    w.engine.faults.disarm()


@pytest.mark.parametrize("replacements", [0, 1])
async def test_a_machine_whose_gpu_is_taken_when_its_account_is_paid_asks_or_is_replaced(
    w: World, replacements: int
) -> None:
    w.tune(price_tolerance=Decimal(3), replacements=replacements)
    await w.running(candidates=("vast",), hours=Decimal(6), run="python train.py")
    ref = str((await gone(w)).ref)
    await w.run(1200, 60)
    vast(w).disturb(ref, "gpu_taken")
    vast(w).disturb(ref, "credit_back")
    await w.run(3600, 60)
    books = await w.books()
    assert [one.state for one in books.instances] == [InstanceState.LIVE] * (1 + replacements)
    (grace,) = books.graces
    assert (grace.cause, grace.replaced, grace.ended_at) == (Cause.MARKET, bool(replacements), None)
    replies = [str(note.body.get("text")) for note in books.notifications if note.kind == "reply"]
    refused = [text for text in replies if "could not start" in text]
    assert len(refused) == 1
    assert "tries again every 10 minutes" in refused[0]
    (page,) = await pages(w, "account")
    assert "Machines that stopped there are started again." in page.body["text"]
    assert "1 machine could not be started: the GPUs are taken." in page.body["text"]
