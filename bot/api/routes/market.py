"""The market: what is for sale, what a run needs and costs, and what is peculiar to each cloud. Nothing is rented."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Header, Path, Query, Response

from bot.api.dependencies import AtDesk, caller, refusals
from bot.api.problems import FieldProblem, ProblemRaised
from bot.api.schemas.market import CloudOut, CompareIn, CompareOut, InventoryQuery, PlanOut, ProfileOut
from bot.rules.access.scopes import Scope
from bot.rules.grammar.job import everything
from bot.rules.grammar.job_document import JobDocument
from bot.rules.grammar.parser import GrammarError, ParsedCommand, parse
from bot.rules.plans.comparison_text import markdown, to_json
from bot.rules.policy.policy import Policy
from bot.rules.values.reply_code import ReplyCode
from bot.services.access.api_keys import Principal
from bot.services.market.document import MarketDocument
from bot.services.plans.deliverables import cost_estimate, gpu_plan, instance_manifest
from bot.services.plans.job_file import BadJob, read_job
from bot.services.plans.planner import Compared, Planned, compare_market
from bot.services.plans.planner import plan as make_plan
from bot.services.plans.tables import comparison_tables, plan_table
from bot.services.runtime.commands import Reply
from providers.profiles import model

router = APIRouter(prefix="/api/v1", tags=["market"])
Reader = Annotated[Principal, caller(Scope.MARKET_READ)]


def read_words(command: str, words: dict[str, tuple[str, str]], desk: AtDesk) -> ParsedCommand:
    """`field → (word, value)` read by the language of `/gpu`. Raises `Refused` with the field that is wrong."""
    parsed = parse(command, desk.ctx.policy, words.values())
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
    desk: AtDesk,
    _who: Reader,
    query: Annotated[InventoryQuery, Query()],
    if_none_match: Annotated[
        str | None,
        Header(max_length=1000, description="The ETag of an answer that is still there: 304 when nothing has changed."),
    ] = None,
) -> Any:
    """What is for sale now at every cloud, ranked, with the age of each price and what was left out and why."""
    given = {name: value for name, value in query.model_dump().items() if value}
    if "min_vram" in given:
        given["min_vram"] = f"{given['min_vram']}GB+" if given["min_vram"].isdigit() else given["min_vram"]
    asked = {name: ("memory" if name == "min_vram" else name, value) for name, value in given.items()}
    parsed = read_words("inventory", asked, desk)
    ctx = desk.ctx
    wanted = parsed.job or everything(ctx.policy)
    ready = await desk.market.inventory(ctx, wanted)
    headers = {"ETag": ready.etag, "Cache-Control": "private, no-cache"}
    if if_none_match and ready.etag in [one.strip().removeprefix("W/") for one in if_none_match.split(",")]:
        return Response(status_code=304, headers=headers)
    return Response(ready.body, headers=headers, media_type="application/json")


@router.post("/plans", responses=refusals())
async def plan(desk: AtDesk, _who: Reader, document: JobDocument) -> PlanOut:
    """What a run needs, takes and costs on every offer. Rents nothing."""
    ctx = desk.ctx
    try:
        job = read_job(document, ctx.policy, "plan")
    except BadJob as error:
        raise refused(error) from error
    return plan_out(await make_plan(ctx.catalog, ctx.clock, job, ctx.policy), ctx.policy)


def plan_out(planned: Planned, policy: Policy) -> PlanOut:
    """A plan as it is answered."""
    return PlanOut(
        estimate=cost_estimate(planned),
        manifest=instance_manifest(planned, policy),
        page=gpu_plan(planned),
        told=plan_table(planned),
    )


def refused(error: BadJob) -> ProblemRaised:
    """A job that cannot be asked for, as a refusal."""
    return ProblemRaised(
        Reply(False, error.code, str(error)), fields=[FieldProblem(field=error.field, sentence=str(error))]
    )


@router.post("/compare", responses=refusals())
async def compare(desk: AtDesk, _who: Reader, body: CompareIn) -> CompareOut:
    """Dollars per run and runs per budget on every GPU for sale, beside environments that cannot be rented here."""
    parsed = read_words("compare", {f"words.{k}": (k, v) for k, v in body.words.items() if v}, desk)
    if parsed.question is None:
        raise ValueError("a comparison without a question")
    return compared_out(await compare_market(desk.ctx.catalog, desk.ctx.clock, parsed.question, desk.ctx.policy))


def compared_out(compared: Compared) -> CompareOut:
    """A comparison as it is answered."""
    return CompareOut(
        comparison=to_json(compared.found),
        answers=[CloudOut.model_validate(one) for one in compared.answers],
        ages=list(compared.ages),
        page=markdown(compared.found),
        told=comparison_tables(compared),
    )


@router.get("/profiles", responses=refusals())
async def profiles(_desk: AtDesk, _who: Reader) -> list[ProfileOut]:
    """What is peculiar to each cloud, and what ends its meter."""
    return [_profile(name) for name in model.names()]


@router.get("/profiles/{cloud}", responses=refusals(404))
async def one_profile(
    _desk: AtDesk, _who: Reader, cloud: Annotated[str, Path(description="The cloud's name.")]
) -> ProfileOut:
    """One cloud's profile with its whole text."""
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
