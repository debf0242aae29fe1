"""A run that moves has the people of now on its new machine, and nobody who gave it away or was removed."""

from __future__ import annotations

import pytest

from bot.services.access import sharing
from bot.services.access.sharing import ShareWith
from bot.services.sessions import transfer
from bot.services.sessions.transfer import AnswerOffer, OfferSession
from ledger.kernel.steps.relocation_step import MigrationStep
from ledger.queries.people.machine_keys import keys_on
from tests.services.access.test_sharing import key_of
from tests.services.relocation.run import SOURCE, TARGET, Run, running
from tests.support.world import ALICE, CAROL, DAVE, World

BROUGHT = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIHMwCHH0TBaOfJSd4sdQ5gwsm7j/UwAXxaJnI06ctNuO"


async def wanted(run: Run, which: int) -> set[str]:
    """The keys that belong on the machine of one side of the move."""
    row = await run.row(which)
    async with run.w.ctx.db.read() as tx:
        return {one.public_key for one in await keys_on(tx, [row.id]) if one.wanted}


@pytest.mark.slow
async def test_a_transferred_run_moves_with_its_new_owners_keys_and_without_who_left(w: World) -> None:
    keys = {who: await key_of(w, who) for who in (ALICE, CAROL, DAVE)}
    async with running(w, public_key=BROUGHT, share=(DAVE.ref,)) as run:
        assert await wanted(run, SOURCE) == {BROUGHT, keys[DAVE]}
        assert (await sharing.change(w.ctx, ShareWith(run.request_id, ALICE, DAVE, off=True))).ok
        w.tune(allow_self_approval=True)
        assert (await transfer.offer(w.ctx, OfferSession(run.request_id, ALICE, CAROL))).ok
        assert (await transfer.answer(w.ctx, AnswerOffer(run.request_id, CAROL, accept=True))).ok
        assert await wanted(run, SOURCE) == {keys[CAROL]}
        run.owner = CAROL
        await run.approved()
        row = await run.over()
        assert row.step is MigrationStep.DONE, row.note
        assert await wanted(run, TARGET) == {keys[CAROL]}
        assert (await w.view(run.target_id)).shared_with == ()
