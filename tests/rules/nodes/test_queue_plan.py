"""The plan of a queue, of a command with attempts, and of a replacement that resumes."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

from bot.rules.jobs.job import JobRequest
from bot.rules.jobs.startup_plan import plan_startup, queue_left
from bot.wire.codec import to_json
from bot.wire.startup_plan import StartupPlan
from providers.gpus.constraint import GpuConstraint

JOB = JobRequest(GpuConstraint(count_min=4, count_max=4), Decimal(2), queue=("python a.py", "python b.py"))


def planned(job: JobRequest, resume: dict[str, str] | None = None) -> StartupPlan:
    found = plan_startup("ins_1", job, {"DATA_DIR": "/data"}, resume=resume)
    assert found is not None
    return found


def test_a_queue_is_one_step_with_its_commands_and_gpus() -> None:
    last = planned(JOB).steps[-1]
    assert (last.name, last.job) == ("run", True)
    assert last.script == 'eval "${QUEUE_COMMAND?This agent runs no queue.}"\n'
    said = to_json(last)["queue"]
    assert said == {"commands": [[1, "python a.py"], [2, "python b.py"]], "gpus": 4, "done": 0, "failed": 0}


def test_a_replacement_gets_what_is_left_of_the_queue() -> None:
    queue = queue_left(("a", "b", "c"), 2, over={1, 3}, failed=1)
    assert to_json(queue) == {"commands": [[2, "b"]], "gpus": 2, "done": 1, "failed": 1}


def test_mounted_files_are_fetched_once_before_the_queue() -> None:
    mounts = ("COPY /data/set s3://bucket/set",)
    steps = planned(replace(JOB, mounts=mounts, repo="https://github.com/org/project")).steps
    assert [one.name for one in steps][-2:] == ["files", "run"]
    assert steps[-2].script.endswith("\ncopy s3 bucket/set /data/set")
    assert steps[-1].needs == ("repo", "files")


def test_a_command_has_its_attempts() -> None:
    job = JobRequest(GpuConstraint(), Decimal(2), run="python a.py", attempts=3, retry_codes=(75,))
    said = to_json(planned(job).steps[-1])
    assert (said["attempts"], said["retry_codes"]) == (3, [75])
    assert "attempts" not in to_json(planned(replace(job, attempts=1)).steps[-1])


def test_a_replacement_reads_where_it_resumes_also_without_a_command() -> None:
    resume = {"RESUME_FROM": "s3://bucket/run/step-1", "RESUME_STEP": "1"}
    found = planned(JobRequest(GpuConstraint(), Decimal(2), checkpoint="s3://bucket/run"), resume=resume)
    assert [one.name for one in found.steps] == ["environment"]
    assert found.environment == {"DATA_DIR": "/data", **resume}
    assert "RESUME_FROM" in found.steps[0].script
    assert plan_startup("ins_1", JobRequest(GpuConstraint(), Decimal(2)), {}) is None
