"""Define how often the service polls and how long it waits, with documented defaults and floors for production."""

from __future__ import annotations

from dataclasses import dataclass, fields
from datetime import timedelta

from bot.rules.policy.bounds import LONGEST_S
from bot.rules.policy.defaults import setting
from ledger.kernel.proof import AbsenceRule
from providers.capabilities import BOOT_DEADLINE_S


@dataclass(frozen=True, slots=True)
class Timing:
    """Say how often the service polls and how long it waits. In production no value may be below its floor."""

    tick_s: float = setting(1.0, "Pause between two runs of the scheduler.", floor=0.2)
    sweep_s: float = setting(30.0, "Pause between two complete listings of one cloud.", floor=10)
    label_search_s: float = setting(
        15.0, "Pause between two searches for the label of a launch whose outcome is unknown.", floor=10
    )
    quarantine_floor_s: float = setting(
        300.0, "Least time for these searches. A cloud whose listings lag more gets longer.", floor=300
    )
    quarantine_lags: float = setting(
        10.0, "These searches last at least this many times the lag of the cloud's listings.", floor=10
    )
    absence_count: int = setting(3, "Complete listings without the instance that prove its end.", floor=3)
    absence_apart_s: float = setting(10.0, "Least time between two of those listings.", floor=10)
    absence_over_s: float = setting(60.0, "Least time from the first to the last.", floor=60)
    volume_absence_apart_s: float = setting(
        300.0, "Least time between two reads of a network volume that its cloud does not list.", floor=60
    )
    volume_absence_over_s: float = setting(
        3600.0, "A network volume counts as gone after every read has missed it for this long.", floor=3600
    )
    orphan_apart_s: float = setting(
        30.0, "Time between the two sightings after which an orphan is terminated.", floor=30
    )
    boot_deadline_s: float = setting(
        float(BOOT_DEADLINE_S),
        "An instance not ready by then is ended, where its cloud has no such time of its own.",
        floor=300,
    )
    broken_grace_s: float = setting(
        600.0,
        "A ready instance that fails, loses contact or is stopped by its cloud is ended if it does not work again "
        "within this time, unless it is in grace.",
        floor=120,
    )
    create_patience: float = setting(
        1.3,
        "How many times a cloud's own time-out for a create (90 s at most clouds, 150 s at TensorDock) to wait for its "
        "outcome. Then the outcome is unknown, and its label is searched for.",
        floor=1.2,
    )
    boot_poll_s: float = setting(5.0, "Pause between two checks of a booting instance.", floor=2)
    reach_timeout_s: float = setting(5.0, "How long one attempt to reach the SSH port may take.", floor=2)
    offers_timeout_s: float = setting(10.0, "How long a search waits for the slowest cloud.", floor=2)
    pace: float = setting(
        1.0,
        "How many times the documented pause between two calls of a cloud is kept; more than 1 leaves room for "
        "other programs that use the account.",
        floor=1,
    )
    terminate_retry_s: float = setting(
        5.0, "First pause before a termination is sent again. It doubles each time.", floor=2
    )
    terminate_retry_max_s: float = setting(60.0, "Longest such pause.", floor=10)
    terminate_page_s: float = setting(600.0, "A termination unproved for this long pages the operators.", floor=60)
    end_overdue_s: float = setting(
        20.0, "An end this overdue, for which no termination was sent, is sent directly, without the ledger.", floor=10
    )
    recovery_page_s: float = setting(
        1800.0, "Pause between two pages to the operators while an orphan waits.", floor=60
    )
    claim_ttl_s: float = setting(60.0, "After this the row of a worker that died is taken over.", floor=30)
    outbox_retry_s: float = setting(2.0, "First pause before a message is sent again.", floor=1)
    outbox_retry_max_s: float = setting(300.0, "Longest such pause.", floor=30)

    @property
    def absence_rule(self) -> AbsenceRule:
        """Return the proof of an end, in the ledger's own type."""
        apart, over = timedelta(seconds=self.absence_apart_s), timedelta(seconds=self.absence_over_s)
        return AbsenceRule(count=self.absence_count, apart=apart, over=over)

    @property
    def volume_absence_rule(self) -> AbsenceRule:
        """Return the same for a network volume that nobody deleted: reads of its own, for an hour at least."""
        apart, over = timedelta(seconds=self.volume_absence_apart_s), timedelta(seconds=self.volume_absence_over_s)
        return AbsenceRule(count=max(self.absence_count, 6), apart=apart, over=over)

    def validated(self, *, practice: bool = False) -> Timing:
        """Return this timing, or raise ValueError when a value is out of bounds.

        A practice workspace only needs values above 0.
        """
        for item in fields(self):
            # Written as `not above`, so that a NaN is refused as well.
            value, floor = getattr(self, item.name), item.metadata["floor"]
            if practice and not value > 0:
                raise ValueError(f"{item.name} is {value:g}, but must be above 0.")
            if not practice and not value >= floor:
                raise ValueError(
                    f"{item.name} is {value:g}, but {floor:g} is the least that is safe outside a practice workspace."
                )
            if not value <= LONGEST_S:
                raise ValueError(f"{item.name} is {value:g}, but must be at most {LONGEST_S}, a year in seconds.")
        return self
