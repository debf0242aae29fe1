"""Blend the reliability that a cloud reports of a host with what own sessions on it showed.

The reported figure is read as a Beta prior over the chance that the host survives one `loss_window_h`, worth
`PRIOR_WINDOWS` observed windows. Each window of hours that it ran is a success, each failed session a failure, and each
slow one half a failure. The posterior's mean is (prior x weight + successes) / (weight + successes + failures): the
conjugate update of a binomial (A. Gelman et al., "Bayesian Data Analysis", 3rd edition, 2013, section 2.4). So one
failure moves the figure a little, three of three move it a lot, and many good hours bring it back.
"""

from __future__ import annotations

from decimal import Decimal

from bot.rules.values.phrases import about_hours, plural
from providers.contract import HostRecord

#: Windows of own sessions that weigh as much as the cloud's figure. No cloud says how many its figure rests on, so it
#: is a choice: with 24 h windows, ten days of one host are as much evidence as its cloud's word.
PRIOR_WINDOWS = Decimal(10)
#: A slow session worked, but its host is throttled, shared or misconfigured at times.
SLOW_WEIGHT = Decimal("0.5")


def blended(prior: Decimal, record: HostRecord, window_h: Decimal) -> Decimal:
    """Return the reliability between 0 and 1 of a host with a record; `prior` is the figure without it."""
    good = record.hours / window_h
    bad = record.failed + SLOW_WEIGHT * record.slow
    return (prior * PRIOR_WINDOWS + good) / (PRIOR_WINDOWS + good + bad)


def record_said(record: HostRecord) -> str:
    """Say what own sessions on a host showed, as a reason beside its reliability."""
    of_all = f"of {plural(record.sessions, 'session')} on this host"
    if record.failed:
        return f"{record.failed} {of_all} failed"
    if record.slow:
        return f"{record.slow} {of_all} {'was' if record.slow == 1 else 'were'} slow"
    return f"{plural(record.sessions, 'session')} on this host ran {about_hours(record.hours)} in all"
