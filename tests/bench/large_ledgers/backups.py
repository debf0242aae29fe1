"""What a backup, its check and a restore of a large ledger take, on both databases."""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

from sqlalchemy import delete, insert

from bot.rules.audit.hash_chain import START, event_hash
from bot.services.backups.backup import back_up
from bot.services.backups.installation import Installation
from bot.services.backups.restore import check, restore
from bot.services.runtime.event_content import content
from ledger.engine.db import Database
from ledger.models import Event, EventHash, EventOrder, UnnumberedEvent
from tests.bench.databases import Line, on_both
from tests.bench.fleet import CHUNK, NOW, Fleet
from tests.support.databases import path_with_programs

SESSIONS, EVENTS = 10_000, 12
AIM_S = 30.0
PASSPHRASE = "a passphrase of the bench"


def journal() -> Iterator[dict[str, Any]]:
    """The events of all sessions, each subject's in turn."""
    for session in range(SESSIONS):
        for number in range(EVENTS):
            yield {
                "id": f"evt_{session:06}{number:02}", "at": NOW + timedelta(seconds=number), "actor": "system",
                "subject": f"ses_{session:06}", "kind": "session.moved", "before": "provisioning", "after": "running",
                "reason": "It answers at its SSH port.", "data": {"cloud": "runpod", "number": number},
            }  # fmt: skip


async def fill(db: Database) -> None:
    """Write the sessions, and a journal whose hashes are right."""
    await Fleet(db).grow(SESSIONS)
    events = list(journal())
    position, before = 0, START
    for begin in range(0, len(events), CHUNK * EVENTS):
        batch, orders, hashes = events[begin : begin + CHUNK * EVENTS], [], []
        for values in batch:
            position, number = position + 1, values["data"]["number"]
            before = event_hash(START if number == 0 else before, content(Event(**values)))
            orders.append({"position": position, "event_id": values["id"], "numbered_at": NOW})
            link = {"event_id": values["id"], "subject": values["subject"], "number": number + 1}
            hashes.append({**link, "hash": before, "at": values["at"]})
        async with db.write() as tx:
            for model, rows in ((Event, batch), (EventOrder, orders), (EventHash, hashes)):
                await tx.execute(insert(cast("Any", model.__table__)), rows)
            await tx.execute(delete(UnnumberedEvent))


async def measure(name: str, db: Database) -> AsyncIterator[Line]:
    """The lines of the report for one database."""
    os.environ["PATH"] = path_with_programs()
    await fill(db)
    await db.close()  # A restore wants nobody connected.
    url = db.url.render_as_string(hide_password=False)
    with tempfile.TemporaryDirectory() as folder:
        data, safe = Path(folder, "data"), Path(folder, "safe")
        data.mkdir()  # noqa: ASYNC240 # A folder of the bench.
        ledger = Path(str(db.url.database)) if db.dialect == "sqlite" else None
        place = Installation(url, ledger, data, deployment="test", key_hex="ab" * 32)
        began = time.perf_counter()
        made = await back_up(place, safe, PASSPHRASE, NOW, "bench")
        yield _line(
            f"{name}: backup", began, f"{made.path.stat().st_size / 1e6:.0f} MB, {made.manifest.position} events"
        )
        if made.broken:
            raise SystemExit(f"{name}: {made.broken[0]}")
        began = time.perf_counter()
        await asyncio.to_thread(check, made.path, safe, PASSPHRASE)
        yield _line(f"{name}: check", began, "")
        began = time.perf_counter()
        await restore(place, made.path, PASSPHRASE, NOW)
        yield _line(f"{name}: restore", began, "with every check")


def _line(name: str, began: float, what: str) -> Line:
    took = time.perf_counter() - began
    return name, f"{took:.1f} s", f"{'aim ≤' if took <= AIM_S else 'MISSED:'} {AIM_S:.0f} s; {what}".removesuffix("; ")


def report() -> AsyncIterator[Line]:
    """Both databases, one after the other."""
    return on_both(measure)
