"""Compute what a described run moves to and from an offer, at the bandwidth that its cloud reports.

Checkpoints are written to their store and read back after a loss, weights and data are fetched once, and the machine is
billed meanwhile. Where a cloud reports no bandwidth, the policy's `checkpoint_write_gb_s` is assumed both ways.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

from bot.rules.policy.policy import Policy
from bot.rules.sizing.interruptions import Checkpointing, loss
from bot.rules.sizing.run_time import RunTime
from bot.rules.sizing.start_times import NO_START, StartTimes
from providers.contract import Offer

_HOUR_S = 3600
#: GB an hour that one Mbit/s moves.
GB_H_PER_MBPS = Decimal("0.45")


@dataclass(frozen=True, slots=True)
class RunTraffic:
    """Hold what one run moves: the same for all offers of a GPU and number.

    `unsaid_gb_h` is the rate where a cloud reports none. `known` says whether the hours of the run follow from the
    work, so that its losses can be computed. `ready_h` are the billed hours between the boot and the first step,
    `wait_h` those from a loss until a replacement is created. `start` has what own sessions showed.
    """

    checkpoint_gb: Decimal
    fetched_gb: Decimal
    boot_h: Decimal
    every_h: Decimal | None
    window_h: Decimal
    unsaid_gb_h: Decimal
    known: bool
    ready_h: Decimal = Decimal(0)
    wait_h: Decimal = Decimal(0)
    start: StartTimes = NO_START

    def fetch_h(self, offer: Offer) -> Decimal:
        """Return how long weights and data are fetched."""
        return self.fetched_gb / self._rate(offer.download_mbps)

    @property
    def restart_h(self) -> Decimal:
        """Return the hours from a loss until a new machine has everything but the checkpoint."""
        return self.wait_h + self.boot_h + self.ready_h

    def checkpointing(self, offer: Offer) -> Checkpointing:
        """Return how the run writes checkpoints on an offer; a pause shorter than one write is as long as one."""
        write_h = self.checkpoint_gb / self._rate(offer.upload_mbps)
        restart_h = self.restart_h + self.checkpoint_gb / self._rate(offer.download_mbps)
        every_h = None if self.every_h is None else max(self.every_h, write_h)
        return Checkpointing(write_h, restart_h, every_h, self.window_h)

    def sent_gb(self, offer: Offer, chance: Decimal, work_h: Decimal) -> Decimal:
        """Return the GB of all checkpoints that are written in some hours of work, the last one at least."""
        if not self.known or not self.checkpoint_gb:
            return self.checkpoint_gb
        return self.checkpoint_gb * max(loss(chance, self.checkpointing(offer)).written_per_h * work_h, Decimal(1))

    def _rate(self, mbps: Decimal | None) -> Decimal:
        return mbps * GB_H_PER_MBPS if mbps is not None and mbps.is_finite() and mbps > 0 else self.unsaid_gb_h


def traffic(run: RunTime, boot_s: Decimal | int, policy: Policy) -> RunTraffic:
    """Return what a run moves; `boot_s` is how long a machine of the cloud takes to start."""
    return RunTraffic(
        checkpoint_gb=run.checkpoint_gb,
        fetched_gb=run.fetched_gb,
        boot_h=Decimal(boot_s) / _HOUR_S,
        every_h=run.every_h,
        window_h=policy.loss_window_h,
        unsaid_gb_h=policy.checkpoint_write_gb_s * _HOUR_S,
        known=run.known,
        ready_h=run.start.ready_s / _HOUR_S,
        wait_h=run.start.wait_s / _HOUR_S,
        start=run.start,
    )
