"""Who is only offered a session reads its facts through every client, and what it runs and where it saves nowhere."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from decimal import Decimal

import pytest
from httpx import Response
from sqlalchemy import update

from bot.rules.access.sight import Sight
from bot.rules.approvals.decision import DeciderFacts
from bot.rules.jobs.stored import job_of, stored_job
from bot.services.access import authorization, job_secrets
from bot.services.access.job_secrets import StoreSecret
from bot.services.sessions import transfer
from bot.services.sessions.transfer import AnswerOffer, OfferSession
from ledger.kernel.actor import Actor
from ledger.kernel.checkpoint_step import CheckpointStep
from ledger.kernel.states import SessionState
from ledger.models import Instance, Request
from ledger.queries.views import resolve
from tests.api.door import Door, code_of, opened
from tests.api.test_matrix import API, BODIES, ROUTES
from tests.services.access.test_sharing import key_of
from tests.support.agents import listening
from tests.support.world import ALICE, World

FAY = Actor.from_ref("operator:fay")
RUN, PLACE, SECRET = "python canary_train.py", "s3://canary-bucket/run", "CANARY_TOKEN"
SIGNED = "https://canary.example/ckpt?X-Amz-Signature=0123456789abcdef"
WORK = ("canary", "CANARY", "X-Amz-Signature", "0123456789abcdef")


@dataclass
class Offered:
    """Alice's session, which she offers to Fay, and Fay's key."""

    door: Door
    request_id: str
    key: str
    host: str

    async def calls(self, method: str, path: str) -> Response:
        """Call one route about the session, as Fay."""
        names = {"request": self.request_id, "session": self.request_id}
        more = {"json": BODIES.get(path.removeprefix(API), {})} if method in ("POST", "PUT") else {}
        return await self.door.call(method, path.removeprefix(API).format(**names), self.key, **more)


@asynccontextmanager
async def offered(w: World) -> AsyncIterator[Offered]:
    """Alice's machine runs, and its end waits for a checkpoint; she offers it to Fay."""
    async with listening(w), opened(w) as door:
        for who in (ALICE, FAY):
            await key_of(w, who)
        stored = StoreSecret(ALICE, SECRET, "value-of-the-secret")
        assert (await job_secrets.store(w.ctx, stored)).ok
        request_id = await w.running(candidates=("runpod",), hours=Decimal(6), run=RUN, secrets=(SECRET,))
        async with w.ctx.db.write() as tx:
            row = await tx.get_one(Request, request_id)
            job = replace(job_of(row.job), checkpoint=SIGNED, mounts=(f"COPY /data {SIGNED}",))
            await tx.execute(update(Request).where(Request.id == request_id).values(job=stored_job(job)))
        assert (await transfer.offer(w.ctx, OfferSession(request_id, ALICE, FAY))).ok
        async with w.ctx.db.write() as tx:
            note = {"gate_note": f"{PLACE} has no save yet", "checkpoint_step": CheckpointStep.HELD}
            await tx.execute(update(Instance).values(**note))
        host = str((await w.books()).instances[-1].ssh_host)
        yield Offered(door, request_id, await door.key(FAY.ref), host)


async def test_who_is_offered_a_session_reads_its_facts_over_rest_and_no_work(w: World) -> None:
    async with offered(w) as seen:
        session = (await seen.calls("GET", f"{API}/sessions/{{session}}")).json()
        assert (session["owner"], session["cloud"], session["state"]) == (ALICE.ref, "runpod", SessionState.RUNNING)
        assert (session["price_usd_h"] is not None, session["deadline"] is not None) == (True, True)
        assert (session["ssh"], session["node_api"], session["agent"]) == (None, None, None)
        job = (await seen.calls("GET", f"{API}/requests/{{request}}")).json()["job"]
        assert (job["gpu"]["names"], job["hours"]) == (["RTX4090"], "6")
        assert (job["run"], job["checkpoint"], job["secrets"], job["mounts"]) == (None, None, [], [])
        for method, path, _ in ROUTES:
            mutates = path.endswith(("/accept", "/decline"))
            if not path.startswith(API) or path == f"{API}/events" or mutates:
                continue
            if not ("{request}" in path or "{session}" in path or "{" not in path):
                continue
            answer = await seen.calls(method, path)
            assert not [text for text in (*WORK, seen.host) if text in answer.text], (method, path, answer.text)
        refused = await seen.calls("GET", f"{API}/audit/{{request}}")
        assert (refused.status_code, code_of(refused)) == (403, "not_yours")
        short = seen.request_id[-6:]
        assert refused.json()["detail"] == (
            f"Session {short} is only offered to you. Accept it first: `gpu-shopper transfer accept {short}`."
        )


async def test_a_repeat_would_copy_the_work_so_it_needs_the_acceptance(w: World) -> None:
    async with offered(w) as seen:
        refused = await seen.door.call("POST", "/requests/again", seen.key, json={"request": seen.request_id})
        assert code_of(refused) == "not_yours"
        assert len((await w.books()).requests) == 1


async def test_the_new_owner_reads_everything_and_a_declined_offer_shows_nothing(w: World) -> None:
    async with offered(w) as seen:
        async with w.ctx.db.write() as tx:
            await tx.execute(update(Instance).values(gate_note=None, checkpoint_step=None))
        assert (await transfer.answer(w.ctx, AnswerOffer(seen.request_id, FAY, accept=False))).ok
        assert code_of(await seen.calls("GET", f"{API}/sessions/{{session}}")) == "unknown_id"
        assert (await transfer.offer(w.ctx, OfferSession(seen.request_id, ALICE, FAY))).ok
        assert (await transfer.answer(w.ctx, AnswerOffer(seen.request_id, FAY, accept=True))).ok
        assert (await seen.calls("GET", f"{API}/requests/{{request}}")).json()["job"]["run"] == RUN


@pytest.mark.parametrize(
    ("facts", "right"),
    [
        (DeciderFacts(FAY), Sight.FACTS),
        (DeciderFacts(ALICE), Sight.OWN),
        (DeciderFacts(Actor.from_ref("operator:gil")), Sight.FACTS),
    ],
)
async def test_a_member_of_the_workspace_sees_the_facts_of_a_session_whether_or_not_it_is_offered_to_them(
    w: World, facts: DeciderFacts, right: Sight
) -> None:
    async with offered(w) as seen, w.ctx.db.read() as tx:
        request, session = await resolve(tx, seen.request_id)
        assert await authorization.member_sight(tx, w.ctx.policy, facts, request, session, "x") is right
        guest = replace(facts, is_guest=True)
        if right is Sight.OWN:
            assert await authorization.member_sight(tx, w.ctx.policy, guest, request, session, "x") is right
        else:
            with pytest.raises(LookupError):
                await authorization.member_sight(tx, w.ctx.policy, guest, request, session, "x")
