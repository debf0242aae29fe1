"""Offers of a session to another owner: one at a time, closed once, and what changes with the owner."""

from __future__ import annotations

from datetime import datetime, timedelta
from decimal import Decimal

from ledger.engine.db import Database
from ledger.kernel.people.transfer_state import TransferState
from ledger.kernel.request_kind import RequestKind
from ledger.kernel.states import RequestState, SessionState
from ledger.models import Disk, Node, Request, Session, Share, Transfer
from ledger.queries.access import Whose
from ledger.queries.people import transfers
from tests.support import rows
from tests.support.clock import START

HOUR = timedelta(hours=1)


async def offered(tx: rows.Tx, session: Session, n: int, at: datetime = START) -> Transfer:
    """An open offer of ADA's session to BEN."""
    row = Transfer(
        id=f"trf_{n}", session_id=session.id, from_owner=rows.ADA.ref, to_person=rows.BEN.ref, offered_by=rows.ADA.ref,
        state=TransferState.OFFERED, created_at=at, expires_at=at + HOUR,
    )  # fmt: skip
    tx.add(row)
    await tx.flush()
    return row


async def test_an_offer_is_open_until_it_is_closed_once(db: Database) -> None:
    async with db.write() as tx:
        session = await rows.session(tx, SessionState.RUNNING)
        assert await transfers.offer_of(tx, session.id) is None
        assert await transfers.last_offer_of(tx, session.id) is None
        assert not await transfers.is_offered(tx, session.id, Whose.of([rows.BEN]))
        first = await offered(tx, session, 1)
        assert await transfers.is_offered(tx, session.id, Whose.of([rows.BEN]))
        assert not await transfers.is_offered(tx, session.id, Whose.of([rows.ADA]))
        assert await transfers.close_offer(tx, first.id, TransferState.DECLINED, START + HOUR)
        assert not await transfers.close_offer(tx, first.id, TransferState.ACCEPTED, START + HOUR)
        second = await offered(tx, session, 2, START + HOUR)
        last = await transfers.last_offer_of(tx, session.id)
        found = await transfers.offer_of(tx, session.id)
        assert last is not None
        assert found is not None
        assert (last.id, found.id) == (second.id, second.id)


async def test_offers_that_expired_or_whose_session_ends_are_listed(db: Database) -> None:
    async with db.write() as tx:
        running = await rows.session(tx, SessionState.RUNNING)
        ending = await rows.session(tx, SessionState.TERMINATING)
        await offered(tx, running, 1)
        await offered(tx, ending, 2)
        assert [one.id for one in await transfers.offers_to_close(tx, START, 10)] == ["trf_2"]
        assert [one.id for one in await transfers.offers_to_close(tx, START + HOUR, 10)] == ["trf_1", "trf_2"]
        assert len(await transfers.offers_to_close(tx, START + HOUR, 1)) == 1


async def test_the_whole_family_gets_the_new_owner(db: Database) -> None:
    async with db.write() as tx:
        asked = await rows.request(tx, RequestState.APPROVED)
        vote = await rows.approval(tx, asked)
        more = await rows.request(tx, kind=RequestKind.EXTEND, parent_id=asked.id)
        longer = await rows.request(tx, RequestState.APPROVED, kind=RequestKind.EXTEND, parent_id=asked.id)
        votes = [vote, await rows.approval(tx, longer)]
        for undone in (more, await rows.request(tx, RequestState.EXPIRED, parent_id=asked.id)):
            await rows.approval(tx, undone)  # The first of two: it approved nothing.
        session = await rows.session(tx, SessionState.RUNNING, of=asked)
        under = await rows.grant(tx, asked, by=vote, session_id=session.id)
        machine = await rows.instance(tx, of=session, under=under)
        tx.add(
            Node(
                instance_id=machine.id,
                session_id=session.id,
                token_hash="0" * 64,
                made_at=START,
                api_token_hash="1" * 64,
                api_token_at=START,
            )
        )
        tx.add(
            Disk(
                id="dsk_1",
                session_id=session.id,
                instance_id=machine.id,
                owner=rows.ADA.ref,
                cloud="vast",
                price_usd_h=Decimal("0.01"),
                since=START,
                until=START + HOUR,
            )
        )
        for person in (rows.BEN.ref, "operator:eve"):
            tx.add(Share(request_id=asked.id, person=person, shared_by=rows.ADA.ref, created_at=START))
        await tx.flush()
        assert [one.id for one in await transfers.undecided_of(tx, asked.id)] == [more.id]
        assert [one.id for one in await transfers.votes_of(tx, asked.id)] == [one.id for one in votes]
        await transfers.change_owner(tx, session, rows.BEN.ref, [rows.BEN.ref], START + HOUR)
    async with db.read() as tx:
        assert (await tx.get_one(Session, session.id)).owner == rows.BEN.ref
        assert {(await tx.get_one(Request, one.id)).requester for one in (asked, more)} == {rows.BEN.ref}
        assert (await tx.get_one(Disk, "dsk_1")).owner == rows.BEN.ref
        assert (await tx.get_one(Node, machine.id)).api_token_hash is None
        assert await tx.get(Share, (asked.id, rows.BEN.ref)) is None
        assert await tx.get(Share, (asked.id, "operator:eve")) is not None


async def test_when_somebody_gave_the_session_of_a_request_away(db: Database) -> None:
    async with db.write() as tx:
        session, other = [await rows.session(tx, SessionState.RUNNING) for _ in range(2)]
        longer = await rows.request(tx, kind=RequestKind.EXTEND, parent_id=session.request_id)
        away = {"from_owner": rows.ADA.ref, "to_person": rows.BEN.ref, "offered_by": rows.ADA.ref}
        back = {"from_owner": rows.BEN.ref, "to_person": rows.ADA.ref, "offered_by": rows.BEN.ref}
        closed = [
            (TransferState.ACCEPTED, session, 1, away),
            (TransferState.ACCEPTED, session, 2, back),
            (TransferState.ACCEPTED, session, 3, away),
            (TransferState.DECLINED, session, 4, away),
            (TransferState.ACCEPTED, other, 5, back),
        ]
        for n, (state, of, hour, people) in enumerate(closed):
            times = {"created_at": START, "expires_at": START + HOUR, "closed_at": START + hour * HOUR}
            tx.add(Transfer(id=f"trf_{n}", session_id=of.id, state=state, **people, **times))
        await offered(tx, session, 9)
    async with db.read() as tx:
        ada, ben, nobody = Whose.of([rows.ADA]), Whose.of([rows.BEN]), Whose()
        # A request about the session, such as one for more hours, is about the same session.
        for request_id in (session.request_id, longer.id):
            assert await transfers.left_at(tx, request_id, ada) == START + 3 * HOUR
            assert await transfers.left_at(tx, request_id, ben) == START + 2 * HOUR
            assert await transfers.left_at(tx, request_id, nobody) is None
        assert await transfers.left_at(tx, other.request_id, ada) is None
        assert await transfers.left_at(tx, "req_none", ada) is None
