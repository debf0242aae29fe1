"""Which keys belong on which machine, and which machines have to be written to."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from ledger.engine.db import Database
from ledger.kernel.actor import Actor
from ledger.kernel.people.key_problem import KeyProblem
from ledger.kernel.states import InstanceState, SessionState
from ledger.models import Instance, Share
from ledger.queries.access import Whose
from ledger.queries.people import machine_keys as keys
from tests.support import rows
from tests.support.clock import START

MINUTE = timedelta(minutes=1)
READY: dict[str, Any] = {
    "status": "running", "reachable_at": START, "ssh_host": "203.0.113.7", "login_key": "ssh-ed25519 AAAA",
    "host_key": "ssh-ed25519 BBBB",
}  # fmt: skip


def key(row: Instance, name: str = "SHA256:one", **values: Any) -> dict[str, Any]:
    """A key of ADA that belongs on a machine and is not written yet, due now."""
    plain = {
        "instance_id": row.id, "fingerprint": name, "public_key": f"ssh-ed25519 {name}", "person": rows.ADA.ref,
        "wanted": True, "at_launch": False, "since": START, "placed_at": None, "problem": None, "due_at": START,
    }  # fmt: skip
    return plain | values


async def test_machines_of_sessions_and_of_people(db: Database) -> None:
    async with db.write() as tx:
        session = await rows.session(tx, SessionState.RUNNING)
        live = await rows.instance(tx, of=session, n=1)
        ended = await rows.instance(tx, InstanceState.TERMINATING)
        other = await rows.instance(tx)
        request_id = (await tx.get_one(Instance, other.id)).request_id
        tx.add(Share(request_id=request_id, person=rows.BEN.ref, shared_by=rows.ADA.ref, created_at=START))
    async with db.read() as tx:
        found = await keys.machines_of_sessions(tx, [session.id, ended.session_id])
        assert [(row.id, of.id) for row, of in found] == [(live.id, session.id)]
        of_ada = await keys.machines_of_person(tx, Whose.of([rows.ADA]))
        assert {row.id for row, *_ in of_ada} == {live.id, other.id}
        of_ben = await keys.machines_of_person(tx, Whose.of([rows.BEN]))
        assert [row.id for row, *_ in of_ben] == [other.id]
        assert await keys.machines_of_person(tx, Whose.of([Actor.from_ref("operator:nobody")])) == []


async def test_a_key_is_due_until_it_is_written_and_again_after_a_start_that_undoes_it(db: Database) -> None:
    async with db.write() as tx:
        row = await rows.instance(tx, **READY)
        silent = await rows.instance(tx, **READY | {"host_key": None})
        await keys.put_keys(tx, [])
        await keys.put_keys(tx, [key(row), key(silent)])
        await keys.put_keys(tx, [key(row, "SHA256:later", due_at=START + MINUTE)])
    async with db.write() as tx:
        assert [one.id for one in await keys.machines_to_write(tx, START, 10)] == [row.id]
        await keys.keys_failed(tx, row.id, ["SHA256:one"], KeyProblem.REFUSED, START + MINUTE)
        assert await keys.machines_to_write(tx, START, 10) == []
        assert [one.problem for one in await keys.keys_on(tx, [row.id])] == [None, KeyProblem.REFUSED]
        assert [one.id for one in await keys.machines_to_write(tx, START + MINUTE, 10)] == [row.id]
        await keys.keys_written(tx, row.id, ["SHA256:one", "SHA256:later"], START + MINUTE)
        assert await keys.machines_to_write(tx, START + MINUTE, 10) == []
        assert {one.placed_at for one in await keys.keys_on(tx, [row.id])} == {START + MINUTE}
        again = await tx.get_one(Instance, row.id)
        again.reachable_at = START + 2 * MINUTE
        await tx.flush()
        assert [one.id for one in await keys.machines_to_write(tx, START + 2 * MINUTE, 10)] == [row.id]
        again.login_until = START + 3 * MINUTE
        await tx.flush()
        assert await keys.machines_to_write(tx, START + 2 * MINUTE, 10) == []


async def test_what_is_known_gets_the_new_values(db: Database) -> None:
    async with db.write() as tx:
        row = await rows.instance(tx, **READY)
        await keys.put_keys(tx, [key(row)])
        await keys.put_keys(tx, [key(row, wanted=False, since=START + MINUTE)])
        (one,) = await keys.keys_on(tx, [row.id])
        assert (one.wanted, one.since, one.public_key) == (False, START + MINUTE, "ssh-ed25519 SHA256:one")
