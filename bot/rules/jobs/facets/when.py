"""For how long, and from when on: hours, and a request that waits for an offer or for its start."""

from __future__ import annotations

from dataclasses import dataclass, field
from decimal import Decimal

from pydantic import StrictBool

from bot.rules.jobs.facet import Fields, JobFacet, JobFacts, Key, NumberOrText, Text, Word, sets
from bot.rules.jobs.moments import read_moment
from bot.rules.jobs.words import dollars_per_hour, hours_of, yes_or_no
from bot.rules.policy.job_bounds import BoundsVerdict
from bot.rules.policy.policy import Policy
from bot.rules.pricing import hours_cap


@dataclass(frozen=True)
class WhenFields:
    """For how long, and from when on."""

    hours: Decimal
    #: Those that a session has already, where this asks for more of them.
    already_hours: Decimal = field(default=Decimal(0), kw_only=True)
    #: Nothing that fits is no end: the request waits for such an offer.
    wait: bool = field(default=False, kw_only=True)
    #: From when on, and until when, it looks for offers; as they were written, such as `20:00`.
    start_at: str | None = field(default=None, kw_only=True)
    wait_until: str | None = field(default=None, kw_only=True)

    @property
    def may_wait(self) -> bool:
        """Whether the request waits for an offer, or for its start."""
        return self.wait or self.start_at is not None


def read_hours(text: str, policy: Policy) -> Fields:
    """Read for how long the GPUs are needed."""
    return {"hours": hours_of(text, policy)}


def _read_below(text: str, _policy: Policy) -> Fields:
    """Read `$16/h`: wait for an offer at or below this price."""
    return {"max_price_usd_h": dollars_per_hour(text), "wait": True}


def _read_retry(text: str, _policy: Policy) -> Fields:
    """Read `yes`: wait while nothing fits; `no` is as if nothing was said."""
    return {"wait": True} if yes_or_no(text, "retry") else {}


def _check(job: WhenFields, facts: JobFacts) -> BoundsVerdict | None:
    verdict = hours_cap.check(job.hours, Decimal(0), facts.policy)
    return None if verdict.allowed else BoundsVerdict(verdict.code, verdict.sentence)


WHEN = JobFacet(
    fields=WhenFields,
    are_facts=True,
    check=_check,
    words=(
        Word("hours", "TIME", "For how long.", "hours=3", read_hours, ("time", "duration")),
        Word(
            "below",
            "MONEY",
            "Wait for an offer at or below this price per hour.",
            "below=$16/h",
            _read_below,
            ("under",),
        ),
        Word("retry", "yes or no", "Wait while no offer fits.", "retry=yes", _read_retry, ("wait",)),
        Word(
            "at",
            "MOMENT",
            "Begin to look for offers then.",
            "at=20:00",
            sets("start_at", lambda text: read_moment(text, "at")),
        ),
        Word(
            "until",
            "MOMENT",
            "How long to wait for an offer; a day without it.",
            "until=20:00",
            sets("wait_until", lambda text: read_moment(text, "until")),
        ),
    ),
    keys=(
        Key("hours", NumberOrText | None, "For how long; without it, `work` says what runs."),
        Key("below", NumberOrText | None, "Wait for an offer at or below this price per hour.", examples=["$16/h"]),
        Key("retry", StrictBool | Text | None, "yes: wait while no offer fits."),
        Key("at", Text | None, "Begin to look for offers then: 20:00 (UTC), 2026-12-01T20:00+01:00, 6h from now."),
        Key("until", Text | None, "How long to wait for an offer, written like `at`; a day without it."),
    ),
)
