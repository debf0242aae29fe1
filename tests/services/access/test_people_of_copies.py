"""Every copy of a job, in every order of three: no key, share or secret of somebody who isn't on the session now.

The services are the real ones, and so are the keys that a create brings. The machines between them are rows.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import partial
from itertools import product

import pytest
from sqlalchemy import text, update
from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from bot.services.access import job_secrets, key_holders, machine_keys, sharing
from bot.services.access.job_secrets import StoreSecret
from bot.services.access.sharing import ShareWith
from bot.services.nodes import sent_secrets
from bot.services.relocation.start import Migrate, migrate
from bot.services.requests.again import Again, again
from bot.services.runtime.commands import Reply
from bot.services.sessions import transfer
from bot.services.sessions.transfer import AnswerOffer, OfferSession
from ledger.core import Tx
from ledger.kernel.actor import Actor
from ledger.kernel.states import GrantState, InstanceState, RequestState, SessionState
from ledger.kernel.steps.relocation_step import MigrationStep
from ledger.models import Instance, Migration, Request, Session
from ledger.queries.access import shared_with
from ledger.queries.people.credentials import credentials_of
from ledger.queries.people.machine_keys import keys_on
from providers.gpus.constraint import GpuConstraint
from tests.services.access.test_sharing import key_of
from tests.services.checkpoints.test_verification import looks_at
from tests.support import rows
from tests.support.stores import Shelf, served
from tests.support.world import ALICE, BOB, CHANNEL, DAVE, World, facts

EVE, FRED = Actor.from_ref("operator:eve"), Actor.from_ref("operator:fred")
#: The key that Alice brings for this machine alone.
BROUGHT = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIHMwCHH0TBaOfJSd4sdQ5gwsm7j/UwAXxaJnI06ctNuO"
SECRET, PLACE = "HF_TOKEN", "s3://bucket/run"


class Deed(StrEnum):
    """What somebody does with a session."""

    AGAIN = "again"
    MIGRATE = "migrate"
    REPLACE = "replace"
    TRANSFER = "transfer"
    SHARE = "share"
    UNSHARE = "unshare"


@dataclass
class Walk:
    """One session and its people, as this test counts them with its own code."""

    w: World
    keys: dict[str, str]
    request_id: str = ""
    session_id: str = ""
    owner: Actor = ALICE
    shared: list[str] = field(default_factory=lambda: [DAVE.ref])
    #: Whether the session was Alice's ever since she brought her key and named her secret.
    is_first_owners: bool = True

    async def begin(self) -> None:
        """Alice asks, with a key, a secret and Dave; her machine runs."""
        asked = await self.w.ask(
            ALICE,
            gpu=GpuConstraint(("RTX4090",)),
            candidates=("vast",),
            run="python train.py",
            checkpoint=PLACE,
            public_key=BROUGHT,
            share=(DAVE.ref,),
            secrets=(SECRET,),
        )
        self.request_id = ok(asked)
        self.session_id, instance_id = await self.launched(self.request_id)
        await self.check(self.request_id, instance_id)

    async def launched(self, request_id: str) -> tuple[str, str]:
        """The machine of a request after its create; returns the session's id and the instance's."""
        now = self.w.clock.now()
        async with self.w.ctx.db.write() as tx:
            mine = (Request.id == request_id,)
            await tx.execute(update(Request).where(*mine).values(state=RequestState.APPROVED, due_at=None))
            request = await tx.get_one(Request, request_id, populate_existing=True)
            session = await rows.session(tx, SessionState.RUNNING, of=request, at=now, gpu="RTX4090", due_at=None)
            approval = await rows.approval(tx, request, BOB, at=now)
            under = await rows.grant(tx, request, GrantState.USED, by=approval, at=now, session_id=session.id)
            row = await rows.instance(
                tx, of=session, under=under, at=now, account=self.account, due_at=None, login_key="ssh-ed25519 AAAA"
            )
            said = {"step": 100, "checkpoint_step": 90, "checkpoint_at": now.isoformat()}
            await rows.node(tx, row, at=now, work="running", report=said)
            await self._placed(tx, session, row)
            return session.id, row.id

    @property
    def account(self) -> str:
        """The account at Vast that the service uses."""
        return self.w.ctx.providers["vast"].account

    async def _placed(self, tx: Tx, session: Session, row: Instance) -> None:
        keys = await key_holders.for_instance(tx, self.w.ctx.policy, session)
        await machine_keys.launched(self.w.ctx, tx, row, session, keys, self.w.clock.now())

    async def instance(self) -> Instance:
        """The newest instance of the session."""
        return [one for one in (await self.w.books()).instances if one.session_id == self.session_id][-1]

    async def do(self, deed: Deed, number: int) -> None:
        """Do something with the session; a copy is checked like the session itself."""
        self.w.clock.advance(1)
        key, ctx = f"{self.request_id}-{number}", self.w.ctx
        if deed is Deed.AGAIN:
            view = await self.w.view(self.request_id)
            copy = ok(await again(ctx, Again(key, self.owner, CHANNEL, view.request)))
            await self.check(copy, (await self.launched(copy))[1])
        elif deed is Deed.MIGRATE:
            await self._migrate(key)
        elif deed is Deed.REPLACE:
            async with ctx.db.write() as tx:
                last = await self.instance()
                await over(tx, last.id)
                row = await rows.replacement(
                    tx, last, at=self.w.clock.now(), account=self.account, due_at=None, login_key="ssh-ed25519 AAAA"
                )
                said = {"step": 100, "checkpoint_step": 90, "checkpoint_at": self.w.clock.now().isoformat()}
                await rows.node(tx, row, at=self.w.clock.now(), work="running", report=said)
                await self._placed(tx, await tx.get_one(Session, self.session_id), row)
        elif deed is Deed.TRANSFER:
            to = FRED if self.owner == ALICE else ALICE
            ok(await transfer.offer(ctx, OfferSession(self.session_id, self.owner, to)))
            ok(await transfer.answer(ctx, AnswerOffer(self.session_id, to, accept=True)))
            self.owner, self.is_first_owners = to, False
        elif deed is Deed.SHARE:
            ok(await sharing.change(ctx, ShareWith(self.session_id, self.owner, EVE)))
            self.shared += [EVE.ref] if EVE.ref not in self.shared else []
        else:
            leaves = self.shared[0] if self.shared else DAVE.ref
            ok(await sharing.change(ctx, ShareWith(self.session_id, self.owner, Actor.from_ref(leaves), off=True)))
            self.shared = [ref for ref in self.shared if ref != leaves]
        await self.check(self.request_id, (await self.instance()).id)

    async def _migrate(self, key: str) -> None:
        target = ok(await migrate(self.w.ctx, Migrate(key, self.session_id, facts(self.owner))))
        session_id, _ = await self.launched(target)
        async with self.w.ctx.db.write() as tx:
            mine = Migration.request_id == target
            await tx.execute(update(Migration).where(mine).values(step=MigrationStep.DONE, due_at=None))
            await tx.execute(update(Session).where(Session.id == self.session_id).values(state=SessionState.TERMINATED))
            await over(tx, (await self.instance()).id)
        self.request_id, self.session_id = target, session_id

    async def check(self, request_id: str, instance_id: str) -> None:
        """Compare the people of a request and of its machine with those who are on the session now."""
        ctx = self.w.ctx
        own = BROUGHT if self.is_first_owners else self.keys[self.owner.ref]
        async with ctx.db.read() as tx:
            wanted = {one.public_key for one in await keys_on(tx, [instance_id]) if one.wanted}
            sent = await sent_secrets.for_instances(tx, ctx.policy, ctx.labels, [instance_id])
            shares = (await shared_with(tx, [request_id])).get(request_id, ())
            brought = (await credentials_of(tx, [request_id])).get(request_id, ())
            named = text("SELECT CAST(job AS TEXT) FROM requests WHERE id = :id")
            stored = (await tx.execute(named, {"id": request_id})).scalar_one()
        assert wanted == {own, *(self.keys[ref] for ref in self.shared)}
        assert sent[instance_id] == ({SECRET: "alice's"} if self.is_first_owners else {})
        assert sorted(shares) == sorted(self.shared)
        assert {one.person for one in brought} == ({ALICE.ref} if self.is_first_owners else set())
        assert not [one for one in (BROUGHT, DAVE.ref, EVE.ref, SECRET) if one in stored]


def ok(reply: Reply) -> str:
    """The request's id in a reply that is no refusal; "" where it names none."""
    assert reply.ok, reply
    return str(reply.data.get("request_id", ""))


async def over(tx: Tx, instance_id: str) -> None:
    """A machine is gone."""
    await tx.execute(update(Instance).where(Instance.id == instance_id).values(state=InstanceState.GONE, due_at=None))


@asynccontextmanager
async def people(w: World, store: Shelf | None = None) -> AsyncIterator[dict[str, str]]:
    """Everybody has a key and a secret of the same name, and the store has a checkpoint."""
    shelf = store or Shelf()
    shelf.put("run/step-90/model.pt", 1_000, w.clock.now())
    async with served(shelf) as stores:
        looks_at(w, stores)
        w.ctx = replace(w.ctx, node_url="https://bot.example.com")
        w.tune(max_requests_per_hour=1000)  # A hundred copies are made in one hour of the test.
        names = {ALICE: "alice", DAVE: "dave", EVE: "eve", FRED: "fred"}
        for who, name in names.items():
            assert (await job_secrets.store(w.ctx, StoreSecret(who, SECRET, f"{name}'s"))).ok
        yield {who.ref: await key_of(w, who) for who in names}


#: The orders that each run of the tests walks: every pair that was wrong once, and every deed.
QUICK = [
    (Deed.TRANSFER, Deed.AGAIN, Deed.MIGRATE),
    (Deed.UNSHARE, Deed.MIGRATE, Deed.AGAIN),
    (Deed.TRANSFER, Deed.TRANSFER, Deed.REPLACE),
    (Deed.SHARE, Deed.TRANSFER, Deed.MIGRATE),
]


@pytest.mark.parametrize("deeds", QUICK, ids="-".join)
async def test_a_copy_has_the_people_of_now(bare: World, deeds: tuple[Deed, ...]) -> None:
    async with people(bare) as keys:
        walk = Walk(bare, keys)
        await walk.begin()
        for number, deed in enumerate(deeds):
            await walk.do(deed, number)


@pytest.mark.slow
@pytest.mark.timeout(400)  # Thirty-six walks of three deeds take half a minute of one core on PostgreSQL.
@pytest.mark.parametrize("first", Deed)
async def test_every_order_of_three(bare: World, first: Deed) -> None:
    async with people(bare) as keys:
        for rest in product(Deed, repeat=2):
            walk = Walk(bare, keys)
            await walk.begin()
            for number, deed in enumerate((first, *rest)):
                await walk.do(deed, number)


async def test_while_a_run_moves_both_of_its_sides_have_the_same_people(bare: World) -> None:
    async with people(bare) as keys:
        walk = Walk(bare, keys)
        await walk.begin()
        ctx, source = bare.ctx, walk.request_id
        target = ok(await migrate(ctx, Migrate("move", walk.session_id, facts(ALICE))))

        async def shares() -> list[tuple[str, ...]]:
            return [(await bare.view(one)).shared_with for one in (source, target)]

        assert await shares() == [(DAVE.ref,)] * 2
        ok(await sharing.change(ctx, ShareWith(source, ALICE, DAVE, off=True)))
        assert await shares() == [()] * 2
        bare.clock.advance(1)
        ok(await sharing.change(ctx, ShareWith(target, ALICE, EVE)))
        assert await shares() == [(EVE.ref,)] * 2
        ok(await sharing.change(ctx, ShareWith(target, ALICE, EVE)))
        walk.shared = [EVE.ref]
        _, instance_id = await walk.launched(target)
        await walk.check(target, instance_id)
        ok(await sharing.change(ctx, ShareWith(source, ALICE, EVE, off=True)))
        walk.shared = []
        await walk.check(target, instance_id)
        await walk.check(source, (await walk.instance()).id)
        # Each side told Dave that it is shared with him, and one message said that it is no longer.
        told = [one.subject for one in (await bare.books()).notifications if one.destination == DAVE.id]
        assert sorted("unshared" in one for one in told) == [False, False, True]


@dataclass
class SlowShelf(Shelf):
    """A store that lets something else happen before its first answer."""

    meanwhile: Callable[[], Awaitable[None]] | None = None

    async def s3(self, request: HttpRequest) -> Response:
        if (happens := self.meanwhile) is not None:
            self.meanwhile = None
            await happens()
        return await super().s3(request)


async def test_a_session_that_got_another_owner_meanwhile_is_not_moved(bare: World) -> None:
    shelf = SlowShelf()
    async with people(bare, shelf) as keys:
        walk = Walk(bare, keys)
        await walk.begin()
        shelf.meanwhile = partial(walk.do, Deed.TRANSFER, 1)
        refused = await migrate(bare.ctx, Migrate("move", walk.session_id, facts(ALICE)))
        assert refused.code == "stale"
        assert [one.kind for one in (await bare.books()).requests] == ["provision"]
