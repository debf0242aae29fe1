"""Plan and compare on this machine: ask the clouds directly, without the ledger, and answer as the API does."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from bot.api.problems import invalid
from bot.api.routes.market import compared_out, plan_out, work_out
from bot.cli.access.market import command_of, marketed, policy_of
from bot.cli.access.settings import fail, settings
from bot.rules.jobs.document import JobDocument
from bot.rules.jobs.job import JobRequest
from bot.rules.market.sizing_question import SizingQuestion
from bot.rules.policy.policy import Policy
from bot.services.plans.job_file import BadJob, read_plan
from bot.services.plans.planner import compare_market
from bot.services.plans.sizing import plan as make_plan
from bot.services.plans.work_comparison import compare_work_now


def comparison(line: str, words: dict[str, str]) -> Any:
    """Compare, and return the API's answer."""
    found = settings()
    policy = policy_of(found)
    parsed = command_of(f"compare {line}", words, policy)
    if (job := parsed.job) is not None:
        work = marketed(found, lambda catalog, clock: compare_work_now(catalog, clock, job, policy))
        return work_out(work).model_dump(mode="json")
    question = parsed.question
    if question is None:
        raise ValueError("a comparison without a question")
    compared = marketed(found, lambda catalog, clock: compare_market(catalog, clock, question, policy))
    return compared_out(compared).model_dump(mode="json")


def planned(document: Mapping[str, Any], out: str) -> Any:
    """Plan a run, and return the API's answer, with its picture where files are written to `out`."""
    found = settings()
    policy = policy_of(found)
    wanted = plan_of(document, policy)
    made = marketed(found, lambda catalog, clock: make_plan(catalog, clock, wanted, policy))
    return plan_out(made, policy, with_chart=bool(out)).model_dump(mode="json")


def plan_of(document: Mapping[str, Any], policy: Policy) -> JobRequest | SizingQuestion:
    """Read what a document asks of a plan; ends the program where it is wrong."""
    try:
        return read_plan(JobDocument.model_validate(document), policy)
    except ValidationError as error:
        fail(invalid(error.errors())[0].sentence, 2)
    except BadJob as error:
        fail(str(error), 2)
