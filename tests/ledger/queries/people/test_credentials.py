"""What people bring to their sessions counts while the session is theirs, and never again."""

from __future__ import annotations

from datetime import timedelta

import pytest

from ledger.engine.db import Database
from ledger.kernel.people.credential_kind import CredentialKind
from ledger.kernel.people.transfer_state import TransferState
from ledger.models import Transfer
from ledger.queries.people import credentials
from tests.support import rows
from tests.support.clock import START

HOUR = timedelta(hours=1)
KEY = "ssh-ed25519 AAAA"


async def test_what_counts_is_a_key_and_names_in_their_order(db: Database) -> None:
    async with db.write() as tx:
        asked, other = await rows.request(tx), await rows.request(tx)
        await rows.credential(tx, asked, CredentialKind.SECRET, "WANDB")
        await rows.credential(tx, asked, CredentialKind.SECRET, "HF_TOKEN", at=START + HOUR)
        await rows.credential(tx, asked, CredentialKind.SSH_KEY, "SHA256:a", public_key=KEY)
        await rows.credential(tx, other, CredentialKind.SECRET, "OVER", until=START)
    async with db.read() as tx:
        found = await credentials.credentials_of(tx, [asked.id, other.id])
        assert list(found) == [asked.id]
        assert credentials.own_key(found[asked.id]) == KEY
        assert credentials.secret_names(found[asked.id]) == ("WANDB", "HF_TOKEN")
        assert await credentials.secrets_named(tx, [asked.id, other.id]) == {asked.id: ("WANDB", "HF_TOKEN")}
        assert await credentials.secrets_named(tx, []) == {}
        assert credentials.own_key(()) is None
        assert [await credentials.has_left_secrets(tx, one.id) for one in (asked, other)] == [True, True]
        assert not await credentials.has_left_secrets(tx, "req_none")


async def test_a_transfer_ends_what_counted_and_nothing_else(db: Database) -> None:
    async with db.write() as tx:
        asked, other = await rows.request(tx), await rows.request(tx)
        for one in (asked, other):
            await rows.credential(tx, one, CredentialKind.SECRET, "HF_TOKEN")
        await credentials.end_credentials(tx, asked.id, START + HOUR)
        await credentials.end_credentials(tx, asked.id, START + 2 * HOUR)
    async with db.read() as tx:
        assert list(await credentials.credentials_of(tx, [asked.id, other.id])) == [other.id]


@pytest.mark.parametrize(("state", "counts"), [(TransferState.ACCEPTED, False), (TransferState.DECLINED, True)])
async def test_a_transfer_by_the_earlier_release_ends_it_too(db: Database, state: TransferState, counts: bool) -> None:
    async with db.write() as tx:
        asked = await rows.request(tx)
        session = await rows.session(tx, request_id=asked.id)
        await rows.credential(tx, asked, CredentialKind.SECRET, "HF_TOKEN")
        values = {"session_id": session.id, "from_owner": rows.ADA.ref, "to_person": rows.BEN.ref}
        times = {"created_at": START, "expires_at": START + HOUR, "closed_at": START + HOUR}
        tx.add(Transfer(id="trf_1", offered_by=rows.ADA.ref, state=state, **values, **times))
    async with db.read() as tx:
        assert bool(await credentials.credentials_of(tx, [asked.id], CredentialKind.SECRET)) == counts
