"""Plain rentals: what a request is expected to cost is what its cloud bills for it, within one percent.

Nothing fails here: machines run after the time that their cloud usually takes, and every rental ends at its approved
end. Where a cloud bills from then on, each second that a machine boots faster is a second more on the bill.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

import pytest

from bot.rules.policy.policy import Policy
from ledger.engine.db import Database
from ledger.kernel.job import SpotPolicy
from ledger.kernel.states import SessionState
from ledger.models import Session
from providers.sandbox.clock import SandboxTiming
from providers.sandbox.engine import TrueInstance
from providers.sandbox.kaggle.sandbox import KaggleSandbox
from tests.support.clock import SteppedClock
from tests.support.tables import TABLE
from tests.support.world import BOB, World, world

CLOUDS = ("runpod", "vast", "lambda", "tensordock", "kaggle")
#: Hours (with six places, as `10m` and `100m` are kept) and GB of disk of the rentals at each cloud. Every second one
#: is a spot rental where the cloud has them.
RENTALS = (
    ("0.166667", 20), ("0.5", 20), ("1", 50), ("1.25", 50), ("1.666667", 100), ("3.3", 60), ("5", 200), ("8", 50),
)  # fmt: skip
MOST_OFF = Decimal("0.01")
#: Steps on the way, and near the end, where warnings come in time.
STEP_S, CLOSE_S = 600.0, 60.0
NEAR_S = 1200.0
#: Steps while something is launched or ended.
LOOK_S = 20.0
HOUR_S = 3600


@dataclass(frozen=True)
class Rented:
    """One rental that ended as planned: what its quote expected, and what its cloud charged."""

    cloud: str
    hours: Decimal
    disk_gb: int
    spot: bool
    expected_usd: Decimal
    billed: TrueInstance

    @property
    def off(self) -> Decimal:
        """The share by which the expected total is off the bill."""
        bill = self.billed.total_usd
        return abs(self.expected_usd - bill) / bill if bill else Decimal(bool(self.expected_usd))

    @property
    def row(self) -> tuple[str, ...]:
        kind = "spot" if self.spot else "on-demand"
        amounts = (f"${self.expected_usd:.4f}", f"${self.billed.total_usd:.4f}", f"{self.off:.2%}")
        return (self.cloud, f"{self.hours:.2f}", f"{self.disk_gb}", kind, f"{self.billed.gpu_s:.0f}", *amounts)


async def rental(w: World, cloud: str, hours: Decimal, disk_gb: int, spot: SpotPolicy) -> Rented:
    """Rent one machine until its approved end, which is met exactly."""
    before = {one.ref for one in w.instances()}
    request_id = await w.approved(candidates=(cloud,), hours=hours, disk_gb=disk_gb, spot=spot)
    option = (await w.view(request_id)).options[0]
    session = None
    while session is None or session.state is not SessionState.TERMINATED:
        await w.run(step_s(session, w.clock.now()), STEP_S)
        session = (await w.view(request_id)).session
        assert session is None or session.state is not SessionState.FAILED, session.end_reason
    (billed,) = [one for one in w.instances() if one.ref not in before]
    return Rented(cloud, hours, disk_gb, bool(option.offer["spot"]), option.expected_usd, billed)


def step_s(session: Session | None, now: datetime) -> float:
    """How long to wait before the next look at a session; never past its end."""
    if session is None or session.deadline is None or session.deadline <= now:
        return LOOK_S
    left_s = (session.deadline - now).total_seconds()
    if session.state is not SessionState.RUNNING:
        return min(left_s, LOOK_S)
    return min(left_s, CLOSE_S if left_s <= NEAR_S else STEP_S, max(left_s - NEAR_S, CLOSE_S))


def program_lasts(w: World, cloud: str, hours: Decimal) -> None:
    """From now on a program that is handed to a cloud of batch runs works until the end of its rental."""
    sandbox = w.clouds[cloud]
    if isinstance(sandbox, KaggleSandbox):
        sandbox.work_s = float(hours) * HOUR_S - w.engine.timing.boot_s


@pytest.mark.timeout(600)
async def test_the_expected_total_is_the_bill(
    db: Database, clock: SteppedClock, record_property: Callable[[str, object], None]
) -> None:
    # Nothing is sent or fetched: sandboxes bill no traffic.
    policy = Policy(approvers=(BOB.id,), egress_gb=Decimal(0), ingress_gb=Decimal(0))
    rentals: list[Rented] = []
    async with world(db, clock, policy=policy, settings={"RUNPOD_SPOT": "true"}) as w:
        for cloud in CLOUDS:
            able = w.ctx.providers[cloud].capabilities
            w.boots_in(able.boot_expected_s)
            for number, (hours, disk_gb) in enumerate(RENTALS):
                spot = SpotPolicy.YES if able.spot and number % 2 else SpotPolicy.NO
                program_lasts(w, cloud, Decimal(hours))
                rentals.append(await rental(w, cloud, Decimal(hours), disk_gb, spot))
        assert await w.violations() == []
    titles = ("CLOUD", "HOURS", "DISK GB", "PRICE", "GPU S BILLED", "EXPECTED", "BILL", "OFF")
    shown = "\n".join("  ".join(f"{cell:>12}" for cell in row) for row in (titles, *(one.row for one in rentals)))
    record_property(TABLE, shown)
    assert len(rentals) == 40
    assert [one.row for one in rentals if one.off > MOST_OFF] == [], shown
    assert {one.cloud for one in rentals if one.spot} == {"vast", "runpod"}


@pytest.mark.parametrize("words", ["10m", "20m", "7m"])
async def test_a_rental_of_whole_minutes_is_billed_by_whole_minutes(
    db: Database, clock: SteppedClock, words: str
) -> None:
    """Where a cloud bills every started minute, the rest of a rounded hour is no further minute."""
    minutes = int(words.removesuffix("m"))
    hours = (Decimal(minutes) / 60).quantize(Decimal("0.000001"))
    async with world(db, clock, policy=Policy(approvers=(BOB.id,)), sandbox=SandboxTiming.quick()) as w:
        found = await rental(w, "lambda", hours, 20, SpotPolicy.NO)
    assert found.billed.gpu_s == minutes * 60
