"""What approvals may still spend: the settled sums and the marked sessions are the raw sum, after every change."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import pytest
from sqlalchemy import func, select, update

from ledger.core.writes import Tx
from ledger.engine.db import Database
from ledger.kernel.entry_kind import EntryKind
from ledger.kernel.states import GrantState, InstanceState, SessionState
from ledger.models import (
    Approval,
    GrantRow,
    Instance,
    LedgerEntry,
    OpenSpend,
    Request,
    Session,
    SessionOpenSpend,
    UnsettledSpend,
)
from ledger.queries.access import Whose
from ledger.queries.budgets.open_spend import are_many, by_session, outstanding, settle, wrong_sums
from ledger.queries.spend import Purse
from tests.support import rows

ADAS = Purse(Whose.of([rows.ADA]))
PURSES = (Purse(), ADAS, Purse(label="moe"), Purse(Whose.of([rows.BEN]), "else"))


async def test_what_approvals_in_force_may_still_spend(db: Database) -> None:
    async def row_of(tx: Tx, state: SessionState, cap: str, rate: str, **values: Any) -> Instance:
        session = await rows.session(tx, state, **values)
        asked = await tx.get_one(Request, session.request_id)
        caps: dict[str, Any] = {"total_cap_usd": Decimal(cap), "price_cap_usd_h": Decimal(rate)}
        under = await rows.grant(tx, asked, GrantState.USED, session_id=session.id, **caps)
        return await rows.instance(tx, InstanceState.GONE, of=session, under=under)

    async def more(tx: Tx, of: Instance, seq: int, state: GrantState, cap: str, rate: str, *, alone: bool) -> GrantRow:
        """A further grant of a session, from an approval of its own or from that of its first one."""
        asked = await tx.get_one(Request, of.request_id)
        first = await tx.get_one(GrantRow, of.grant_id)
        own = await rows.approval(tx, asked, rows.ADA, quote_version=seq) if alone else None
        by = own or await tx.get_one(Approval, first.approval_id)
        caps: dict[str, Any] = {"total_cap_usd": Decimal(cap), "price_cap_usd_h": Decimal(rate)}
        return await rows.grant(tx, asked, state, by=by, seq=seq, session_id=of.session_id, **caps)

    async with db.write() as tx:
        row = await row_of(tx, SessionState.RUNNING, "5", "0.5", label="moe")
        await rows.entry(tx, row, "1.25")
        await rows.entry(tx, row, "-0.25", kind=EntryKind.TRUE_UP)
        await rows.entry(tx, row, "70", kind=EntryKind.RESERVE)
        await more(tx, row, 2, GrantState.OPEN, "4", "0.75", alone=False)  # A replacement takes from the same amount.
        await more(tx, row, 3, GrantState.OPEN, "2", "0.6", alone=True)
        await more(tx, row, 4, GrantState.VOID, "100", "9", alone=True)
        given = await more(tx, row, 5, GrantState.USED, "100", "9", alone=True)
        await rows.entry(tx, row, "1", kind=EntryKind.RELEASE, key=f"release/{given.id}")
        over = await row_of(tx, SessionState.TERMINATING, "3", "1", label="moe", owner=rows.BEN.ref)
        await rows.entry(tx, over, "3.5")  # More than was approved leaves nothing, and takes from nobody else.
        ended = await row_of(tx, SessionState.TERMINATED, "1000", "10")
        await rows.entry(tx, ended, "1")
        await row_of(tx, SessionState.QUEUED, "8", "2", label="else")
    async with db.read() as tx:
        assert (await outstanding(tx, Purse(), ()))[:2] == (Decimal(5 + 2 - 1 + 0 + 8), Decimal("0.75") + 1 + 2)
        assert (await outstanding(tx, Purse(label="moe"), ()))[:2] == (Decimal(6), Decimal("1.75"))
        assert (await outstanding(tx, ADAS, ()))[:2] == (Decimal(14), Decimal("2.75"))
        assert (await outstanding(tx, Purse(Whose.of([rows.BEN]), "else"), ()))[:2] == (Decimal(0), Decimal(0))


def _table(model: Any) -> Any:
    return model.__table__


async def raw(tx: Tx, purse: Purse) -> tuple[Decimal, Decimal]:
    """The sums over every live session, computed from its grants and entries."""
    each = (await tx.execute(by_session(*purse.conditions()))).all()
    return sum((usd for _, usd, _ in each), Decimal(0)), sum((rate for *_, rate in each), Decimal(0))


@dataclass
class History:
    """Changes of a few sessions, drawn one after the other."""

    draw: random.Random
    held: list[Instance] = field(default_factory=list)

    async def change(self, tx: Tx) -> None:
        """Make one change."""
        changes = (self.begin, self.more, self.used, self.used, self.given_back, self.granted, self.moved, self.owned)
        await (self.draw.choice(changes) if self.held else self.begin)(tx)

    def usd(self, most: int) -> Decimal:
        """An amount."""
        return Decimal(self.draw.randrange(1, most * 1_000_000)) / 1_000_000

    async def begin(self, tx: Tx) -> None:
        """A session with its first grant and an instance."""
        owner, label = self.draw.choice((rows.ADA, rows.BEN)).ref, self.draw.choice(("moe", "else", None))
        state = self.draw.choice(list(SessionState))
        under = await rows.session(tx, state, owner=owner, label=label)
        asked = await tx.get_one(Request, under.request_id)
        # A grant is made before its session, and given to it later.
        first = self.draw.random() < 0.5
        caps: dict[str, Any] = {"total_cap_usd": self.usd(9), "price_cap_usd_h": self.usd(2)}
        authority = await rows.grant(tx, asked, GrantState.USED, session_id=under.id if first else None, **caps)
        if not first:
            given = update(GrantRow).where(GrantRow.id == authority.id).values(session_id=under.id)
            await tx.execute(given, execution_options={"synchronize_session": False})
        self.held.append(await rows.instance(tx, InstanceState.GONE, of=under, under=authority))

    async def more(self, tx: Tx) -> None:
        """A further grant, from an approval of its own or from the first one."""
        of = self.draw.choice(self.held)
        asked, first = await tx.get_one(Request, of.request_id), await tx.get_one(GrantRow, of.grant_id)
        seq = 1 + (await tx.scalar(select(func.count()).where(GrantRow.request_id == asked.id)) or 0)
        own = await rows.approval(tx, asked, rows.ADA, quote_version=seq) if self.draw.random() < 0.5 else None
        by = own or await tx.get_one(Approval, first.approval_id)
        caps: dict[str, Any] = {"total_cap_usd": self.usd(9), "price_cap_usd_h": self.usd(2)}
        state = self.draw.choice(list(GrantState))
        await rows.grant(tx, asked, state, by=by, seq=seq, session_id=of.session_id, **caps)

    async def used(self, tx: Tx) -> None:
        """An entry of an instance, sometimes a correction, and sometimes more than was approved."""
        back = self.draw.random() < 0.2
        kind = EntryKind.TRUE_UP if back else EntryKind.ACCRUE
        await rows.entry(tx, self.draw.choice(self.held), f"{'-' if back else ''}{self.usd(4)}", kind=kind)

    async def given_back(self, tx: Tx) -> None:
        """A grant is released, once."""
        of = self.draw.choice(self.held)
        grants = list(await tx.scalars(select(GrantRow.id).where(GrantRow.session_id == of.session_id)))
        key = f"release/{self.draw.choice(grants)}" if grants else ""
        if grants and not await tx.scalar(select(func.count()).where(LedgerEntry.key == key)):
            await rows.entry(tx, of, "1", kind=EntryKind.RELEASE, key=key)

    async def granted(self, tx: Tx) -> None:
        """A grant gets another state, or another session."""
        of, to = self.draw.choice(self.held), self.draw.choice(self.held)
        values: dict[str, Any] = {"state": self.draw.choice(list(GrantState))}
        if self.draw.random() < 0.3:
            values = {"session_id": self.draw.choice((to.session_id, None))}
        await tx.execute(update(_table(GrantRow)).where(GrantRow.id == of.grant_id).values(**values))

    async def moved(self, tx: Tx) -> None:
        """A session gets another state."""
        state = self.draw.choice(list(SessionState))
        await tx.execute(update(_table(Session)).where(Session.id == self._session()).values(state=state))

    async def owned(self, tx: Tx) -> None:
        """A session gets another owner, or another project."""
        values = self.draw.choice(({"owner": rows.BEN.ref}, {"label": None}, {"label": "moe"}))
        await tx.execute(update(_table(Session)).where(Session.id == self._session()).values(**values))

    def _session(self) -> str:
        return self.draw.choice(self.held).session_id


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.slow
async def test_settled_sums_and_marked_sessions_are_the_raw_sum_after_every_change(db: Database, seed: int) -> None:
    history = History(random.Random(seed))
    for _ in range(60):
        async with db.write() as tx:
            await history.change(tx)
        if history.draw.random() < 0.5:
            async with db.write() as tx:
                await settle(tx, history.draw.randrange(1, 8))
        async with db.read() as tx:
            for purse in PURSES:
                assert (await outstanding(tx, purse, ()))[:2] == await raw(tx, purse)
            assert await wrong_sums(tx) == []
    async with db.write() as tx:
        while await settle(tx, 50):
            pass
        for purse in PURSES:
            assert (await outstanding(tx, purse, ()))[:2] == await raw(tx, purse)
        assert await tx.scalar(select(func.count()).select_from(UnsettledSpend)) == 0
        live = await tx.scalar(select(func.count()).select_from(SessionOpenSpend))
        assert live == len((await tx.execute(by_session())).all()) > 0


async def test_a_wrong_sum_is_found(db: Database) -> None:
    async with db.write() as tx:
        of = await rows.instance(tx, of=await rows.session(tx, SessionState.RUNNING))
        assert await are_many(tx, 2)
        assert not await are_many(tx, 9)
        await settle(tx, 9)
        await tx.execute(update(SessionOpenSpend).values(usd=Decimal(1)))
        assert await wrong_sums(tx) == [of.session_id, f"{rows.ADA.ref} "]
        await tx.execute(update(SessionOpenSpend).values(usd=Decimal(2)))
        assert await wrong_sums(tx) == []
        await tx.execute(update(OpenSpend).values(rate_usd_h=Decimal(9)))
        assert await wrong_sums(tx) == [f"{rows.ADA.ref} "]
