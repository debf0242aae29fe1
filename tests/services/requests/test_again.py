"""Repeating a request: the same job, as a new request of the person who repeats it."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

from sqlalchemy import update

from bot.rules.jobs.stored import job_of
from bot.services.access import job_secrets
from bot.services.access.job_secrets import StoreSecret
from bot.services.requests.again import Again, again
from ledger.kernel.states import RequestState
from ledger.models import Request
from ledger.queries.people.credentials import credentials_of, own_key
from tests.services.access.test_sharing import Gone
from tests.support.world import ALICE, CAROL, CHANNEL, DAVE, World

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIHMwCHH0TBaOfJSd4sdQ5gwsm7j/UwAXxaJnI06ctNuO alice"


async def brought(w: World, request_id: str) -> str | None:
    """The key that somebody brought for the machines of a request."""
    async with w.ctx.db.read() as tx:
        return own_key((await credentials_of(tx, [request_id])).get(request_id, ()))


async def test_the_newest_of_ones_own_is_repeated(w: World) -> None:
    first = await w.ask(hours=Decimal(3), reason="fine-tune")
    await w.ask(DAVE, hours=Decimal(5))
    reply = await again(w.ctx, Again("again-1", ALICE, CHANNEL))
    assert reply.ok
    assert reply.sentence.startswith(f"Again as {str(first.data['request_id'])[-6:]}. Request ")
    view = await w.view(str(reply.data["request_id"]))
    assert (job_of(view.request.job).hours, job_of(view.request.job).reason, view.request.state) == (
        Decimal(3),
        "fine-tune",
        RequestState.QUOTING,
    )
    same = await again(w.ctx, Again("again-1", ALICE, CHANNEL))
    assert same.data["request_id"] == reply.data["request_id"]


async def test_somebody_elses_is_repeated_without_their_key_and_their_people(w: World) -> None:
    first = await w.ask(public_key=KEY, share=(DAVE.ref,))
    view = await w.view(str(first.data["request_id"]))
    reply = await again(w.ctx, Again("again-2", DAVE, CHANNEL, view.request))
    mine = await w.view(str(reply.data["request_id"]))
    assert (mine.request.requester, mine.shared_with, await brought(w, mine.request.id)) == (DAVE.ref, (), None)
    own = await again(w.ctx, Again("again-3", ALICE, CHANNEL, view.request))
    assert await brought(w, str(own.data["request_id"])) == KEY


async def test_somebody_elses_command_gets_no_secrets(w: World) -> None:
    w.ctx = replace(w.ctx, node_url="https://bot.example.com")
    for actor in (ALICE, DAVE):
        assert (await job_secrets.store(w.ctx, StoreSecret(actor, "HF_TOKEN", "value"))).ok
    first = await w.ask(run="python train.py", secrets=("HF_TOKEN",))
    view = await w.view(str(first.data["request_id"]))
    reply = await again(w.ctx, Again("again-8", DAVE, CHANNEL, view.request))
    assert "Its secrets are left out." in reply.sentence
    assert (await w.view(str(reply.data["request_id"]))).secrets == ()
    own = await again(w.ctx, Again("again-9", ALICE, CHANNEL, view.request))
    assert (await w.view(str(own.data["request_id"]))).secrets == ("HF_TOKEN",)


async def test_who_is_no_member_any_more_is_left_out(w: World) -> None:
    first = await w.ask(share=(DAVE.ref, CAROL.ref))
    w.ctx = replace(w.ctx, people=Gone())
    reply = await again(w.ctx, Again("again-10", ALICE, CHANNEL))
    assert f"Again as {str(first.data['request_id'])[-6:]}. It is not shared with {DAVE.ref}." in reply.sentence
    assert (await w.view(str(reply.data["request_id"]))).shared_with == (CAROL.ref,)


async def test_what_was_given_away_meanwhile_is_somebody_elses(w: World) -> None:
    first = await w.ask(share=(DAVE.ref,), public_key=KEY)
    read_before = (await w.view(str(first.data["request_id"]))).request
    async with w.ctx.db.write() as tx:
        await tx.execute(update(Request).where(Request.id == read_before.id).values(requester=CAROL.ref))
    reply = await again(w.ctx, Again("again-11", ALICE, CHANNEL, read_before))
    new = str(reply.data["request_id"])
    assert ((await w.view(new)).shared_with, await brought(w, new)) == ((), None)


async def test_more_time_repeats_the_request_of_its_session(w: World) -> None:
    request_id = await w.running()
    more = await w.more(request_id, "1")
    extension = (await w.view(str(more.data["request_id"]))).request
    reply = await again(w.ctx, Again("again-4", ALICE, CHANNEL, extension))
    assert reply.sentence.startswith(f"Again as {request_id[-6:]}. ")


async def test_a_request_that_waits_waits_anew(w: World) -> None:
    first = await w.ask(wait=True, max_price_usd_h=Decimal("0.01"), wait_until="6h")
    w.clock.advance(3600)
    reply = await again(w.ctx, Again("again-5", ALICE, CHANNEL))
    earlier = await w.view(str(first.data["request_id"]))
    later = await w.view(str(reply.data["request_id"]))
    assert earlier.limits is not None
    assert later.limits is not None
    assert (later.limits.until - earlier.limits.until).total_seconds() == 3600


async def test_without_an_earlier_request_there_is_nothing_to_repeat(w: World) -> None:
    reply = await again(w.ctx, Again("again-6", ALICE, CHANNEL))
    assert (reply.ok, reply.code) == (False, "nothing_to_repeat")


async def test_a_refusal_is_the_one_of_a_request(w: World) -> None:
    await w.ask()
    w.tune(max_open_requests_per_user=1)
    reply = await again(w.ctx, Again("again-7", ALICE, CHANNEL))
    assert (reply.ok, reply.code) == (False, "too_many_open")
