"""The audit of people: silent on a right session, and loud about everybody who came back or stayed."""

from __future__ import annotations

from datetime import timedelta

from bot.services.access import sharing
from bot.services.access.sharing import ShareWith
from bot.services.audit.invariants import people
from bot.services.relocation.start import Migrate, migrate
from ledger.kernel.people.credential_kind import CredentialKind
from ledger.kernel.people.transfer_state import TransferState
from ledger.models import Transfer
from ledger.queries.audit import Books
from tests.services.access.test_people_of_copies import EVE, Walk, ok
from tests.services.access.test_people_of_copies import people as everybody
from tests.support.world import ALICE, DAVE, World, facts


def rules(books: Books) -> list[str]:
    return sorted({one.rule for one in people.check(books)})


async def test_a_key_of_somebody_else_on_a_machine_is_found(bare: World) -> None:
    async with everybody(bare) as keys:
        await Walk(bare, keys).begin()
        books = await bare.books()
        assert rules(books) == []
        next(one for one in books.machine_keys if one.person == DAVE.ref).person = EVE.ref
        assert rules(books) == [people.KEYS]


async def test_what_outlives_a_transfer_or_comes_back_with_a_move_is_found(bare: World) -> None:
    async with everybody(bare) as keys:
        walk = Walk(bare, keys)
        await walk.begin()
        ok(await sharing.change(bare.ctx, ShareWith(walk.request_id, ALICE, EVE)))
        ok(await migrate(bare.ctx, Migrate("move", walk.session_id, facts(ALICE))))
        books, now = await bare.books(), bare.clock.now()
        assert rules(books) == []
        key = next(one for one in books.credentials if one.kind is CredentialKind.SSH_KEY)
        key.until = now - timedelta(seconds=1)
        assert rules(books) == [people.COPIED]
        key.until = None
        books.shares[0].person = "operator:gone"
        assert rules(books) == sorted((people.KEYS, people.TOGETHER))
        books = await bare.books()
        given = Transfer(session_id=walk.session_id, state=TransferState.ACCEPTED, closed_at=now)
        object.__setattr__(books, "transfers", (given,))
        assert rules(books) == [people.OWN]
