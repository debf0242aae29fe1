"""Kaggle's side of an account: kernels, their versions, the session of each version, and the week's GPU hours."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

from providers.sandbox.account import PhasedInstance, SandboxAccount
from providers.sandbox.engine import SandboxCloud, TrueInstance
from providers.sandbox.timeline import Timeline

SESSIONS_MAX = 2
WEEK_S = 30 * 3600
#: The longest session of a GPU kernel, whatever timeout is asked for.
SESSION_CAP_S, NINE_HOURS_S = 12 * 3600, 9 * 3600
#: Saturday 00:00 UTC, when a week's hours begin anew.
EPOCH = datetime(2026, 1, 3, tzinfo=UTC)
WEEK = timedelta(days=7)
#: Shapes that no longer exist run as the default one, silently.
RETIRED = {"NvidiaTeslaP100": "NvidiaTeslaT4", "": "NvidiaTeslaT4"}
FINAL = ("COMPLETE", "ERROR", "CANCEL_ACKNOWLEDGED")


def shape_of(source: dict[str, Any]) -> str:
    """What a push runs on: "" without an accelerator."""
    if not source.get("enableGpu") and not source.get("machineShape"):
        return ""
    shape = str(source.get("machineShape") or "")
    return RETIRED.get(shape, shape)


@dataclass(kw_only=True)
class Run(PhasedInstance[str]):
    """One version of a kernel with its session. `status` is the truth; what is shown may be `stuck`."""

    phases: Timeline[str] = field(default_factory=lambda: Timeline("QUEUED"))
    owner: str
    slug: str
    version: int
    source: dict[str, Any]
    failure: str = ""
    stuck: bool = False
    deleted: bool = False

    def status(self, now: datetime) -> str:
        """The API's word, when it is not stuck."""
        return self.phases.at(now)

    def answers(self, now: datetime) -> bool:
        """Never: there is no SSH."""
        return False

    def exists(self, now: datetime) -> bool:
        """Until it is deleted."""
        return self.created_at <= now and not self.deleted

    def is_over(self, now: datetime) -> bool:
        """Never: the hours of a week are counted over all its runs."""
        return False

    def truth(self, cloud: str, now: datetime) -> TrueInstance:
        """Its end is planned from its start, and comes later."""
        found = super().truth(cloud, now)
        return replace(found, ended_at=None) if self.active(now) else found

    @property
    def shape(self) -> str:
        """What it runs on: "" without an accelerator."""
        return shape_of(self.source)

    @property
    def timeout_s(self) -> int:
        """The session's bound: what was asked for, never above the cap."""
        cap_s = NINE_HOURS_S if "nine_hours" in self.quirks else SESSION_CAP_S
        return min(int(self.source.get("sessionTimeoutSeconds") or cap_s), cap_s)

    def begin(self, queue_s: float | None, work_s: float | None, *, fails: bool = False) -> None:
        """Plan the whole run from its push: seconds in the queue (None: without end), then its own end after `work_s`
        or by the timeout. Every GPU second counts.
        """
        if queue_s is None:
            return
        length_s = self.timeout_s if work_s is None else min(work_s, self.timeout_s)
        timed_out = work_s is None or work_s > self.timeout_s
        final = "ERROR" if fails or timed_out else "COMPLETE"
        if timed_out:
            self.failure = "Your notebook was stopped because it exceeded its session timeout."
        self.phases.plan(self.created_at, (queue_s, "RUNNING"), (queue_s + length_s, final))
        started_at = self.created_at + timedelta(seconds=queue_s)
        self.ended_at = started_at + timedelta(seconds=length_s)
        if self.shape:
            self.meter.start("gpu", started_at, Decimal(0))
            self.meter.stop("gpu", self.ended_at)

    def finish(self, at: datetime, word: str, failure: str = "") -> None:
        """End it now, unless it has ended already."""
        if self.status(at) in FINAL:
            return
        self.phases.plan(at, (0, word))
        self.meter.stop_all(at)
        self.ended_at = at
        self.failure = failure

    def active(self, at: datetime) -> bool:
        """Whether it holds a session."""
        return self.created_at <= at and self.status(at) not in FINAL


class KaggleAccount(SandboxAccount[Run]):
    """Everything one user owns."""

    def __init__(self, cloud: SandboxCloud, owner: str) -> None:
        super().__init__(cloud)
        self.owner = owner
        #: Hours used by what is not shown here, such as an editor session on the web page; per week.
        self.elsewhere: dict[datetime, int] = {}

    @property
    def runs(self) -> list[Run]:
        """Every version that was ever pushed, oldest first."""
        return list(self.instances.values())

    def week(self, at: datetime) -> datetime:
        """When the week of `at` began."""
        return EPOCH + ((at - EPOCH) // WEEK) * WEEK

    def used_s(self, at: datetime) -> Decimal:
        """GPU seconds of this week so far."""
        since = self.week(at)
        own = sum((run.meter.seconds("gpu", at, since) for run in self.runs), Decimal(0))
        return own + self.elsewhere.get(since, 0)

    def use_up(self, at: datetime) -> None:
        """Let the rest of the week's hours be used elsewhere."""
        self.elsewhere[self.week(at)] = self.elsewhere.get(self.week(at), 0) + max(int(WEEK_S - self.used_s(at)), 0)

    def active(self, at: datetime) -> int:
        """GPU sessions that run or queue."""
        return sum(run.active(at) and bool(run.shape) for run in self.runs)

    def newest(self, slug: str, at: datetime) -> Run | None:
        """The latest version that has landed and is not deleted."""
        found = [run for run in self.runs if run.slug == slug and run.exists(at)]
        return found[-1] if found else None

    def version(self, slug: str, number: int, at: datetime) -> Run | None:
        run = self.instances.get(f"{self.owner}/{slug}/{number}")
        return run if run is not None and run.exists(at) else None

    def kernels(self, at: datetime) -> list[Run]:
        """The newest listed version of each kernel, newest first."""
        newest: dict[str, Run] = {}
        for run in self.runs:
            if run.listed_at <= at and run.exists(at):
                newest[run.slug] = run
        return sorted(newest.values(), key=lambda run: run.created_at, reverse=True)

    def push(self, slug: str, source: dict[str, Any], at: datetime, listed_at: datetime) -> Run:
        """A new version of `slug`, which begins when its plan is made."""
        number = 1 + sum(run.slug == slug for run in self.runs)
        gpu = bool(shape_of(source))
        return self.add(
            Run(
                ref=f"{self.owner}/{slug}/{number}",
                name=slug,
                gpu="T4" if gpu else "",
                gpu_count=2 if gpu else 0,
                created_at=at,
                shown_at=at,
                listed_at=listed_at,
                owner=self.owner,
                slug=slug,
                version=number,
                source=source,
                quirks=self.quirks("status_absent", "old_words", "nine_hours"),
            )
        )
