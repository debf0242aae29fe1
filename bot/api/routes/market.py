"""Show the market, plan and compare runs, and show each cloud's profile; these routes rent nothing."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Header, Path, Query, Response

from bot.api.dependencies import Deps, MarketReader, refusals
from bot.api.problems import FieldProblem, ProblemRaised
from bot.api.schemas.market import CloudOut, CompareIn, CompareOut, InventoryQuery, PlanOut, ProfileOut
from bot.rules.grammar.job import everything
from bot.rules.grammar.job_document import JobDocument
from bot.rules.grammar.parser import GrammarError, ParsedCommand, parse
from bot.rules.plans.comparison_text import markdown, to_json
from bot.rules.policy.policy import Policy
from bot.rules.values.reply_code import ReplyCode
from bot.services.market.document import MarketDocument
from bot.services.plans.deliverables import cost_estimate, gpu_plan, instance_manifest
from bot.services.plans.job_file import BadJob, read_job
from bot.services.plans.planner import Compared, Planned, compare_market
from bot.services.plans.planner import plan as make_plan
from bot.services.plans.tables import comparison_tables, plan_table
from bot.services.runtime.commands import Reply
from providers.profiles import model

router = APIRouter(prefix="/api/v1", tags=["market"])


def read_words(command: str, words: dict[str, tuple[str, str]], deps: Deps) -> ParsedCommand:
    """Parse `field → (word, value)` with the grammar of `/gpu`; raises `ProblemRaised` with the wrong field."""
    parsed = parse(command, deps.ctx.policy, words.values())
    if isinstance(parsed, GrammarError):
        field = list(words)[parsed.pair - 1] if parsed.pair else ""
        wrong = [FieldProblem(field=field, sentence=parsed.message)]
        raise ProblemRaised(Reply(False, parsed.code, parsed.message), fields=wrong)
    return parsed


@router.get(
    "/inventory",
    response_model=MarketDocument,
    responses={**refusals(), 304: {"description": "The prices are the same as those of If-None-Match."}},
)
async def inventory(
    deps: Deps,
    _who: MarketReader,
    query: Annotated[InventoryQuery, Query()],
    if_none_match: Annotated[
        str | None,
        Header(max_length=1000, description="The ETag of an answer that you still have: 304 when nothing has changed."),
    ] = None,
) -> Any:
    """Rank what every cloud sells now, with the age of each price and the offers that were skipped."""
    given = {name: value for name, value in query.model_dump().items() if value}
    if "min_vram" in given:
        given["min_vram"] = f"{given['min_vram']}GB+" if given["min_vram"].isdigit() else given["min_vram"]
    words = {name: ("memory" if name == "min_vram" else name, value) for name, value in given.items()}
    parsed = read_words("inventory", words, deps)
    ctx = deps.ctx
    wanted = parsed.job or everything(ctx.policy)
    ready = await deps.market.inventory(ctx, wanted)
    headers = {"ETag": ready.etag, "Cache-Control": "private, no-cache"}
    if if_none_match and ready.etag in [one.strip().removeprefix("W/") for one in if_none_match.split(",")]:
        return Response(status_code=304, headers=headers)
    return Response(ready.body, headers=headers, media_type="application/json")


@router.post("/plans", responses=refusals())
async def plan(deps: Deps, _who: MarketReader, document: JobDocument) -> PlanOut:
    """Plan a training run: memory, time and cost on every offer. Rents nothing."""
    ctx = deps.ctx
    try:
        job = read_job(document, ctx.policy, "plan")
    except BadJob as error:
        raise refused(error) from error
    return plan_out(await make_plan(ctx.catalog, ctx.clock, job, ctx.policy), ctx.policy)


def plan_out(planned: Planned, policy: Policy) -> PlanOut:
    """Convert a plan to the answer of the API."""
    return PlanOut(
        estimate=cost_estimate(planned),
        manifest=instance_manifest(planned, policy),
        page=gpu_plan(planned),
        told=plan_table(planned),
    )


def refused(error: BadJob) -> ProblemRaised:
    """Convert the error of a job that cannot be read to a refusal."""
    return ProblemRaised(
        Reply(False, error.code, str(error)), fields=[FieldProblem(field=error.field, sentence=str(error))]
    )


@router.post("/compare", responses=refusals())
async def compare(deps: Deps, _who: MarketReader, body: CompareIn) -> CompareOut:
    """Compare dollars per run and runs per budget on every GPU for sale and in other environments. Rents nothing."""
    parsed = read_words("compare", {f"words.{k}": (k, v) for k, v in body.words.items() if v}, deps)
    if parsed.question is None:
        raise ValueError("a comparison without a question")
    return compared_out(await compare_market(deps.ctx.catalog, deps.ctx.clock, parsed.question, deps.ctx.policy))


def compared_out(compared: Compared) -> CompareOut:
    """Convert a comparison to the answer of the API."""
    return CompareOut(
        comparison=to_json(compared.found),
        answers=[CloudOut.model_validate(one) for one in compared.answers],
        ages=list(compared.ages),
        page=markdown(compared.found),
        told=comparison_tables(compared),
    )


@router.get("/profiles", responses=refusals())
async def profiles(_deps: Deps, _who: MarketReader) -> list[ProfileOut]:
    """List the profile of each cloud: how it bills, and how billing stops there."""
    return [_profile(name) for name in model.names()]


@router.get("/profiles/{cloud}", responses=refusals(404))
async def one_profile(
    _deps: Deps, _who: MarketReader, cloud: Annotated[str, Path(description="The cloud's name.")]
) -> ProfileOut:
    """Show the profile of one cloud with its whole text."""
    if cloud not in model.names():
        known = ", ".join(model.names())
        raise ProblemRaised(
            Reply(False, ReplyCode.UNKNOWN_PROFILE, f"There is no profile {cloud[:40]}; there are {known}.")
        )
    return _profile(cloud)


def _profile(name: str) -> ProfileOut:
    found = model.load(name)
    return ProfileOut(
        cloud=name,
        kind=found.front.kind.value,
        ends_the_meter=found.front.meter_stop_verb.value,
        spot=found.front.spot_available,
        text=(model.FOLDER / f"{name}.md").read_text(encoding="utf-8"),
    )
