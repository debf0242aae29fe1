"""An instance of ours without a row: nothing is bought, and no look ends anything, until an operator has spoken."""

from __future__ import annotations

from decimal import Decimal

import pytest

from bot.api.views import request_out, session_out
from bot.cli.terminal.views import request_details, session_details, session_list
from bot.rules.access.sight import Sight
from bot.rules.instances.recovery_mode import recovery_notice
from bot.rules.policy.tiers import ApproverGroup
from bot.services.runtime import recovery_mode
from bot.services.sessions.service import Overview, Status
from bot.slack.blocks.listing import listing
from bot.slack.blocks.request import CardFacts, request_message
from bot.slack.blocks.session.status import status
from ledger.kernel.actor import Actor, ActorKind
from ledger.kernel.ids import new_id
from ledger.kernel.states import InstanceState, OrphanState, SessionState
from ledger.models import Orphan
from providers.sandbox.vast.sandbox import VastSandbox
from tests.support.world import World

ADA = Actor(ActorKind.OPERATOR, "ada")


def rent(w: World, name: str) -> str:
    """Somebody makes an instance at Vast.ai behind our back; its id there."""
    vast = w.clouds["vast"]
    assert isinstance(vast, VastSandbox)
    made = vast.account.rent(next(vast.account.market.slices()), {"label": name, "image": "x", "disk": 50})
    return str(made.ref)


async def rowless(w: World) -> Orphan:
    """An instance with a valid label that the ledger knows nothing of, as after a restore from a copy."""
    ref = rent(w, f"gpu-1x4090-{w.ctx.labels.mint(new_id('req', w.clock.now()), 1)}")
    await w.run(30, 30)
    (stray,) = [stray for stray in (await w.books()).orphans if stray.ref == ref]
    assert stray.state is OrphanState.QUARANTINED
    return stray


async def states(w: World, request_id: str) -> tuple[SessionState, InstanceState]:
    view = await w.view(request_id)
    assert view.session is not None
    return view.session.state, view.instances[-1].state


async def test_nothing_is_bought_meanwhile_and_an_operators_word_ends_it(w: World) -> None:
    stray = await rowless(w)
    request_id = await w.approved(candidates=("runpod",))
    await w.run(120, 30)
    assert await states(w, request_id) == (SessionState.QUEUED, InstanceState.READY)
    assert w.engine.creates == []
    reply = await recovery_mode.condemn(w.ctx.db, stray.id, ADA, "a test of last week", w.clock.now())
    assert (reply.ok, reply.code) == (True, "condemned")
    await w.run(180, 30)
    books = await w.books()
    assert [row.state for row in books.orphans] == [OrphanState.GONE]
    assert await states(w, request_id) == (SessionState.RUNNING, InstanceState.LIVE)
    (word,) = [event for event in books.events if event.after == OrphanState.CONDEMNED]
    assert (word.actor, word.reason) == (ADA.ref, "a test of last week")


async def test_every_door_says_with_one_sentence_why_nothing_moves_and_what_ends_it(w: World) -> None:
    running = await w.running(candidates=("runpod",))
    stray = await rowless(w)
    said = recovery_notice(1)
    asked = await w.ask(candidates=("runpod",))
    request_id = str(asked.data["request_id"])
    await w.settle()
    named = await w.ask(key="twice", candidates=("runpod",))
    replies = [asked, await w.ask(key="twice", candidates=("runpod",)), await w.decide(request_id)]
    replies += [await w.more(running), await w.end(running)]
    assert [one.sentence.endswith(said) for one in (*replies, named)] == [True] * 6
    assert said not in (await w.decide(request_id)).sentence  # A refusal is only that.
    assert said not in (await w.cancel(str(named.data["request_id"]))).sentence  # Nothing waits for it.
    await w.run(60, 30)
    view, none = await w.view(request_id), ApproverGroup()
    assert view.session is not None
    session = await w.session(view.session.id)
    document = request_out(w.ctx, view, none, Sight.ALL)
    shown = session_out(w.ctx, session, w.clock.now(), Sight.OWN)
    assert (document.paused, shown.paused) == (said, said)
    assert said in request_details(document).sentences
    assert said in session_details(shown).sentences
    assert said in session_list([shown, shown]).sentences
    pages = [request_message(view, w.ctx.policy), listing(Overview((session,), ()), {}, "/gpu", w.clock.now())]
    pages.append(status(Status(view, session), w.ctx.policy, CardFacts(), w.clock.now(), Sight.OWN, mine=True))
    assert [said in page.text for page in pages] == [True] * 3
    assert (await recovery_mode.condemn(w.ctx.db, stray.id, ADA, "a test", w.clock.now())).ok
    await w.run(180, 30)
    over = await w.view(request_id)
    assert (await states(w, request_id))[0] is SessionState.RUNNING
    assert request_out(w.ctx, over, none, Sight.ALL).paused == ""
    assert "Recovery" not in request_message(over, w.ctx.policy).text
    assert "Recovery" not in (await w.end(request_id)).sentence


@pytest.mark.slow
async def test_meanwhile_a_look_ends_nothing_and_people_and_approved_ends_do(w: World) -> None:
    w.tune(grace_usd=Decimal(0))  # So that the machine that its cloud stops is not kept.
    ended = await w.running(candidates=("vast",))
    over = await w.running(candidates=("vast",), hours=Decimal(1))
    broken = await w.running(candidates=("vast",))
    view = await w.view(broken)
    assert view.instances[0].ref is not None
    twin = rent(w, view.instances[0].name)
    stray = await rowless(w)
    w.clouds["vast"].disturb(view.instances[0].ref, "expire")
    await w.end(ended)
    await w.run(180, 30)
    assert len(w.alive()) == 4
    assert (await states(w, ended))[0] is SessionState.TERMINATED
    await w.run(3600, 300)
    await w.run(120, 30)
    assert (await states(w, over))[0] is SessionState.TERMINATED
    assert len(w.alive()) == 3
    assert await states(w, broken) == (SessionState.RUNNING, InstanceState.TERMINATING)
    await recovery_mode.condemn(w.ctx.db, stray.id, ADA, "a test", w.clock.now())
    await w.run(300, 30)
    gone = {row.ref for row in (await w.books()).orphans if row.state is OrphanState.GONE}
    assert {twin, stray.ref} <= gone


async def test_somebodys_unnamed_instance_is_not_the_one_that_went_and_pages_come_unsighted(w: World) -> None:
    rent(w, "")  # Made by hand, without a name.
    stray = await rowless(w)
    w.arm("list_garbage", "vast", None)
    await w.run(3600, 1800)  # Nothing is seen of it, and the operators are told all the same.
    assert w.board.kinds(stray.id) == ["orphan.found", "operator.page", "operator.page"]
    w.engine.faults.disarm("vast")
    w.clouds["vast"].disturb(stray.ref, "vanish")
    await w.run(120, 30)
    assert [row.state for row in (await w.books()).orphans] == [OrphanState.GONE]
    assert not await recovery_mode.now_on(w.ctx.db)


@pytest.mark.slow
async def test_a_tripped_breaker_still_writes_down_what_is_there_and_operators_end_what_it_spared(w: World) -> None:
    w.tune(max_open_requests_per_user=50)
    for _ in range(4):
        await w.running(candidates=("vast",))
    twins = {rent(w, row.name) for row in (await w.books()).instances}  # More than one look may end.
    lost = rent(w, f"gpu-1x4090-{w.ctx.labels.mint(new_id('req', w.clock.now()), 1)}")
    await w.run(120, 30)
    found = {row.ref: row for row in (await w.books()).orphans}
    assert {ref: found[ref].state for ref in twins} == dict.fromkeys(twins, OrphanState.SEEN)
    assert found[lost].state is OrphanState.QUARANTINED
    assert await recovery_mode.now_on(w.ctx.db)
    for ref in (*twins, lost):
        assert (await recovery_mode.condemn(w.ctx.db, found[ref].id, ADA, "doubled", w.clock.now())).ok
    await w.run(180, 30)
    assert {row.state for row in (await w.books()).orphans} == {OrphanState.GONE}
    assert len(w.alive()) == 4


async def test_it_is_over_when_the_instance_is_gone(w: World) -> None:
    stray = await rowless(w)
    request_id = await w.approved(candidates=("runpod",))
    w.clouds["vast"].disturb(stray.ref, "vanish")
    await w.run(180, 30)
    assert await states(w, request_id) == (SessionState.RUNNING, InstanceState.LIVE)


async def test_the_operators_are_paged_again_and_again(w: World) -> None:
    stray = await rowless(w)
    await w.run(1500, 300)
    assert w.board.kinds(stray.id) == ["orphan.found"]
    await w.run(600, 300)
    assert w.board.kinds(stray.id) == ["orphan.found", "operator.page"]
    await w.run(1800, 300)
    assert w.board.kinds(stray.id) == ["orphan.found", "operator.page", "operator.page"]
    pages = [note for note in (await w.books()).notifications if note.subject.startswith(f"{stray.id}/")]
    assert all(f"gpu-shopper orphans condemn {stray.id}" in page.body["text"] for page in pages)


@pytest.mark.parametrize(
    ("which", "reason", "code"), [("str_nothing", "why", "unknown_id"), ("it", " ", "reason_needed")]
)
async def test_a_word_that_cannot_be_taken_is_explained(w: World, which: str, reason: str, code: str) -> None:
    stray = await rowless(w)
    reply = await recovery_mode.condemn(w.ctx.db, stray.id if which == "it" else which, ADA, reason, w.clock.now())
    assert (reply.ok, reply.code) == (False, code)
    assert [row.state for row in (await w.books()).orphans] == [OrphanState.QUARANTINED]


async def test_a_second_word_changes_nothing(w: World) -> None:
    stray = await rowless(w)
    await recovery_mode.condemn(w.ctx.db, stray.id, ADA, "a test", w.clock.now())
    again = await recovery_mode.condemn(w.ctx.db, stray.id, ADA, "a test", w.clock.now())
    assert (again.ok, again.code) == (False, "stale")
    await w.run(180, 30)
    gone = await recovery_mode.condemn(w.ctx.db, stray.id, ADA, "a test", w.clock.now())
    assert (gone.ok, gone.code) == (False, "stale")
