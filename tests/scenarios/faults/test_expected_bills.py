"""Plain rentals: what a request is expected to cost is what its cloud bills for it, within one percent."""

from __future__ import annotations

from decimal import Decimal

import pytest

from ledger.core import Database
from ledger.kernel.job import SpotPolicy
from ledger.kernel.states import SessionState
from tests.support.clock import SteppedClock
from tests.support.world import world

#: Hours and GB of disk of the rentals at each cloud.
RENTALS = (
    (Decimal(1) / 6, 20), (Decimal("0.5"), 20), (Decimal(1), 50), (Decimal("1.25"), 50),
    (Decimal("2"), 100), (Decimal("3.3"), 60), (Decimal("5"), 200), (Decimal("8"), 50),
)  # fmt: skip


@pytest.mark.parametrize("cloud", ["vast", "runpod", "lambda", "tensordock", "kaggle"])
async def test_the_expected_total_is_the_bill(db: Database, clock: SteppedClock, cloud: str) -> None:
    async with world(db, clock) as w:
        for number, (hours, disk_gb) in enumerate(RENTALS):
            spot = SpotPolicy.YES if cloud == "vast" and number % 2 else SpotPolicy.NO
            request_id = await w.running(candidates=(cloud,), hours=hours, disk_gb=disk_gb, spot=spot)
            view = await w.view(request_id)
            print(cloud, hours, view.session.state if view.session else None)
