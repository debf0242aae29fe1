"""Plain rentals: what a request is expected to cost is what its cloud bills for it, within one percent."""

from __future__ import annotations

from decimal import Decimal

import pytest

from bot.rules.policy.policy import Policy
from ledger.engine.db import Database
from ledger.kernel.states import SessionState
from tests.support.clock import SteppedClock
from tests.support.world import BOB, World, world

#: Hours and GB of disk of the rentals at each cloud. Ten minutes are kept as hours with six places.
RENTALS = (
    (Decimal("0.166667"), 20), (Decimal("0.5"), 20), (Decimal(1), 50), (Decimal("1.25"), 50),
    (Decimal(2), 100), (Decimal("3.3"), 60), (Decimal(5), 200), (Decimal(8), 50),
)  # fmt: skip


async def rental(w: World, cloud: str, hours: Decimal, disk_gb: int) -> tuple[Decimal, Decimal]:
    """Rent one machine until its approved end; return what was expected and what was billed."""
    before = w.bill()
    request_id = await w.approved(candidates=(cloud,), hours=hours, disk_gb=disk_gb)
    option = (await w.view(request_id)).options[0]
    await w.run(w.engine.timing.boot_s + 120, 30)
    session = (await w.view(request_id)).session
    assert session is not None
    assert session.state is SessionState.RUNNING
    if session.deadline is None:  # A batch cloud ends its program by itself.
        await w.run(float(hours) * 3600 + 600, 600)
    else:
        left_s = (session.deadline - w.clock.now()).total_seconds()
        await w.run(left_s, max(left_s / 8, 60))
    await w.run(300, 30)
    session = (await w.view(request_id)).session
    assert session is not None
    assert session.state is SessionState.TERMINATED
    return option.expected_usd, w.bill() - before


@pytest.mark.timeout(600)
@pytest.mark.parametrize("place", ["runpod", "vast", "lambda", "tensordock", "kaggle"])
async def test_the_expected_total_is_the_bill(db: Database, clock: SteppedClock, place: str) -> None:
    # What is sent and fetched is assumed, and these machines move nothing.
    policy = Policy(approvers=(BOB.id,), egress_gb=Decimal(0), ingress_gb=Decimal(0))
    async with world(db, clock, policy=policy) as w:
        w.boots_in(w.ctx.providers[place].capabilities.boot_expected_s)
        for hours, disk_gb in RENTALS:
            expected, billed = await rental(w, place, hours, disk_gb)
            assert abs(billed - expected) <= expected / 100, (hours, expected, billed)
            assert (expected == 0) is (place == "kaggle")
