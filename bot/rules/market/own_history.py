"""Hold what the own sessions of this installation say about a new run: measured rates, and times of its start."""

from __future__ import annotations

from dataclasses import dataclass, replace

from bot.rules.jobs.job import JobRequest
from bot.rules.jobs.startup_plan import plan_startup
from bot.rules.sizing.run_time import RunTime
from bot.rules.sizing.start_times import NO_TIMES, OwnTimes
from bot.rules.sizing.throughput import FinishedRun
from providers.capabilities import Capabilities


@dataclass(frozen=True, slots=True)
class OwnHistory:
    """Hold measured runs, which correct every throughput, and the times of machines that own sessions showed."""

    runs: tuple[FinishedRun, ...] = ()
    times: OwnTimes = NO_TIMES

    def started(self, run: RunTime, job: JobRequest, cloud: str, gpu: str, able: Capabilities) -> RunTime:
        """Return the run with the times of its start on a GPU of a cloud."""
        steps = startup_steps(job) if able.has_agent(own_image=job.image is not None) else ()
        found = self.times.start(cloud, gpu, able.boot_expected_s, steps, trains=run.trains)
        return replace(run, start=found)


#: What is known without any session.
NO_HISTORY = OwnHistory()


def startup_steps(job: JobRequest) -> tuple[str, ...]:
    """Return the names of the steps that come before the job; none where people start it by hand."""
    plan = plan_startup("", job, {}) if job.run or job.install else None
    return () if plan is None else tuple(one.name for one in plan.steps if not one.job and one.serve is None)
