"""Approved ends come without a ledger that takes writes, and are recorded when it takes them again."""

from __future__ import annotations

import json
import stat
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import cast

import pytest

from bot.services.access import api_keys
from bot.services.access.api_keys import NewKey
from bot.services.runtime.ends_copy import NAME
from bot.services.sessions.end_watchdog import EndWatchdog
from ledger.engine import db as engine
from ledger.engine.db import Database
from ledger.kernel.actor import Actor, ActorKind
from ledger.kernel.checkpoint_step import CheckpointStep
from ledger.kernel.end_reason import EndReason
from ledger.kernel.entry_kind import EntryKind
from ledger.kernel.event_kind import EventKind
from ledger.kernel.grant import Grant
from ledger.kernel.states import InstanceState, NotificationKind, OrphanState, SessionState
from ledger.models import Orphan
from providers.contract import InstanceSpec, ObservedInstance, Provider
from tests.services.sessions.watchdog import OPERATORS, Broken, Watched, locked, url_of
from tests.support.proxy_provider import InFront
from tests.support.world import ALICE, World


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A lock of another process is waited for 50 ms, so that these tests do not wait 15 s for each refusal."""
    monkeypatch.setattr(engine, "BUSY_TIMEOUT_MS", 50)


@pytest.fixture
async def db(sqlite_db_url: str) -> AsyncIterator[Database]:
    """A ledger on SQLite, whose locks, modes and full disks these tests are about."""
    opened = Database(sqlite_db_url)
    yield opened
    await opened.close()


@pytest.fixture
async def watched(w: World, tmp_path: Path) -> AsyncIterator[Watched]:
    ctx = replace(w.ctx, db=Database(url_of(w)))
    built = Watched(w, EndWatchdog(ctx, tmp_path / NAME, "me", _silent, _nobody, OPERATORS), [])
    built.dog.say, built.dog.ask_others = built.say, built.others
    yield built
    await ctx.db.close()


async def _silent(_to: str, _text: str) -> bool:
    return False


async def _nobody() -> int | None:
    return None


def kinds(events: object) -> list[str]:
    return [str(event.kind) for event in events]  # type: ignore[attr-defined] # Rows of the journal.


@pytest.mark.parametrize("how", ["locked", "read-only", "full"])
async def test_an_approved_end_comes_while_the_ledger_takes_no_write(watched: Watched, how: str) -> None:
    w, dog = watched.w, watched.dog
    await w.running()
    assert await dog.probe()
    await dog.look()
    broken = Broken(watched, how)
    await broken.begin()
    await watched.to_the_end(after_s=15)
    await watched.jobs_try()
    await watched.look()
    assert len(w.alive()) == 1, "15 s are the jobs' own time"
    w.clock.advance(10)
    await watched.jobs_try()
    assert len(w.alive()) == 1
    await watched.look()
    assert w.alive() == []
    assert not await dog.probe()
    await dog.watch_writes()
    assert [page for page in watched.pages if "terminated" in page]
    assert [page for page in watched.pages if "write to its ledger for 20 seconds" in page]
    # The owner was never warned, because the warning is a row; the watchdog says it itself.
    assert [said for to, said in watched.said if to == ALICE.id and "GPU Shopper terminates it now" in said]

    await broken.mend()
    assert await dog.probe()
    await dog.watch_writes()
    assert watched.pages[-1] == "GPU Shopper can write to its ledger again."
    await w.run(200, 20)
    row = await watched.session()
    assert (row.state, row.end_code) == (SessionState.TERMINATED, EndReason.RESERVATION_OVER)
    books = await w.books()
    assert kinds(books.events).count(EventKind.INSTANCE_ENDED_DIRECTLY) == 1
    shown = [one for one in books.notifications if one.kind is NotificationKind.OPERATOR_PAGE]
    assert [one for one in shown if "end watchdog sent a terminate" in str(one.body)]
    assert dog.copy.sent == ()


async def test_a_create_whose_reply_the_ledger_could_not_store_ends_at_its_approved_end(watched: Watched) -> None:
    w, dog = watched.w, watched.dog
    broken = Broken(watched, "locked")

    class Breaking(InFront):
        async def create(self, spec: InstanceSpec, grant: Grant) -> ObservedInstance:
            made = await self.inner.create(spec, grant)
            await broken.begin()
            return made

    await w.approved(candidates=("runpod",))
    w.wrap("runpod", lambda inner: cast("Provider", Breaking(inner)))
    await watched.jobs_try()
    row = (await w.books()).instances[0]
    assert (row.state, row.ref, len(w.alive())) == (InstanceState.SENDING, None, 1)
    hours = timedelta(hours=float((await watched.session()).hours))
    assert row.sent_at is not None
    w.clock.advance(row.sent_at + hours + timedelta(seconds=15) - w.clock.now())
    await watched.look()
    assert len(w.alive()) == 1
    w.clock.advance(10)
    await watched.jobs_try()
    await watched.look()
    assert w.alive() == []
    await broken.mend()
    assert await dog.probe()
    assert dog.copy.sent == ()
    await w.run(300, 20)
    session = await watched.session()
    assert (session.state, session.end_code) == (SessionState.TERMINATED, EndReason.RESERVATION_OVER)
    booked = sum(entry.amount_usd for entry in (await w.books()).entries if entry.kind is EntryKind.ACCRUE)
    assert w.bill() > 0
    assert abs(booked - w.bill()) <= w.bill() / 100


async def test_a_create_of_which_nothing_came_is_not_ended(watched: Watched) -> None:
    w = watched.w
    await w.approved(candidates=("vast",))
    w.arm("create_no_id", "vast")
    await w.tick()
    row = (await w.books()).instances[0]
    assert (row.state, w.alive()) == (InstanceState.UNKNOWN, [])
    w.clock.advance(3 * 3600)
    await watched.look()
    assert (watched.said, watched.dog.copy.sent) == ([], ())
    await w.run(60, 20)


async def test_what_was_sent_is_recorded_by_the_next_process(watched: Watched, tmp_path: Path) -> None:
    w = watched.w
    await w.running()
    broken = Broken(watched, "read-only")
    await watched.dog.look()
    await broken.begin()
    await watched.to_the_end()
    await watched.look()
    assert w.alive() == []
    await broken.mend()
    another = EndWatchdog(watched.dog.ctx, tmp_path / NAME, "me", watched.say, watched.others, OPERATORS)
    assert len(another.copy.sent) == 1
    assert await another.probe()
    row = (await w.books()).instances[0]
    assert row.terminate_acked_at == another.copy.read_at
    await w.run(200, 20)
    booked = sum(entry.amount_usd for entry in (await w.books()).entries if entry.kind is EntryKind.ACCRUE)
    assert abs(booked - w.bill()) <= w.bill() / 100


async def test_a_listing_that_lacked_an_instance_before_its_direct_end_does_not_shorten_its_cost(
    watched: Watched,
) -> None:
    w = watched.w
    await w.running(candidates=("vast",))
    await watched.change(absent_at=[w.clock.now().isoformat()])
    await watched.dog.look()
    with locked(w.ctx.db):
        await watched.to_the_end()
        await watched.look()
        assert w.alive() == []
    # The jobs are faster than the record: they order the end, and the cloud does not know the instance any more.
    await w.run(60, 20)
    row = (await w.books()).instances[0]
    assert (row.state, row.terminate_acked_at is None, len(row.absent_at) > 1) == (
        InstanceState.TERMINATING,
        False,
        True,
    )
    assert await watched.dog.probe()
    await w.run(200, 20)
    booked = sum(entry.amount_usd for entry in (await w.books()).entries if entry.kind is EntryKind.ACCRUE)
    assert w.bill() > 0
    assert abs(booked - w.bill()) <= w.bill() / 100


async def test_the_copy_is_private_and_replaced_whole(watched: Watched, tmp_path: Path) -> None:
    await watched.w.running()
    await watched.dog.look()
    path = tmp_path / NAME
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    found = json.loads(path.read_text())["rows"]
    instance = (await watched.w.books()).instances[0]
    assert [(row["instance_id"], row["ref"], row["label"]) for row in found] == [
        (instance.id, instance.ref, instance.label)
    ]
    assert temporary_files(tmp_path) == []


def temporary_files(folder: Path) -> list[Path]:
    return list(folder.glob(f".{NAME}*"))


async def unreadable(watched: Watched) -> None:
    """The ledger is gone: its server does not answer, or its file is broken."""
    await watched.dog.ctx.db.close()
    nowhere = Database("postgresql+asyncpg://nobody:nothing@127.0.0.1:9/none")
    watched.dog.ctx = replace(watched.dog.ctx, db=nowhere)


@pytest.mark.parametrize(
    ("able", "others", "ends"),
    [(None, 0, True), (0, 1, True), (1, 1, False), (None, 1, False)],
    ids=["alone", "the others cannot write either", "another can write", "others that cannot be asked"],
)
async def test_the_copy_counts_only_where_no_other_replica_can_write(
    watched: Watched, able: int | None, others: int, ends: bool
) -> None:
    w, dog = watched.w, watched.dog
    await w.running()
    await dog.look()
    dog.copy = replace(dog.copy, others=others)
    await unreadable(watched)
    watched.able = able
    await watched.to_the_end()
    await watched.look()
    assert (w.alive() == []) is ends
    if able is None and others:
        assert "set GPU_SHOPPER_REPLICAS" in watched.pages[0]


async def test_a_cloud_that_fails_is_tried_again_and_paged_where_no_job_can(watched: Watched) -> None:
    w = watched.w
    await w.running()
    await watched.dog.look()
    broken = Broken(watched, "read-only")
    await broken.begin()
    assert not await watched.dog.probe()
    await watched.to_the_end()
    w.arm("destroy_429", "runpod")
    await watched.look()
    assert len(w.alive()) == 1
    assert "is past its approved end, and runpod did not terminate it" in watched.pages[0]
    await watched.look()
    assert len(w.alive()) == 1, "it is not tried again at once"
    w.clock.advance(60)
    await watched.look()
    assert w.alive() == []
    await broken.mend()
    assert await watched.dog.probe()


async def test_an_extension_counts_at_once(watched: Watched) -> None:
    w = watched.w
    request_id = await w.running()
    await watched.dog.look()
    reply = await w.more(request_id)
    await w.settle()
    assert (await w.decide(str(reply.data["request_id"]))).ok
    await watched.to_the_end(after_s=25 - 3600)
    await watched.look()
    assert len(w.alive()) == 1
    w.clock.advance(3600)
    await watched.look()
    assert w.alive() == []


async def test_a_checkpoint_hold_binds_the_watchdog(watched: Watched) -> None:
    w = watched.w
    await w.running()
    await watched.to_the_end(after_s=-60)
    until = w.clock.now() + timedelta(hours=2)
    await watched.change(checkpoint_step=CheckpointStep.HELD, checkpoint_until=until)
    broken = Broken(watched, "locked")
    await broken.begin()
    w.clock.advance(3600)
    await watched.look()
    assert len(w.alive()) == 1
    w.clock.advance(3600 + 5 * 60 + 25)
    await watched.look()
    assert w.alive() == []
    await broken.mend()
    await watched.dog.probe()


async def test_recovery_mode_binds_the_watchdog(watched: Watched) -> None:
    """An end that lay before the first sighting may have been extended in what the ledger lost."""
    w = watched.w
    await w.running()
    await watched.to_the_end(after_s=10)
    row = (await w.books()).instances[0]
    seen = {"first_seen_at": w.clock.now(), "last_seen_at": w.clock.now()}
    async with w.ctx.db.write() as tx:
        orphan = Orphan(
            id="orp_1", cloud=row.cloud, account=row.account, ref="unknown", label="gs-x",
            state=OrphanState.QUARANTINED, version=1, price_usd_h=Decimal(1), absent_at=[], reason="", **seen,
        )  # fmt: skip
        tx.add(orphan)
    w.clock.advance(60)
    await watched.look()
    assert len(w.alive()) == 1
    w.clock.advance(w.ctx.timing.recovery_page_s)
    await watched.look()
    assert w.alive() == []


@pytest.mark.parametrize(
    ("owner", "to"),
    [
        (Actor(ActorKind.CONSUMER, "atlas"), ALICE.id),
        (Actor(ActorKind.OPERATOR, "al"), ALICE.id),
        (Actor(ActorKind.OPERATOR, "ada"), "C0CONTACT"),
    ],
    ids=str,
)
async def test_the_person_behind_an_owner_is_notified_although_the_ledger_cannot_be_read(
    watched: Watched, owner: Actor, to: str
) -> None:
    w = watched.w
    w.tune(same_person=((ALICE.id, "operator:al"),), fallback_contacts=("C0CONTACT",))
    watched.dog.ctx.policy = w.ctx.policy
    await api_keys.create(w.ctx.db, w.ctx.labels, NewKey("atlas", ALICE.ref), ALICE, w.clock.now())
    await w.running(owner, candidates=("vast",))
    await watched.dog.look()
    await watched.to_the_end()
    with locked(w.ctx.db):
        await watched.look()
    assert w.alive() == []
    assert [where for where, text in watched.said if "GPU Shopper terminates it now" in text] == [to]
    await watched.dog.probe()
    await w.run(200, 20)
